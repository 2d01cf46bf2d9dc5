"""Runs as people see them: progress, timelines, reasons, questions and summaries, as plain text and data.

In: the events of a run while it runs, its record (`dagrun.api.replaying`), or its result. Out: rows, lines and JSON,
which the command line prints; pages, pictures and cells of notebooks (`report/`, `picture/`).

- While a run is running: `progress.py` counts its steps, and makes one line of its end; `question_text.py` lays out a
  question, and reads a typed answer.
- From its events or its record: `view/` has all that is known of a run as one document, `timeline.py` draws when each
  step ran, `narrative.py` tells what happened and why, and `run_standing.py` says whether the run can be resumed.

Open `progress.py` first. Nothing here changes a run or writes to a terminal. Text from outside (plans, tools, people)
is made harmless before it is put into a line.
"""
