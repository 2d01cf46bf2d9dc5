"""Runs and plans in notebooks: one cell that shows how they stand, without widgets and without a script.

In: a plan, a result, a record, a run. Out: a bundle of HTML and text, as IPython asks for it (`bundle.py`, open it
first; `cell.py` has the HTML), and, for a run that goes on, one display that is updated until its end (`live_cell.py`).
Outside of a notebook, text. IPython is looked for only where it is loaded already, and nothing here needs it.
"""
