"""Running steps: ready steps in, recorded ends out.

Open `scheduler.py` first: it also has the tasks that run steps. A step passes `admission.py`, `attempt.py` and
`attempt_completion.py`; with ceilings or critics it also passes `budget_gate.py` and `reviews.py`. `run_completion.py`
tells attempts to stop, and ends the run.

No module here changes the state by itself: each change is a method of the record. Only `AttemptRunner.perform` catches
what a tool raises.
"""
