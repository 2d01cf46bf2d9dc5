"""Plans simulated: the real engine carries them out on a virtual clock, with tools that only take time.

In: a plan, how long its tools take and how often they fail. Out: a `Simulation`, the figures of many runs with their
intervals. Open `simulate.py` first. `simulated_plan.py` puts stand-ins in the place of tools, `call_models.py` says
what these do, and `simulation.py` has the variants of the policy and the result.

No tool of the plan is ever called here, no journal is written, and nothing waits in real time.
"""
