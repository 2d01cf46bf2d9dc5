"""The journal in PostgreSQL: runs of many machines in one database."""

from __future__ import annotations

import re
import shutil
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

import anyio
import anyio.to_thread

from dagrun.errors import ContractError, JournalDamaged, JournalFailed, MissingExtra, RunExists
from dagrun.journal import anchor, run_folder, summary_cache
from dagrun.journal.base import Readable, check_message, check_run_id, is_run_id, no_such_run
from dagrun.journal.hash_chain import Chain, verify
from dagrun.journal.lease import this_process
from dagrun.journal.postgres.connections import Connections
from dagrun.journal.postgres.lease_keeper import LeaseKeeper
from dagrun.journal.postgres.loop_thread import LoopThread
from dagrun.journal.postgres.run_log import PostgresRunLog
from dagrun.journal.postgres.statements import (
    Sql,
    answer_key_of,
    as_bytes,
    fault_of_end,
    held_error,
    is_held,
    keep_durations,
    kept_durations,
    opened_from_queue,
    owner_text,
    post,
)
from dagrun.journal.postgres.writer import PostgresWriter, RunLogClaim, TakenRun
from dagrun.journal.private_folders import keep_private
from dagrun.journal.write_queue import Callback
from dagrun.kernel.decide.durations import Durations
from dagrun.kernel.model.journal import Durability, Held, Line, StoredRow

if TYPE_CHECKING:
    from types import TracebackType

    from asyncpg import Connection, Record

    from dagrun.journal.postgres.queue import JournalAccess, PostgresQueue

T = TypeVar("T")
_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,47}")


class PostgresJournal(Readable):
    """Keeps the records of runs in tables of PostgreSQL, for processes on many machines.

    It works in a thread with an event loop of its own: so it works on asyncio and on trio, and while a tool blocks the
    loop of the run. Each journal has up to *connections* connections and one more to listen on, directly or through a
    pooler that keeps sessions; another pooler is refused at the first use (`JournalFailed`).

    Any client that may write to the schema may answer for people and change the records. `read` and `open` notice a
    record that was changed, moved or deleted. They do not notice a whole new chain with a new row of the run, nor a
    server that was put back to an older state; with *anchors* they notice both.

    When the server is away for a moment, records that were not acknowledged are sent again. Each is still written once,
    as the server compares where the records end. After *patience* the run log fails.

    Args:
        dsn: The database: ``postgresql://user@host/database``. Its encoding must be UTF8.
        schema: The schema of the tables; both are made at the first use, unless they exist.
        durability: What an acknowledged record survives. ``power``: whatever the server survives, at least by its own
            disk. ``process``: the end of our process and of its machine, but not a crash of the server. That loses the
            records that were acknowledged in the half second before, and the run log that is writing then fails.
        lease_seconds: How long a process keeps a run after its last renewal, by the clock of the server, if it cannot
            be checked whether it lives. A process on this machine can.
        artifacts: A folder for the files of runs, shared by all processes that may resume them; `None` for none.
        anchors: A folder outside the database for the anchors of the runs, shared by all processes that may resume
            them; `None` for none. With this folder, a run without an anchor is refused as damaged.
        connections: The most connections that are open at once.
        patience: Seconds for which a server that does not answer is tried again, and which one statement may take.

    Raises:
        ContractError: An option is invalid.
        MissingExtra: asyncpg is not installed.
    """

    sql_type: ClassVar[type[Sql]] = Sql

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "dagrun",
        durability: Durability | str = Durability.POWER,
        lease_seconds: float = 30.0,
        artifacts: Path | None = None,
        anchors: Path | None = None,
        connections: int = 4,
        patience: float = 30.0,
    ) -> None:
        if find_spec("asyncpg") is None:
            raise MissingExtra("a journal in PostgreSQL needs asyncpg: pip install 'dagrun-engine[postgres]'")
        self.durability = _checked_options(schema, durability, lease_seconds, connections, patience)
        self._lease_seconds = lease_seconds
        self._artifacts = artifacts
        self._anchors = anchors
        keep_private(self, *(folder for folder in (artifacts, anchors) if folder is not None))
        self._sql = self.sql_type(schema)
        self._connections = Connections(dsn, self._sql, self.durability, most=connections, patience=patience)
        self._loop_thread: LoopThread | None = None
        self._keeper: LeaseKeeper | None = None
        self._table = f"the table {schema}.durations"
        self._queue: PostgresQueue | None = None
        self._is_closed = False

    async def __aenter__(self) -> PostgresJournal:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def create(self, run_id: str) -> PostgresRunLog:
        """Start the record of a new run.

        Raises:
            RunExists: There is a run of this name.
            JournalFailed: The record cannot be written; the message says why.
        """
        check_run_id(run_id)
        return await self._run_log(partial(self._create, run_id, token_hex(16)))

    async def open(self, run_id: str, *, steal: bool = False) -> PostgresRunLog:
        """Take over a run, to resume it: its former owner can no longer add records.

        A run is free if its owner has released it or has ended on this machine, or if its lease has expired.

        Raises:
            RunNotFound: There is no run of this name.
            RunHeld: Another process holds the run, and *steal* is false.
            JournalDamaged: The records were changed or damaged.
            JournalFailed: The record cannot be written.
        """
        return await self._run_log(partial(self._open, run_id, token_hex(16), steal))

    async def read(self, run_id: str) -> list[Line]:
        """Return the records of a run, checked; its owner may add more meanwhile.

        Raises:
            RunNotFound: There is no run of this name.
            JournalDamaged: The records were changed or damaged.
            JournalFailed: The records cannot be read.
        """
        return await self._ask(partial(self._read, run_id))

    async def rows_after(self, run_id: str, seq: int) -> list[StoredRow]:
        """Return the records after record *seq*; see `SupportsFollow`.

        Raises:
            RunNotFound: There is no run of this name.
            JournalFailed: The records cannot be read.
        """
        return await self._ask(partial(self._rows_after, run_id, seq))

    async def marks(self) -> dict[str, str]:
        """Return the number and digest of the last record of each run; see `SupportsVersions`.

        Raises:
            JournalFailed: The runs cannot be read.
        """
        rows = await self._ask(lambda connection: connection.fetch(self._sql.list))
        return {row["run_id"]: f"{row['seq']}-{row['digest']}" for row in rows}

    async def held(self, run_id: str) -> Held:
        """Return which process holds a run.

        Raises:
            RunNotFound: There is no run of this name.
            JournalFailed: The run cannot be read.
        """
        row = await self._ask(lambda connection: connection.fetchrow(self._sql.find, run_id))
        if row is None:
            raise no_such_run(run_id)
        return Held(run_id, owner_text(row), is_held(row))

    def artifacts(self, run_id: str) -> Path | None:
        """Return the folder for the files of a run; `None` if the journal keeps none."""
        return None if self._artifacts is None else self._artifacts / run_id

    async def runs(self) -> list[Held]:
        """Return all runs, in the order of their names.

        Raises:
            JournalFailed: The runs cannot be read.
        """
        rows = await self._ask(lambda connection: connection.fetch(self._sql.list))
        return [Held(row["run_id"], owner_text(row), is_held(row)) for row in rows]

    async def newest(self) -> str | None:
        """Return the name of the run that was made last; `None` if there is none.

        Raises:
            JournalFailed: The runs cannot be read.
        """
        found: str | None = await self._ask(lambda connection: connection.fetchval(self._sql.newest))
        return found

    async def answer_key(self, run_id: str) -> str:
        """Return the secret that each answer for the run must carry: a row, readable for all users of the schema.

        Raises:
            RunNotFound: There is no run of this name.
            JournalFailed: The key cannot be read or stored.
        """
        key = await self._ask(lambda connection: answer_key_of(connection, self._sql, run_id))
        if not key:
            raise no_such_run(run_id)
        return key

    async def post(self, run_id: str, text: bytes) -> None:
        """Leave a message in the inbox of a run, whether it is held or not.

        Raises:
            RunNotFound: There is no run of this name.
            JournalFailed: The message is too long, or cannot be written.
        """
        message = token_hex(16)
        check_message(text)
        if not await self._ask(lambda connection: post(connection, self._sql, run_id, message, text)):
            raise no_such_run(run_id)

    async def delete(self, run_id: str) -> None:
        """Delete a run with all its files; it may be damaged.

        Raises:
            RunNotFound: There is no run of this name.
            RunHeld: Another process holds the run.
            JournalFailed: The run cannot be deleted.
        """
        await self._ask(partial(self._delete, run_id, []))
        folders = [folder / run_id for folder in (self._anchors, self._artifacts) if folder is not None]
        with run_folder.as_failure(f"cannot delete the files of run '{run_id}'"):
            for folder in filter(Path.exists, folders):
                await anyio.to_thread.run_sync(shutil.rmtree, folder)

    async def durations(self) -> dict[str, Any]:
        """Return how long the calls of each tool took, in the runs of all processes that share the database.

        Raises:
            JournalFailed: The durations cannot be read.
        """
        text = await self._ask(lambda connection: kept_durations(connection, self._sql))
        return summary_cache.durations_in(text, self._table).as_dict()

    async def keep_durations(self, new: dict[str, Any]) -> None:
        """Add the durations that a run has measured.

        Raises:
            JournalFailed: The durations cannot be written.
            RecordRefused: *new* is not what `Durations.as_dict` returns.
        """
        durations = Durations.from_dict(new)

        def merge(text: str) -> str:
            all_durations = summary_cache.durations_in(text, self._table)
            all_durations.merge(durations)
            return summary_cache.durations_text(all_durations)

        await self._ask(lambda connection: keep_durations(connection, self._sql, merge))

    @property
    def queue(self) -> PostgresQueue:
        """The runs that were submitted, for workers on any machine; see `dagrun.journal.queue.RunQueue`."""
        if self._queue is None:
            from dagrun.journal.postgres.queue import PostgresQueue  # here: most runs are not submitted

            self._queue = PostgresQueue(self._access())
        return self._queue

    async def wait_after(self, run_id: str, seq: int, seconds: float) -> bool:
        """Wait until the owner notifies of records of a run after *seq*; see `SupportsNotify`.

        Raises:
            RunNotFound: There is no run of this name.
            JournalFailed: The server does not answer.
        """
        from dagrun.journal.postgres.followers import Followers

        return await Followers(self._access()).wait(run_id, seq, seconds)

    async def aclose(self) -> None:
        """Close the connections. Run logs that are still open fail."""
        self._is_closed = True
        if self._loop_thread is not None:
            await self._loop_thread.aclose(self._connections.aclose)

    # ------------------------------------------------------------------------------------------------------------------

    def _access(self) -> JournalAccess:
        from dagrun.journal.postgres.queue import JournalAccess

        return JournalAccess(
            sql=self._sql,
            seconds=self._lease_seconds,
            ask=self._ask,
            records=self._locked_records,
            new_files=self._new_files,
            run_log=self._run_log_of,
            keeper=self._started_keeper,
        )

    def _thread(self) -> LoopThread:
        if self._loop_thread is None:
            if self._is_closed:
                raise JournalFailed("the journal is closed")
            self._loop_thread = LoopThread("PostgreSQL journal")
        return self._loop_thread

    async def _ask(self, act: Callable[[Connection], Awaitable[T]]) -> T:
        """Run *act* in the thread; it may be run twice, see `Connections.ask`."""
        return await self._thread().call(lambda: self._connections.ask(act))

    async def _run_log(self, take: Callable[[Connection], Awaitable[TakenRun]]) -> PostgresRunLog:
        # Reaching the server may take long, so it is done first, where it can be cancelled.
        await self._ask(_nothing)
        # Taking the run cannot be cancelled: a cancellation would leave a run that is held and has no run log.
        with anyio.CancelScope(shield=True):
            taken = await self._ask(take)
        return self._run_log_of(taken)

    def _run_log_of(self, taken: TakenRun) -> PostgresRunLog:
        claim, lines, _, key, _ = taken
        return PostgresRunLog(
            claim.run_id,
            self.durability,
            lines,
            self.artifacts(claim.run_id),
            answer_key=key,
            ask=self._ask,
            sql=self._sql,
            start=partial(self._start, taken),
        )

    def _start(self, taken: TakenRun, notify: Callback, notify_message: Callback) -> PostgresWriter:
        claim, lines, opened, _, left = taken
        thread = self._thread()
        chain = Chain(claim.run_id, (line.text for line in lines))
        writer = PostgresWriter(thread, self._connections, claim, anchor=opened, chain=chain, notify=notify, left=left)
        thread.start(partial(self._work, writer, notify_message))
        return writer

    async def _work(self, writer: PostgresWriter, notify_message: Callback) -> None:
        """Run a writer, and have its lease renewed; in the thread."""
        keeper = self._started_keeper()
        keeper.add(writer, notify_message)
        try:
            await writer.run()
        finally:
            keeper.remove(writer)

    def _started_keeper(self) -> LeaseKeeper:
        """Return the keeper, which renews leases and listens; in the thread."""
        if self._keeper is None:
            self._keeper = LeaseKeeper(self._connections, self._lease_seconds)
            self._thread().start(self._keeper.run)
        return self._keeper

    async def _create(self, run_id: str, claim: str, connection: Connection) -> TakenRun:
        start = Chain(run_id).digest
        async with connection.transaction(isolation="read_committed"):
            owner = this_process().encode()
            await connection.execute(self._sql.create, run_id, owner, claim, self._lease_seconds, start)
            row = await connection.fetchrow(self._sql.find, run_id)
            if row is None or row["claim"] != claim:
                raise RunExists(f"there is a run '{run_id}' in this journal already; choose another id")
            taken = RunLogClaim(run_id, row["number"], row["token"], self._lease_seconds)
            # Before the commit, so that no run is ever without its anchor.
            opened = await self._new_files(taken, [])
            key = await answer_key_of(connection, self._sql, run_id)
        return taken, [], opened, key, None

    async def _open(self, run_id: str, claim: str, steal: bool, connection: Connection) -> TakenRun:
        if not is_run_id(run_id):
            raise no_such_run(run_id)
        async with connection.transaction(isolation="read_committed"):
            # The lock on the row keeps the former owner from adding records while they are read.
            row = await connection.fetchrow(self._sql.lock, run_id)
            if row is None:
                raise no_such_run(run_id)
            if not steal and row["claim"] != claim and is_held(row):
                raise held_error(row)
            taken = RunLogClaim(run_id, row["number"], row["token"] + 1, self._lease_seconds)
            lines = await self._locked_records(connection, row, taken)
            owner = this_process().encode()
            await connection.execute(self._sql.take, taken.number, taken.token, owner, claim, self._lease_seconds)
            key = await answer_key_of(connection, self._sql, run_id)
            left = await opened_from_queue(connection, self._sql, taken.number, lines)
        return taken, lines, await self._new_files(taken, lines), key, left

    async def _locked_records(self, connection: Connection, row: Record, claim: RunLogClaim) -> list[Line]:
        """Return the records of a run whose row is locked, for a new owner.

        Raises:
            JournalDamaged: The records were changed or damaged.
        """
        mark = await self._mark(claim.run_id)
        if mark is not None and mark.token >= claim.token:
            raise JournalDamaged(claim.run_id, 0, "the database is older than its anchor: it was put back")
        return await self._verified(connection, row, mark)

    async def _read(self, run_id: str, connection: Connection) -> list[Line]:
        if not is_run_id(run_id):
            raise no_such_run(run_id)
        # The anchor is read before the records: the owner may move it while they are read.
        mark = await self._mark(run_id)
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            row = await connection.fetchrow(self._sql.find, run_id)
            if row is None:
                raise no_such_run(run_id)
            return await self._verified(connection, row, mark)

    async def _rows_after(self, run_id: str, seq: int, connection: Connection) -> list[StoredRow]:
        row = await connection.fetchrow(self._sql.find, run_id) if is_run_id(run_id) else None
        if row is None:
            raise no_such_run(run_id)
        if row["seq"] <= seq:
            return []
        rows = await connection.fetch(self._sql.records_after, row["number"], seq)
        return [(number, as_bytes(text), digest) for number, text, digest in rows]

    async def _delete(self, run_id: str, deleted: list[int], connection: Connection) -> None:
        """Delete the rows of a run, and note its number in *deleted*, which a second try looks at."""
        async with connection.transaction(isolation="read_committed"):
            row = await connection.fetchrow(self._sql.lock, run_id) if is_run_id(run_id) else None
            if row is None and deleted:
                return  # the first try had succeeded when the connection was lost
            if row is None:
                raise no_such_run(run_id)
            if is_held(row):
                raise held_error(row)
            deleted.append(row["number"])
            for statement in self._sql.forget:
                await connection.execute(statement, row["number"])

    async def _verified(self, connection: Connection, row: Record, mark: anchor.AnchorMark | None) -> list[Line]:
        """Return the records, compared with the row of the run and with the anchor.

        Raises:
            JournalDamaged: The records were changed or damaged.
        """
        run_id = row["run_id"]
        rows = await connection.fetch(self._sql.records, row["number"])
        lines, fault = verify(run_id, ((seq, as_bytes(text), digest) for seq, text, digest in rows))
        fault = fault or fault_of_end(run_id, lines, row["seq"], row["digest"])
        if self._anchors is not None:
            fault = fault or anchor.check(lines, mark)
        if fault is not None:
            raise JournalDamaged(run_id, fault.seq, fault.reason)
        return lines

    async def _mark(self, run_id: str) -> anchor.AnchorMark | None:
        if self._anchors is None:
            return None
        return await anyio.to_thread.run_sync(anchor.read, self._anchors / run_id / "anchor")

    async def _new_files(self, claim: RunLogClaim, lines: Sequence[Line]) -> anchor.Anchor | None:
        return await anyio.to_thread.run_sync(self._make_files, claim, lines)

    def _make_files(self, claim: RunLogClaim, lines: Sequence[Line]) -> anchor.Anchor | None:
        for folder in (self._anchors, self._artifacts):
            if folder is not None:
                run_folder.make_root(folder)
                run_folder.make_root(folder / claim.run_id)
        if self._anchors is None:
            return None
        digest = lines[-1].digest if lines else Chain(claim.run_id).digest
        mark = anchor.AnchorMark(len(lines), digest, claim.token)
        with run_folder.as_failure(f"cannot write the anchor of run '{claim.run_id}'"):
            # A new file: a former owner that wakes up later writes to a file that has no name any more.
            return anchor.replace(self._anchors / claim.run_id / "anchor", mark, self.durability)


def _checked_options(
    schema: str, durability: Durability | str, lease_seconds: float, connections: int, patience: float
) -> Durability:
    if _SCHEMA.fullmatch(schema) is None:
        raise ContractError(
            f"'{schema}' cannot be the schema of a journal: use 1 to 48 of the letters a-z, digits and '_', the first "
            "of them no digit"
        )
    if lease_seconds <= 0 or patience <= 0 or connections < 1:
        raise ContractError("lease_seconds and patience are more than 0, and connections at least 1")
    level = Durability(durability)
    if level is Durability.MEMORY:
        raise ContractError("a journal in a database is durable as 'process' or 'power'; see MemoryJournal for memory")
    return level


async def _nothing(_: Connection) -> None:
    """Ask nothing: the connection that this needs shows whether the server can be reached."""
