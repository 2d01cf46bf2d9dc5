"""Metrics of recorded runs: rates, times, tokens and cost, from the records alone.

In: the records of runs. Out: one value for each metric, for all runs and by group; alert rules; the text form of
Prometheus. `definitions.py` says what each metric is, and `metrics.py` reads the records and measures them. Open
`definitions.py` first.

Nothing here calls a tool or a model, and no figure is guessed: what the records do not say stays unknown.
"""
