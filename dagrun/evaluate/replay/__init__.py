"""Replay: a recorded run is executed again, and every outcome from outside is looked up in its record.

In: a record. Out: the result of the run as it comes to now, and what it asked for that was not recorded.

Open `cassette.py` first: it plays tools, planner, critics, people and host. `recorded_outcomes.py` is the index that it
looks them up in, and `order.py` keeps the order of the record. Nothing is inferred: what is not found is a `Miss`.
"""
