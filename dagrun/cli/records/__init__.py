"""Recorded runs, as the command line finds them, the commands that resume, retry or answer them, and files of commands.

In: the folder of records, and the name of a run, or its beginning, or "last". Out: replayed runs, the state of each of
them, and shell commands for the next step. Open ``run_store.py`` first, then ``run_list.py``. ``output_files.py`` has
the files that a command leaves for people.

This package never executes a command that it found on a record: it only shows it, as others may have written it.
"""
