"""The view of a run: one document of plain JSON, the source of every page, drawing and file about the run.

In go a record, a live run, a result or a ``run.json``; out comes a `RunView`, redacted. Nothing here awaits, reads a
clock or changes a run. A face that needs a fact adds it to the view, and reads no events by itself.

Open first: `document.py` (`view_of`), then `shape.py`, which says what is in a view. `live_view.py` follows a live run.
"""
