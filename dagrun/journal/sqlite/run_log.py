"""The run log of one run in SQLite, and the thread that writes its records.

The thread writes many units in one transaction, so that each becomes durable as a whole or not at all.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

import anyio.to_thread

from dagrun.errors import JournalError, JournalFailed
from dagrun.journal.anchor import Anchor, AnchorMark
from dagrun.journal.hash_chain import END, Chain
from dagrun.journal.lease import Lease
from dagrun.journal.run_folder import RunPaths
from dagrun.journal.run_log import BufferedRunLog
from dagrun.journal.sqlite import inbox
from dagrun.journal.sqlite.database import INSERT, writing
from dagrun.journal.write_queue import Callback, WriteQueue
from dagrun.kernel.model.journal import Durability, Line

T = TypeVar("T")
MAX_BATCH: Final = 200  # records: a larger batch would keep the interpreter from the loop for too long
PAUSE: Final = 0.003  # seconds to wait for more records while no task waits for these


class SQLiteWriter(WriteQueue):
    """A thread that writes the records of one run.

    It acknowledges a record only after three steps: it has committed the record, has checked that the files are still
    those that it opened, and has written the anchor.

    Args:
        paths: The files of the run.
        database: Open for writing; closed by the writer.
        lease: The right to write.
        anchor: Open for writing; closed by the writer.
        files: Device and inode of the database files when they were opened.
        chain: The hash chain of the records so far.
        notify: As for `WriteQueue`; called in the thread.
    """

    def __init__(
        self,
        paths: RunPaths,
        database: sqlite3.Connection,
        lease: Lease,
        anchor: Anchor,
        *,
        files: list[tuple[int, int]],
        chain: Chain,
        notify: Callback,
    ) -> None:
        super().__init__(chain.seq, MAX_BATCH, lease.seconds, notify)
        self._paths = paths
        self._database = database
        self._lease = lease
        self._anchor = anchor
        self._chain = chain
        self._files = files
        self._wakeups: SimpleQueue[None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"journal of {lease.run_id}", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for the thread, which has notified that it ends."""
        self._thread.join()

    def _run(self) -> None:
        try:
            with writing(self._paths.database):
                while (batch := self._take()) is not None:
                    self._write(batch)
                self._transaction(self._lease.release)
        except JournalError as error:
            self.failure = error
        except Exception as error:  # noqa: BLE001  (a thread that ends silently would leave the run waiting for ever)
            self.failure = JournalFailed(f"cannot write {self._paths.database}: {type(error).__name__}: {error}")
        finally:
            self._close()
            self.has_ended = True
            self._notify()

    def _wake_writer(self) -> None:
        self._is_waiting = False  # one wake-up is enough
        self._wakeups.put(None)

    def _wait(self, seconds: float) -> bool:
        """Wait for a wake-up; return whether there was one. One too many does no harm: the caller looks for work."""
        try:
            self._wakeups.get(timeout=seconds)
        except Empty:
            return False
        return True

    def _take(self) -> list[bytes] | None:
        """Wait for units, and take a batch of them; `None` at the end.

        The batch is empty after a third of the lease, and where the loop wants to know whether the run is still held.
        """
        while not self._ends:
            if self._is_closing:
                return None
            if not self._wait_for_work() or (self._wants_look and not self._ends):
                return []
        # No task waits: records that come soon are written along. A transaction costs as much as ten records.
        self._is_waiting = True
        if not self._is_urgent:
            self._wait(PAUSE)
        self._is_waiting = False
        return self._gather()

    def _wait_for_work(self) -> bool:
        """Wait for the first unit, or for the end; return whether there was a wake-up."""
        # The flags are set before the last look at the queue: see rule 3 of `write_queue`.
        self._is_idle = self._is_waiting = True
        has_work = bool(self._ends) or self._is_closing or self._wants_look
        was_woken = has_work or self._wait(self._lease.seconds / 3)
        self._is_idle = self._is_waiting = False
        return was_woken

    def _write(self, batch: list[bytes]) -> None:
        """Write and acknowledge a batch; an empty one only renews the lease."""
        look = self._begin_look()
        self._transaction(lambda database: self._add(database, batch))
        self._end_look(look)
        if not batch:
            return
        self._check_files()
        chain = self._chain
        self._anchor.write(AnchorMark(chain.seq, chain.digest, self._lease.token))
        self._acknowledge(chain.seq)

    def _transaction(self, act: Callable[[sqlite3.Connection], T]) -> T:
        """Run *act* in a transaction that has the write lock from the start."""
        self._database.execute("BEGIN IMMEDIATE")
        done = act(self._database)
        self._database.execute("COMMIT")
        return done

    def _add(self, database: sqlite3.Connection, batch: list[bytes]) -> None:
        self._lease.check(database)
        if not batch:
            return
        row = END.join(batch)
        if row.count(END) != len(batch) - 1:
            raise JournalFailed("what was to be written is no JSON: it has a character that ends a record")
        first = self._chain.seq + 1
        self._chain.add(row, len(batch))
        database.execute(INSERT, (first, row.decode(), self._chain.digest))

    def _check_files(self) -> None:
        """Refuse to write to files that readers can no longer find.

        Raises:
            OwnerLost: A new owner has put its own anchor there.
            JournalFailed: The files were deleted, moved or replaced.
        """
        try:
            is_same = self._paths.identities() == self._files and self._anchor.is_in_place()
        except OSError:
            is_same = False
        if not is_same:
            self._transaction(self._lease.check)
            raise JournalFailed(f"the files in {self._paths.folder} were deleted or replaced while they were written")

    def _close(self) -> None:
        # SQLite rolls back uncommitted records. An error here is kept only if there was no failure before.
        for close in (self._database.close, self._anchor.close):
            try:
                close()
            except (sqlite3.Error, OSError) as error:
                self.failure = self.failure or JournalFailed(f"cannot close {self._paths.database}: {error}")


@dataclass(frozen=True, slots=True)
class TakenRun:
    """A run that was taken over, before it has a run log.

    Attributes:
        run_id: The run.
        lines: The records so far.
        answer_key: The secret that each answer must carry.
        start: Starts the writer; its argument is the `notify` of `WriteQueue`.
    """

    run_id: str
    lines: Sequence[Line]
    answer_key: str
    start: Callable[[Callback], SQLiteWriter]


class SQLiteRunLog(BufferedRunLog[inbox.Inbox, SQLiteWriter]):
    """The records of one run, held by its owner.

    Args:
        taken: The run.
        durability: What an acknowledged record survives.
        paths: The files of the run.
    """

    def __init__(self, taken: TakenRun, durability: Durability, paths: RunPaths) -> None:
        super().__init__(
            taken.run_id,
            durability,
            taken.lines,
            paths.artifacts,
            answer_key=taken.answer_key,
            inbox=inbox.Inbox(paths),
            start=taken.start,
        )
        self._paths = paths

    async def discard(self, message: str) -> None:
        """Delete a message.

        Raises:
            JournalFailed: The message cannot be deleted.
        """
        await anyio.to_thread.run_sync(inbox.discard, self._paths, message)

    async def aclose(self) -> None:
        """Write the last records, and release the run."""
        await super().aclose()
        self._writer.join()
