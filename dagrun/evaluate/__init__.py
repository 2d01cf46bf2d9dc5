"""Judge runs by figures: golden tasks, comparisons, metrics, simulations, learned routes.

In: plans, records of runs, and expectations. Out: rates, quantiles and verdicts, with their intervals.

- `cases/`: golden tasks and their outcomes; `replay.py` carries a recorded run out again as a case.
- `comparison/`: variants side by side; `metrics/`: figures of recorded runs; `learning/`: routes from recorded plans.
- `simulation/`: plans on a virtual clock. `intervals.py`: the statistics of all parts. `plan_shape.py`: the normal form
  of a plan, which learning compares.

It reads records and starts runs over public functions, as any host does. Nothing here changes how a run works, and no
run imports it.
"""
