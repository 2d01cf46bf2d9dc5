"""Running steps: ready steps in, recorded ends out.

Open `scheduler.py` first. `workers.py` has the tasks that run steps. A step passes `admission.py`, `attempt.py` and
`attempt_completion.py`; with ceilings, critics or questions it also passes `budget_gate.py`, `reviews.py` and
`ask_from_tool.py`. `cancellation.py` tells attempts to stop, and `run_completion.py` ends the run.

No module here changes the state by itself: each change is a method of the record. Only `AttemptRunner.perform` catches
what a tool raises.
"""
