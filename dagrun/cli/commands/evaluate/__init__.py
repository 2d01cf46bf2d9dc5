"""Commands that judge plans and runs by figures.

In: a plan, records of runs, or cases. Out: figures with their intervals, as a table or as JSON. Open `sim.py` first.
None of these commands changes a recorded run.
"""
