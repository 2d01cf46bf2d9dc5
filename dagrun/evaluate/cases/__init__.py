"""Golden tasks: cases in YAML, run with stubs for tools, and compared with expectations.

In: files of cases, with the tools, plans, policies and planners that they name. Out: an `Evaluation`: each trial with
its misses, figures with intervals, and what became of gates and baselines.

Open `evaluation.py` first: it reads (`case_file.py`, `load_cases.py`), carries out (`trial.py`, in a
`stand_in_world.py`), compares (`expectations.py`, `fault_matrix.py`) and judges (`figures.py`). A tool that a case does
not name is never called for real.
"""
