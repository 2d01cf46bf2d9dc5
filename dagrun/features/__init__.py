"""The features of runs: what a run may have beyond carrying out its plan.

In: the parts of a run, and the options and limits that want the feature. Out: a part of the run that the runtime calls
through a protocol of `dagrun/kernel/runtime/run_features.py`: open that file first. `dagrun/api/shared_by_runs.py`
makes the features of an engine.

A feature knows no other feature, and nothing that is above the runtime; the runtime never imports one.
"""
