"""The thread that writes the records of one run: many units in one transaction, each whole or not at all."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

from dagrun.errors import JournalError, JournalFailed
from dagrun.journal.anchor import Anchor, AnchorMark
from dagrun.journal.handover import WriteQueue
from dagrun.journal.hash_chain import END, Chain
from dagrun.journal.lease import Lease
from dagrun.journal.run_folder import Place
from dagrun.journal.sqlite.database import INSERT, writing

MAX_BATCH: Final = 200  # records: more at a time would keep the interpreter from the loop for too long
PAUSE: Final = 0.003  # seconds to wait for more records while nobody waits for these


class SQLiteWriter(WriteQueue):
    """Writes in a thread of its own what the loop hands over.

    Nothing is acknowledged before it is committed, the files are still those that were opened, and the anchor says so.

    Args:
        place: The files of the run.
        database: Open for writing; closed at the end.
        lease: The right to write.
        anchor: Open for writing; closed at the end.
        files: What the files of the database are.
        chain: As far as the records go.
        tell: As for `WriteQueue`; called in the thread.
    """

    def __init__(
        self,
        place: Place,
        database: sqlite3.Connection,
        lease: Lease,
        anchor: Anchor,
        *,
        files: list[tuple[int, int]],
        chain: Chain,
        tell: Callable[[], None],
    ) -> None:
        super().__init__(chain.seq, MAX_BATCH, tell)
        self._place = place
        self._database = database
        self._lease = lease
        self._anchor = anchor
        self._chain = chain
        self._files = files
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"journal of {lease.run_id}", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for the thread, which has told that it ends."""
        self._thread.join()

    def _run(self) -> None:
        try:
            with writing(self._place.database):
                while (batch := self._take()) is not None:
                    self._write(batch)
                self._transaction(self._lease.release)
        except JournalError as error:
            self.failure = error
        except Exception as error:  # noqa: BLE001  (a thread that dies in silence would leave the run waiting for ever)
            self.failure = JournalFailed(f"cannot write {self._place.database}: {type(error).__name__}: {error}")
        finally:
            self._close()
            self.has_ended = True
            self._tell()

    def _ring(self) -> None:
        self._is_dozing = False  # once is enough
        self._bell.put(None)

    def _doze(self, seconds: float) -> bool:
        """Wait for the bell, and say whether it rang. What for is looked up then: a bell too many does no harm."""
        try:
            self._bell.get(timeout=seconds)
        except Empty:
            return False
        return True

    def _take(self) -> list[bytes] | None:
        """Wait for units, and take as many as fit; none after a third of the lease, `None` at the end."""
        while not self._ends:
            if self._is_closing:
                return None
            if not self._wait_for_work():
                return []
        # Nobody waits: what comes in the next moment goes along. A transaction costs as much as ten records.
        self._is_dozing = True
        if not self._is_urgent:
            self._doze(PAUSE)
        self._is_dozing = False
        return self._gather()

    def _wait_for_work(self) -> bool:
        """Wait for the first unit, or the end; say whether something rang."""
        # The flags stand before the last look: what comes after the look rings.
        self._is_idle = self._is_dozing = True
        has_rung = bool(self._ends) or self._is_closing or self._doze(self._lease.seconds / 3)
        self._is_idle = self._is_dozing = False
        return has_rung

    def _write(self, batch: list[bytes]) -> None:
        self._transaction(lambda database: self._add(database, batch))
        if not batch:
            return
        self._check_files()
        chain = self._chain
        self._anchor.write(AnchorMark(chain.seq, chain.digest, self._lease.token))
        self._acknowledge(chain.seq)

    def _transaction(self, act: Callable[[sqlite3.Connection], None]) -> None:
        """Do *act* in a transaction that nobody else can come between."""
        self._database.execute("BEGIN IMMEDIATE")
        act(self._database)
        self._database.execute("COMMIT")

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
        """Refuse to go on writing to files that nobody will find any more.

        Raises:
            OwnerLost: A new owner has its own anchor.
            JournalFailed: They were deleted, moved or replaced.
        """
        try:
            is_same = self._place.identities() == self._files and self._anchor.is_in_place()
        except OSError:
            is_same = False
        if not is_same:
            self._transaction(self._lease.check)
            raise JournalFailed(f"the files in {self._place.folder} were deleted or replaced while they were written")

    def _close(self) -> None:
        # What was not committed is rolled back; what fails here was told already, or harms nobody.
        for close in (self._database.close, self._anchor.close):
            try:
                close()
            except (sqlite3.Error, OSError) as error:
                self.failure = self.failure or JournalFailed(f"cannot close {self._place.database}: {error}")
