"""Jobs: runs as the command line carries them out.

In: a `Job` (``job.py``) that a command has put together from settings and arguments. Out: an exit code, and the
result on the standard output, in ``run.json``, or as event lines.

Open ``one_run.py`` first, then ``execute.py``: signals, the live display, and the end of a process in which something
would not stop. ``goals.py`` and ``draft_plan.py`` get plans from planners; ``recording.py`` says where a run is
recorded; ``bench_figures.py`` has what ``bench`` measures, and ``report_file.py`` writes reports.

A job never waits for a tool that would not stop, and never prints anything but data to the standard output.
"""
