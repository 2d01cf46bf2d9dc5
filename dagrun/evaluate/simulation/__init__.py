"""Plans simulated: the real engine carries them out on a virtual clock, with tools that only take time.

In: a plan, how long its tools take and how often they fail. Out: a `Simulation`, the figures of many runs with their
intervals. Open `simulate.py` first. `simulated_plan.py` puts stand-ins in the place of tools, `duration_model.py` and
`failure_model.py` say what these do, `policy_variants.py` reads what is varied, `simulation.py` holds the result.

No tool of the plan is ever called here, no journal is written, and nothing waits in real time.
"""
