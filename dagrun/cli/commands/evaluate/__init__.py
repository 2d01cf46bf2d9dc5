"""Commands that judge runs by figures: golden tasks, comparisons, simulations, metrics, routes.

In: files of cases, a plan, or the recorded runs. Out: figures as text or JSON, and an exit code. Open ``eval.py``
first. Nothing here computes a figure: that is for `dagrun.evaluate`.
"""
