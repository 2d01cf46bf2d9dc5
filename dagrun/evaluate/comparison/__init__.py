"""Compare variants on golden tasks: success, time, tokens, cost, idle calls and early stops, with verdicts.

In: golden tasks that have a goal, and variants (planners, agents, policies). Out: a `VariantComparison`: the result of
each run, and for each pair of variants the difference with its interval, or how many runs would be needed to see one.

Open `compare.py` first: it carries out the tasks with each variant (`variants.py`), in pairs that share case, seed and
world, and counts calls that nothing uses. `comparison.py` computes figures, `differences.py` intervals and verdicts,
and `comparison_text.py` writes them. No figure is compared without its interval.
"""
