"""The one place where the state of a run changes: facts in, events out.

Open `record.py` first: each of its methods applies an event to the graph, writes it to the journal, and shows it to the
observers (`observers.py`). `recorder.py` writes to the run log, and ends the run when that fails. `backlog.py` skips
and cancels steps, some hundred in each turn of the loop.

No change of the state awaits, so none is ever cut in two by a cancellation.
"""
