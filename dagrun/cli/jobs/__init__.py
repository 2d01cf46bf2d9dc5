"""Runs that this process carries out for a command: `run`, `do`, `resume`, `retry`, `bench`, and plans for goals.

In: a `Job` (``job.py``) that a command has put together from settings and arguments. Out: an exit code, and the
result on the standard output, in ``run.json``, or as event lines.

Open ``one_run.py`` first, then ``execute.py``: signals, the live display, and the end of a process in which something
would not stop. ``goals.py`` gets plans from planners, ``case_runs.py`` carries out golden tasks for `eval` and
`compare`, ``follow_run.py`` shows a run of another process, and ``page_server.py`` serves the live page.

A job never waits for a tool that would not stop, and never prints anything but data to the standard output.
"""
