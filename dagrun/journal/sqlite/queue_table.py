"""The table of submitted runs in SQLite: one database for all runs of a folder, beside their own.

1. A row counts for the run whose folder has its ticket, a file that is made with the folder. So a run that was deleted,
   or whose submission broke off, has no row, whatever the table says; and a folder that is moved keeps its queue. Where
   the file is damaged, the newest row of that name counts, as one of a run that is stuck, until somebody puts it back.
2. Who claims, opens or releases a run does so inside a transaction here, which has the lock from the start: the row and
   the lease of the run, which is in another database, change as one. Whoever dies in between leaves a run that is
   ``running`` and free, and is taken over.
3. Who posts writes the letter first, and changes the row then; who releases looks for letters under the lock.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from dagrun.errors import JournalFailed
from dagrun.journal.private_folders import QUEUE
from dagrun.journal.queue import Departure, QueueStanding
from dagrun.journal.run_folder import (
    FILE_MODE,
    FOLDER_MODE,
    RunPaths,
    as_failure,
    check_file,
    check_folder,
    sync_folder,
)
from dagrun.journal.sqlite.database import writing
from dagrun.journal.sqlite.inbox import has_unseen
from dagrun.journal.sqlite.pipes import ring
from dagrun.model.journal import Durability

FOLDER: Final = ".queue"  # not the name of a run
FORMAT: Final = 1
# `queued` is since when it is in the queue, and `fitted` when a worker that fits it has released it.
_TABLES: Final = (
    """CREATE TABLE queue (
        number INTEGER PRIMARY KEY AUTOINCREMENT, ticket TEXT NOT NULL UNIQUE, run_id TEXT NOT NULL,
        standing TEXT NOT NULL, pool TEXT NOT NULL, build TEXT NOT NULL, priority INTEGER NOT NULL,
        not_before REAL NOT NULL, takeovers INTEGER NOT NULL DEFAULT 0, reason TEXT NOT NULL DEFAULT '',
        token INTEGER NOT NULL DEFAULT 0, queued REAL NOT NULL, fitted REAL NOT NULL DEFAULT 0
    )""",
    """CREATE INDEX queue_open ON queue (priority DESC, number) WHERE standing IN ('queued', 'running')""",
    f"PRAGMA user_version={FORMAT}",
)


class QueueTable:
    """The database with the queue of a folder of runs; nothing stays open between two transactions.

    Args:
        folder: The folder of all runs.
        durability: What a change survives.
        busy_seconds: How long to wait for another process that has it locked.

    Attributes:
        folder: Where the database is, and the pipes of those who wait.
    """

    def __init__(self, folder: Path, durability: Durability, busy_seconds: float) -> None:
        self.folder = folder / FOLDER
        self._path = self.folder / QUEUE
        self._durability = durability
        self._busy_seconds = busy_seconds

    @property
    def is_there(self) -> bool:
        """Whether a run was ever submitted here."""
        return os.path.lexists(self._path)

    def make(self) -> None:
        """Make the database, unless it is there.

        Raises:
            JournalFailed: It cannot be made.
        """
        with as_failure(f"cannot make {self._path}"):
            with suppress(FileExistsError):
                os.mkdir(self.folder, FOLDER_MODE)
            with suppress(FileExistsError):
                os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE))
        with self.transaction() as database:
            if database.execute("PRAGMA user_version").fetchone()[0] == 0:
                for statement in _TABLES:
                    database.execute(statement)
                if self._durability is Durability.POWER:
                    sync_folder(self.folder)
                    sync_folder(self.folder.parent)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction that has the lock from the start; it is committed, or undone by an exception.

        Raises:
            JournalFailed: The database cannot be used.
        """
        check_folder(self.folder)
        check_file(self._path)
        with writing(self._path):
            database = sqlite3.connect(self._path, timeout=self._busy_seconds, isolation_level=None)
            try:
                database.row_factory = sqlite3.Row
                database.execute("PRAGMA trusted_schema=OFF")
                database.execute("PRAGMA journal_mode=TRUNCATE")
                database.execute(f"PRAGMA synchronous={'FULL' if self._durability is Durability.POWER else 'OFF'}")
                database.execute("BEGIN IMMEDIATE")
                if database.execute("PRAGMA user_version").fetchone()[0] not in (0, FORMAT):
                    raise JournalFailed(f"{self._path} was made by a later version of dagrun")
                yield database
                database.execute("COMMIT")
            finally:
                database.close()  # undoes what was not committed


class SubmittedRun:
    """A submitted run in the hands of its owner, who releases it.

    Args:
        table: The table.
        paths: The files of the run.
        ticket: Names its row.

    Attributes:
        left: How it is released.
        token: The token of its lease.
        seen_letters: The letters that the run has seen when its tape is closed.
    """

    def __init__(self, table: QueueTable, paths: RunPaths, ticket: str) -> None:
        self.left = Departure()
        self.token = 0
        self.seen_letters: set[str] = set()
        self.ticket = ticket
        self._table = table
        self._paths = paths

    def released(self, free: Callable[[], bool]) -> None:
        """Release the run, and write its standing, unless another process has taken it over.

        Args:
            free: Releases the lease; returns whether it was ours. This is the fence against former owners.

        """
        try:
            self._release(free)
        except JournalFailed:
            free()  # its standing cannot be written: the run is taken over, like one whose worker has ended

    def _release(self, free: Callable[[], bool]) -> None:
        with self._table.transaction() as database:
            if not free():
                return
            standing, reason = self.left.standing
            if standing is QueueStanding.WAITING and has_unseen(self._paths, self.seen_letters):
                standing, reason = QueueStanding.QUEUED, ""
            now = None if self.left.is_untouched else time.time()
            database.execute(
                """UPDATE queue SET standing = ?, reason = ?, takeovers = ?, queued = ifnull(?, queued),
                fitted = ifnull(?, fitted) WHERE ticket = ? AND token = ?""",
                (standing, reason, self.left.takeovers, now, now, self.ticket, self.token),
            )
        if standing is QueueStanding.QUEUED:
            ring(self._table.folder)
