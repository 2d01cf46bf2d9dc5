"""The journal in SQLite: a folder for each run, with a database of its own."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import anyio

from dagrun.errors import ContractError, JournalDamaged, RunHeld
from dagrun.journal import anchor, run_folder, summary_cache
from dagrun.journal.base import Readable, check_run_id, is_run_id
from dagrun.journal.hash_chain import Chain
from dagrun.journal.lease import Lease, held_text, holding
from dagrun.journal.private_folders import keep_private
from dagrun.journal.run_folder import RunPaths
from dagrun.journal.sqlite import database, inbox, news
from dagrun.journal.sqlite.reading import find_run, held_run, held_runs, read_lines, verified
from dagrun.journal.sqlite.run_log import SQLiteRunLog, SQLiteWriter, TakenRun
from dagrun.journal.write_queue import Callback
from dagrun.kernel.decide.durations import Durations
from dagrun.kernel.model.journal import Durability, Held, Line, StoredRow


class SQLiteJournal(Readable):
    """Keeps each run in a folder of its own: its records, its files, and its inbox.

    Only the user may read the folders and files. A path that is a link, belongs to another user, or is writable for
    everybody is refused.

    Args:
        folder: The folder of all runs; made with the first run.
        durability: What an acknowledged record survives: ``process`` or ``power``.
        lease_seconds: How long a process keeps a run after its last renewal, if it cannot be checked whether it lives.
        busy_seconds: How long to wait for a database that another process has locked.

    Raises:
        ContractError: *durability* is ``memory``, but files survive the end of the process.
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
        keep_private(self, self._folder)
        self._lease_seconds = lease_seconds
        self._busy_seconds = busy_seconds
        self._news = news.NewRecords(busy_seconds)

    def __repr__(self) -> str:
        return f"SQLiteJournal({str(self._folder)!r})"

    async def create(self, run_id: str) -> SQLiteRunLog:
        """Start the record of a new run.

        Raises:
            RunExists: There is a run of this name.
            JournalFailed: The record cannot be written; the message says why.
        """
        check_run_id(run_id)
        return await self._run_log(partial(self._create, run_id))

    async def open(self, run_id: str, *, steal: bool = False) -> SQLiteRunLog:
        """Take over a run, to resume it: its former owner can no longer add records.

        A run is free if its owner has released it or has ended, or if its lease has expired.

        Raises:
            RunNotFound: There is no run of this name.
            RunHeld: Another process holds the run, and *steal* is false.
            JournalDamaged: The records were changed or damaged.
            JournalFailed: The record cannot be written.
        """
        return await self._run_log(partial(self._open, run_id, steal=steal))

    async def read(self, run_id: str) -> list[Line]:
        """Return the records of a run, checked; its owner may add more meanwhile.

        Raises:
            RunNotFound: There is no run of this name.
            JournalDamaged: The records were changed or damaged.
            JournalFailed: The records cannot be read.
        """
        return await anyio.to_thread.run_sync(read_lines, self._folder, run_id, self._busy_seconds)

    async def rows_after(self, run_id: str, seq: int) -> list[StoredRow]:
        """Return the records after record *seq*; see `SupportsFollow`. Without news this costs two looks at files.

        Raises:
            RunNotFound: There is no run of this name.
            JournalDamaged: The database was changed or damaged.
            JournalFailed: The records cannot be read.
        """
        return await self._news.rows_after(self._find(run_id), seq)

    async def marks(self) -> dict[str, str]:
        """Return inode, size and last change of the files of each run; see `SupportsVersions`.

        Raises:
            JournalFailed: The folder cannot be read.
        """
        return await anyio.to_thread.run_sync(news.marks, self._folder)

    async def held(self, run_id: str) -> Held:
        """Return which process holds a run; a damaged run is held by none.

        Raises:
            RunNotFound: There is no run of this name.
        """
        return await anyio.to_thread.run_sync(held_run, self._folder, run_id, self._busy_seconds)

    async def standings(self, run_ids: Sequence[str]) -> dict[str, bytes]:
        """Return the cached summaries of runs, from a file in the folder of each; see `SupportsSummaryCache`."""
        return await anyio.to_thread.run_sync(self._standings, run_ids)

    async def keep_standing(self, run_id: str, mark: str, text: bytes) -> None:
        """Keep a text about a run in a file in its folder."""
        await anyio.to_thread.run_sync(summary_cache.keep_summary, self._find(run_id), news.state_of(mark), text)

    def artifacts(self, run_id: str) -> Path | None:
        """Return the folder for the files of a run, even if there is no such run; `None` for an invalid run id."""
        return RunPaths(self._folder / run_id).artifacts if is_run_id(run_id) else None

    async def runs(self) -> list[Held]:
        """Return all runs, in the order of their names.

        Raises:
            JournalFailed: The folder cannot be read.
        """
        return await anyio.to_thread.run_sync(self._runs)

    async def answer_key(self, run_id: str) -> str:
        """Return the secret that each answer for the run must carry: a file that only the user can read.

        Raises:
            RunNotFound: There is no run of this name.
            JournalFailed: The file cannot be read, or is not safe to use.
        """
        return await anyio.to_thread.run_sync(self._answer_key, run_id)

    async def post(self, run_id: str, text: bytes) -> None:
        """Leave a message in the inbox of a run, whether it is held or not.

        Raises:
            RunNotFound: There is no run of this name.
            JournalFailed: The message is too long, or cannot be written.
        """
        await anyio.to_thread.run_sync(lambda: inbox.post(self._find(run_id), text))

    async def delete(self, run_id: str) -> None:
        """Delete a run with all its files; it may be damaged.

        Raises:
            RunNotFound: There is no run of this name.
            RunHeld: Another process holds the run.
            JournalFailed: The files cannot be deleted.
        """
        await anyio.to_thread.run_sync(self._delete, run_id)

    async def durations(self) -> dict[str, Any]:
        """Return how long the calls of each tool took, from a file beside the folders of the runs.

        Raises:
            JournalFailed: The file is not safe to use, or cannot be read.
        """
        return (await anyio.to_thread.run_sync(summary_cache.read_durations, self._folder)).as_dict()

    async def keep_durations(self, new: dict[str, Any]) -> None:
        """Add the durations that a run has measured. If two processes do so at once, one update may be lost.

        Raises:
            JournalFailed: The file is not safe to use, or cannot be written.
            RecordRefused: *new* is not what `Durations.as_dict` returns.
        """
        durations = Durations.from_dict(new)
        await anyio.to_thread.run_sync(summary_cache.add_durations, self._folder, durations, self.durability)

    async def aclose(self) -> None:
        """Do nothing: each run log releases its own files."""

    async def _run_log(self, take: Callable[[], TakenRun]) -> SQLiteRunLog:
        # There is no `await` after this one: a cancellation cannot leave an open database behind.
        taken = await anyio.to_thread.run_sync(take)
        return SQLiteRunLog(taken, self.durability, RunPaths(self._folder / taken.run_id))

    def _create(self, run_id: str) -> TakenRun:
        self._make(run_id)
        return self._open(run_id, steal=False)

    def _make(self, run_id: str) -> None:
        """Make an empty run without an owner: all of it, or nothing."""
        run_folder.make_root(self._folder)
        paths = RunPaths(self._folder / run_id)
        new = RunPaths(run_folder.hidden_path(self._folder, "new"))
        chain = Chain(run_id)
        try:
            with database.writing(new.folder):
                new.make()
                database.create(new.database, self.durability)
                anchor.replace(new.anchor, anchor.AnchorMark(chain.seq, chain.digest, 0), self.durability).close()
            run_folder.publish(new.folder, paths)
        except BaseException:
            shutil.rmtree(new.folder, ignore_errors=True)
            raise
        if self.durability is Durability.POWER:
            run_folder.sync_folder(paths.folder)
            run_folder.sync_folder(self._folder)

    def _open(self, run_id: str, *, steal: bool) -> TakenRun:
        paths = self._find(run_id)
        paths.check()
        key = paths.read_answer_key()
        with database.reading(run_id, paths.database):
            connection = database.open_for_writing(paths.database, self.durability, self._busy_seconds)
        try:
            # The transaction keeps the former owner from adding records while they are read.
            with database.reading(run_id, paths.database):
                connection.execute("BEGIN IMMEDIATE")
                lease = self.lease_type.take(connection, run_id, self._lease_seconds, steal=steal)
                lines = _checked(run_id, connection, paths, lease.token)
            with database.writing(paths.database):
                connection.execute("COMMIT")
                chain = Chain(run_id, (line.text for line in lines))
                files = paths.identities()
                # A new file: a former owner that wakes up later writes to a file that has no name any more.
                mark = anchor.AnchorMark(chain.seq, chain.digest, lease.token)
                opened = anchor.replace(paths.anchor, mark, self.durability)
        except BaseException:
            connection.close()
            raise

        def start(notify: Callback) -> SQLiteWriter:
            return SQLiteWriter(paths, connection, lease, opened, files=files, chain=chain, notify=notify)

        return TakenRun(run_id, lines, key, start)

    def _standings(self, run_ids: Sequence[str]) -> dict[str, bytes]:
        found = (
            (run_id, summary_cache.read_summary(RunPaths(self._folder / run_id)))
            for run_id in run_ids
            if is_run_id(run_id)
        )
        return {run_id: text for run_id, text in found if text is not None}

    def _runs(self) -> list[Held]:
        return held_runs(self._folder, self._busy_seconds)

    def _delete(self, run_id: str) -> None:
        paths = self._find(run_id)
        paths.check()
        try:
            with database.reading(run_id, paths.database):
                self._fence_off(run_id, paths)
        except JournalDamaged:
            pass  # a damaged run cannot be resumed, so it needs no fence
        gone = run_folder.hidden_path(self._folder, "deleted")
        with run_folder.as_failure(f"cannot delete {paths.folder}"):
            paths.folder.rename(gone)
            shutil.rmtree(gone)

    def _fence_off(self, run_id: str, paths: RunPaths) -> None:
        """Take a new token, so that a former owner that wakes up later can write nothing."""
        connection = database.open_for_writing(paths.database, self.durability, self._busy_seconds)
        try:
            connection.execute("BEGIN IMMEDIATE")
            holder = holding(connection)
            if holder.is_held:
                raise RunHeld(held_text(run_id, holder))
            connection.execute("UPDATE lease SET token = token + 1")
            connection.execute("COMMIT")
        finally:
            connection.close()

    def _answer_key(self, run_id: str) -> str:
        paths = self._find(run_id)
        paths.check()
        return paths.read_answer_key()

    def _find(self, run_id: str) -> RunPaths:
        return find_run(self._folder, run_id)


def _checked(run_id: str, connection: sqlite3.Connection, paths: RunPaths, token: int) -> list[Line]:
    mark = anchor.read(paths.anchor)
    if mark is not None and mark.token >= token:
        raise JournalDamaged(run_id, 0, "the database is older than its anchor: it was replaced, or put back")
    return verified(run_id, connection, mark)
