"""The command ``dagrun demo``: a sales analysis on real data, with two remote sources.

In: a folder. Out: reports, charts and ``run.json`` in that folder, and a comparison on the standard error.
One source fails once and is tried again; the other is gone for good, so its fallback answers. In the scenario
``replan`` a column of the table has a new name, and the plan is changed while it runs.
Open `demo.py` first, then `demo_run.py`. The plan is `plan.json`, its policy `policy.toml`, its sources `server.py`.

The demo is a part of the command line, so it may import `dagrun.cli`; no other module of the package may.
"""
