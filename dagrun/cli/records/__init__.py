"""Recorded runs, as the command line finds them, and the commands that resume, retry or answer them.

In: the folder of records, and the name of a run, or its beginning, or "last". Out: replayed runs, where each of them
stands, and shell commands for the next step. Open ``run_records.py`` first. ``output_folder.py`` has the other folder
of a run: the one for the files that it leaves for people.

This package never executes a command that it found on a record: it only shows it, as others may have written it.
"""
