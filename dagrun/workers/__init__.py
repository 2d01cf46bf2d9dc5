"""Workers: runs are submitted to a journal, and processes elsewhere claim them and carry them out.

Open ``submitting.py`` first: `submit`, `follow`, `cancel` and `requeue`. ``worker.py`` has the `Worker`, which claims a
run and keeps its lease for as long as it carries the run out. The queue itself belongs to the journal.
"""
