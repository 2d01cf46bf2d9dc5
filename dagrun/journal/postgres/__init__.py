"""The journal in PostgreSQL: the records of many machines in the tables of one server.

In: records, added from any event loop; each batch is sent as one statement, which checks the token of the owner.
Out: the records, checked against their hash chain, the row of the run, and the anchor, if there is one; and messages,
announced by LISTEN and NOTIFY.

Read first `journal.py`; then `loop_thread.py` (the thread with an asyncio loop in which everything here runs),
`connections.py`, `statements.py` (tables and SQL), `run_log.py`, `writer.py` and `lease_keeper.py`.

It never blocks the loop of the run, never writes a record twice, even if it sends one twice, and never shows a
password.
"""
