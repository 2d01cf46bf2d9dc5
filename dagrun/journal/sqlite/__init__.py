"""The journal in SQLite: one folder for each run, with a database, an anchor, files, and an inbox.

In: records of the runs of one machine; a thread for each run adds them, many in one transaction. Out: the records,
checked against their hash chain and the anchor; and messages, which are files in the folder of the run.

Read first `journal.py`; then `run_log.py` (the run log and its writing thread), `database.py` (tables, settings,
errors) and `inbox.py` (messages).

It never works on a network file system, never uses a file that another user could change, and never polls for messages.
"""
