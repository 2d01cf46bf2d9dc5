"""Runs that are judged by figures: simulated, compared, measured, tested.

In: plans, records of runs, and what a host expects of them. Out: rates, quantiles and verdicts, with the intervals that
belong to them. `intervals.py` holds the statistics that all parts share; `simulation/` carries plans out on a virtual
clock. Parts of this floor read records and start runs as any host does, over the public functions; nothing here changes
how a run works, and no run imports anything of it.
"""
