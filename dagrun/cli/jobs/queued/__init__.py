"""Runs that are submitted by one command, and carried out by a worker: `dagrun submit`, `worker` and `follow`.

In: the flags of the command. Out: its exit code, and on the standard output the name of the run, its answer, or lines
of JSON. Open ``worker_job.py`` first. Nothing here decides who gets a run: that is for the queue of the journal.
"""
