"""Runs as people see them: progress, timelines, reasons, questions and summaries, as plain text and data.

In: the events of a run while it runs, its record (`dagrun.api.replaying`), or its result. Out: rows, lines and JSON,
which the command line prints.

- While a run is running: `progress.py` counts its steps, `question_text.py` lays out a question.
- From its events or its record: `timeline.py` draws when each step ran, `chronicle.py` tells what happened and why, and
  `run_standing.py` says whether the run can be resumed.
- From its result: `summary.py` makes one line of it.

Open `progress.py` first. Nothing here changes a run or writes to a terminal. Text from outside (plans, tools, people)
is made harmless before it is put into a line.
"""
