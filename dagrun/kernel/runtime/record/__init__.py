"""The one place where the state of a run changes: facts in, events out.

Open `record.py` first: each of its methods applies an event to the graph, and skips or cancels what follows from it.
`event_log.py` passes events to the journal and the observers, and ends the run when the journal fails.

No change of the state awaits, so none is ever cut in two by a cancellation.
"""
