"""How much a provider takes: calls that it refuses for now wait, and are made again.

In: calls of tools and of models, and their ends. Out: whether a call may begin now. Open `adaptive_limit.py` first for
the window of one provider, which the runs of an engine share. `step_limits.py` lets the steps of a run wait in line for
it, and `model_concurrency.py` the calls of planners and critics.
"""
