"""Runs judged by figures: `dagrun eval`, `compare`, `sim` and `metrics`.

In: the flags of the command. Out: its exit code, and figures as text or JSON. Open ``eval_job.py`` first. Nothing here
computes a figure: that is for `dagrun.evaluate`.
"""
