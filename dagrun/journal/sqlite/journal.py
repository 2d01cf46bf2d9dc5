"""Records in files of SQLite: a folder for each run, and a database of its own in it."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import anyio

from dagrun.decide.durations import Durations
from dagrun.errors import ContractError, JournalDamaged, JournalFailed, RunHeld
from dagrun.journal import anchor
from dagrun.journal import durations_file as remembered
from dagrun.journal import run_folder as places
from dagrun.journal.base import Readable, check_run_id, is_run_id, no_such_run
from dagrun.journal.hash_chain import Chain
from dagrun.journal.lease import Lease, held_text, holding
from dagrun.journal.run_folder import Place
from dagrun.journal.sqlite import database, inbox
from dagrun.journal.sqlite.tape import SQLiteTape
from dagrun.journal.sqlite.writer import SQLiteWriter
from dagrun.model.journal import Durability, Held, Line


class SQLiteJournal(Readable):
    """Keeps each run in a folder of its own: its records, its files, and the letters for it.

    The folders and files are for their user alone. A place that is a link, belongs to somebody else, or can be
    written by everybody is refused.

    Args:
        folder: The folder of all runs; it is made when the first run is.
        durability: What an acknowledged record survives: ``process`` or ``power``.
        lease_seconds: How long a process that cannot be asked keeps a run after it was last heard of.
        busy_seconds: How long to wait for a database that another process has locked.

    Raises:
        ContractError: Files survive the end of the process: ``memory`` is no level of theirs.
    """

    lease_type: ClassVar[type[Lease]] = Lease

    def __init__(
        self,
        folder: Path | str,
        durability: Durability | str = Durability.PROCESS,
        lease_seconds: float = 10.0,
        busy_seconds: float = 5.0,
    ) -> None:
        self.durability = Durability(durability)
        if self.durability is Durability.MEMORY:
            raise ContractError(
                "a journal of files is durable as 'process' or 'power'; for memory there is MemoryJournal"
            )
        self._folder = Path(folder)
        self._lease_seconds = lease_seconds
        self._busy_seconds = busy_seconds

    async def create(self, run_id: str) -> SQLiteTape:
        """Begin the records of a new run.

        Raises:
            RunExists: There is one of this name.
            JournalFailed: It cannot be written there; the message says why.
        """
        check_run_id(run_id)
        return await self._tape(run_id, partial(self._create, run_id))

    async def open(self, run_id: str, *, steal: bool = False) -> SQLiteTape:
        """Take over a run, to go on with it: its former owner cannot add to it any more.

        A run is free if its owner has let go of it, or has ended, or has not been heard of for the time of its lease.

        Raises:
            RunNotFound: There is none of this name.
            RunHeld: Another process holds it, and *steal* is false.
            JournalDamaged: Its records are not what was written.
            JournalFailed: It cannot be written there.
        """
        return await self._tape(run_id, partial(self._open, run_id, steal))

    async def read(self, run_id: str) -> list[Line]:
        """Give the records of a run, checked; whoever holds it goes on meanwhile.

        Raises:
            RunNotFound: There is none of this name.
            JournalDamaged: Its records are not what was written.
            JournalFailed: They cannot be read.
        """
        return await anyio.to_thread.run_sync(self._read, run_id)

    def artifacts(self, run_id: str) -> Path | None:
        """The folder for the files of a run, whether it is there or not; `None` if no run may be called so."""
        return Place(self._folder / run_id).artifacts if is_run_id(run_id) else None

    async def runs(self) -> list[Held]:
        """The runs that are kept, in the order of their names.

        Raises:
            JournalFailed: The folder cannot be read.
        """
        return await anyio.to_thread.run_sync(self._runs)

    async def post(self, run_id: str, text: bytes) -> None:
        """Leave a letter for a run, whoever holds it, if anybody does.

        Raises:
            RunNotFound: There is none of this name.
            JournalFailed: It is too long, or cannot be written.
        """
        await anyio.to_thread.run_sync(lambda: inbox.post(self._find(run_id), text))

    async def delete(self, run_id: str) -> None:
        """Forget a run with all that belongs to it, a damaged one, too.

        Raises:
            RunNotFound: There is none of this name.
            RunHeld: Another process holds it.
            JournalFailed: It cannot be deleted.
        """
        await anyio.to_thread.run_sync(self._delete, run_id)

    async def durations(self) -> dict[str, Any]:
        """How long the calls of each tool took, from a file beside the folders of the runs.

        Raises:
            JournalFailed: The file is none of ours, or cannot be read.
        """
        return (await anyio.to_thread.run_sync(remembered.read, self._folder)).as_dict()

    async def keep_durations(self, new: dict[str, Any]) -> None:
        """Add what a run has learned of that. Of two processes that do so at the same time, one may lose it.

        Raises:
            JournalFailed: The file is none of ours, or cannot be written.
            RecordRefused: It is not what `Durations.as_dict` gives.
        """
        learned = Durations.from_dict(new)
        await anyio.to_thread.run_sync(remembered.add, self._folder, learned, self.durability)

    async def aclose(self) -> None:
        """Nothing to let go of: each tape has its own."""

    async def _tape(self, run_id: str, take: Callable[[], _SQLiteTaken]) -> SQLiteTape:
        # Nothing waits between the two: a cancellation cannot leave an open database behind.
        taken = await anyio.to_thread.run_sync(take)
        return SQLiteTape(run_id, self.durability, taken.place, taken.lines, taken.start)

    def _create(self, run_id: str) -> _SQLiteTaken:
        places.make_root(self._folder)
        place = Place(self._folder / run_id)
        new = Place(places.unseen(self._folder, "new"))
        try:
            with database.writing(new.folder):
                new.make()
                database.create(new.database, self.durability)
                anchor.replace(new.anchor, anchor.AnchorMark(0, Chain(run_id).digest, 0), self.durability).close()
            places.publish(new.folder, place)
        except BaseException:
            shutil.rmtree(new.folder, ignore_errors=True)
            raise
        if self.durability is Durability.POWER:
            places.sync_folder(place.folder)
            places.sync_folder(self._folder)
        return self._open(run_id, steal=False)

    def _open(self, run_id: str, steal: bool) -> _SQLiteTaken:
        place = self._find(run_id)
        place.check()
        with database.reading(run_id, place.database):
            connection = database.open_for_writing(place.database, self.durability, self._busy_seconds)
        try:
            # Whoever holds the run can add nothing until it is ours: the records are those that the new owner gets.
            with database.reading(run_id, place.database):
                connection.execute("BEGIN IMMEDIATE")
                lease = self.lease_type.take(connection, run_id, self._lease_seconds, steal=steal)
                lines = _checked(run_id, connection, place, lease.token)
            with database.writing(place.database):
                connection.execute("COMMIT")
                chain = Chain(run_id, (line.text for line in lines))
                files = place.identities()
                # A new file: a former owner that wakes up later writes to one that has no name any more.
                mark = anchor.AnchorMark(chain.seq, chain.digest, lease.token)
                opened = anchor.replace(place.anchor, mark, self.durability)
        except BaseException:
            connection.close()
            raise
        return _SQLiteTaken(place, lines, connection, lease, opened, files, chain)

    def _read(self, run_id: str) -> list[Line]:
        place = self._find(run_id)
        place.check()
        # Before the records: while they are read, their owner may move it on.
        mark = anchor.read(place.anchor)
        with database.reading(run_id, place.database):
            connection = database.open_for_reading(place.database, self._busy_seconds)
            try:
                connection.execute("BEGIN")
                return _verified(run_id, connection, mark)
            finally:
                connection.close()

    def _runs(self) -> list[Held]:
        return [self._held(name) for name in places.run_names(self._folder)]

    def _held(self, run_id: str) -> Held:
        try:
            place = self._find(run_id)
            place.check()
            with database.reading(run_id, place.database):
                connection = database.open_for_reading(place.database, self._busy_seconds)
                try:
                    found = holding(connection)
                finally:
                    connection.close()
        except (JournalDamaged, JournalFailed):
            return Held(run_id)  # what is wrong with it is told to whoever opens it
        return Held(run_id, str(found.owner) if found.owner else "", found.is_held)

    def _delete(self, run_id: str) -> None:
        place = self._find(run_id)
        place.check()
        try:
            with database.reading(run_id, place.database):
                self._fence_off(run_id, place)
        except JournalDamaged:
            pass  # nobody can go on with it
        gone = places.unseen(self._folder, "deleted")
        with places.as_failure(f"cannot delete {place.folder}"):
            place.folder.rename(gone)
            shutil.rmtree(gone)

    def _fence_off(self, run_id: str, place: Place) -> None:
        connection = database.open_for_writing(place.database, self.durability, self._busy_seconds)
        try:
            connection.execute("BEGIN IMMEDIATE")
            found = holding(connection)
            if found.is_held:
                raise RunHeld(held_text(run_id, found))
            connection.execute("UPDATE lease SET token = token + 1")
            connection.execute("COMMIT")
        finally:
            connection.close()

    def _find(self, run_id: str) -> Place:
        if os.path.lexists(self._folder):
            places.check_folder(self._folder)
        place = Place(self._folder / run_id)
        if not is_run_id(run_id) or not place.exists():
            raise no_such_run(run_id)
        return place


@dataclass(frozen=True, slots=True)
class _SQLiteTaken:
    """A run that was taken, before it has a writer."""

    place: Place
    lines: list[Line]
    connection: sqlite3.Connection
    lease: Lease
    opened: anchor.Anchor
    files: list[tuple[int, int]]
    chain: Chain

    def start(self, tell: Callable[[], None]) -> SQLiteWriter:
        """Start the writer."""
        return SQLiteWriter(
            self.place, self.connection, self.lease, self.opened, files=self.files, chain=self.chain, tell=tell
        )


def _checked(run_id: str, connection: sqlite3.Connection, place: Place, token: int) -> list[Line]:
    mark = anchor.read(place.anchor)
    if mark is not None and mark.token >= token:
        raise JournalDamaged(run_id, 0, "the database is older than its anchor: it was replaced, or put back")
    return _verified(run_id, connection, mark)


def _verified(run_id: str, connection: sqlite3.Connection, mark: anchor.AnchorMark | None) -> list[Line]:
    """Read the records, and compare them with the anchor.

    Raises:
        JournalDamaged: They are not what was written.
    """
    lines, fault = database.records(run_id, connection)
    fault = fault or anchor.check(lines, mark)
    if fault is not None:
        raise JournalDamaged(run_id, fault.seq, fault.reason)
    return lines
