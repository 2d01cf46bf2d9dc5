"""Variants of carrying out goals, compared: success, time, tokens, cost, idle calls and early stops, with verdicts.

In: golden tasks that have a goal, and ways: planners, agents, policies. Out: a `VariantComparison`: what came of each
run, and for each pair of ways what can be told from the runs, or how many would be needed to tell.

Open `compare.py` first: it carries out the tasks by each way (`variants.py`), in pairs that share case, seed and world,
and counts what served no goal. `comparison.py` judges, and `comparison_text.py` writes. No figure is compared without
its interval.
"""
