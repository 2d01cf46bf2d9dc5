"""Routes learned from recorded runs: successful plans of a planner, with parameters for their values.

In: the records of runs that began with a goal. Out: one file for each sort of task, which a person reads and commits,
and `RouterPlanner` uses without any call of a model. Open `learn_routes.py` first.

Nothing is learned by itself: no run reads these files unless a host hands them to its planner.
"""
