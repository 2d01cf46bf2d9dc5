"""The planner during a run: triggers come in, applied patches go out.

Open `coordinator.py` first: it deals with one request at a time, while steps run. `first_plan.py` adds the steps of the
first plan as they come in, and `planner_calls.py` counts, charges and records each call of the planner.

The planner never calls a tool, and nothing here changes the plan except through a checked patch.
"""
