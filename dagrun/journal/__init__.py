"""Journals: where the records of runs are kept, in memory, in SQLite files, or on a PostgreSQL server.

In: records as lines of JSON text, in order (`RunLog.append`), and messages, the answers that other processes leave for
a run. Out: the same records, checked by their hash chain, so that a run can be resumed or read; and the
acknowledgement that a record is durable.

Read first `memory.py`, the smallest journal. Then `run_log.py` and `write_queue.py`: the part that SQLite and
PostgreSQL share, between the loop of a run and the thread that writes its records. `sqlite/` and `postgres/` each start
at their `journal.py`.

A journal never looks into a record, never changes or reorders one, never decides what happens in a run, and never
acknowledges what is not yet durable.
"""
