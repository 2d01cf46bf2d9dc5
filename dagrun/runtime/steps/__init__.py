"""Running steps: ready steps in, recorded ends out.

Open `scheduler.py` first. `workers.py` has the tasks that run steps. A step passes `admission.py`, `attempt.py` and
`endings.py`; with ceilings, critics, hedges or questions it also passes `accounts.py`, `reviews.py`, `hedging.py` and
`ask_from_tool.py`. `stopping.py` tells attempts to stop, and `finish.py` ends the run.

No module here changes the state by itself: each change is a method of the record. Only `AttemptRunner.perform` catches
what a tool raises.
"""
