"""Records in a database of PostgreSQL, which many machines share."""

from __future__ import annotations

import re
import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

import anyio
import anyio.to_thread

from dagrun.decide.durations import Durations
from dagrun.errors import ContractError, JournalDamaged, JournalFailed, MissingExtra, RunExists
from dagrun.journal import anchor
from dagrun.journal import durations_file as remembered
from dagrun.journal import run_folder as places
from dagrun.journal.base import Readable, check_letter, check_run_id, is_run_id, no_such_run
from dagrun.journal.hash_chain import Chain, verify
from dagrun.journal.lease import this_process
from dagrun.journal.postgres.connections import Connections
from dagrun.journal.postgres.lease_keeper import Keeper
from dagrun.journal.postgres.loop_thread import LoopThread
from dagrun.journal.postgres.rows import LetterRows, as_bytes, fault_of_end, held_error, is_held, owner_text
from dagrun.journal.postgres.statements import Sql, keep_durations, kept_durations
from dagrun.journal.postgres.tape import PostgresTape
from dagrun.journal.postgres.writer import PostgresWriter, TapeClaim
from dagrun.model.journal import Durability, Held, Line

if TYPE_CHECKING:
    from types import TracebackType

    from asyncpg import Connection, Record

T = TypeVar("T")
_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,47}")


class PostgresJournal(Readable):
    """Keeps the records of runs in tables of PostgreSQL, for processes on many machines.

    It works in a thread with a loop of its own: on asyncio and on trio, and while a tool blocks the loop of the run.
    Each journal has up to *connections* connections and one to listen on, directly or through a pooler that keeps
    sessions. Whoever may write to the schema may answer for people and change the records; `read` and `open` see a
    record that was changed, moved or deleted, but not one whose chain and row of the run were all made anew. Nor do
    they see that the server itself was put back to an older state. With *anchors* both are seen.

    When the server is away for a moment, what was not acknowledged is sent again: it is written once, as the server
    compares where the records end. After *patience* the tape fails.

    Args:
        dsn: The database: ``postgresql://user@host/database``. Its encoding has to be UTF8.
        schema: Where the tables are; made at the first use, if they are not there.
        durability: What an acknowledged record survives. ``power``: all that the server does (its own disk, at
            least). ``process``: the end of our process and of its machine, but not that of the server: a server that
            crashes loses what was acknowledged in the half second before, and the tape that is writing then fails.
        lease_seconds: How long a process that cannot be asked keeps a run after it was last heard of, by the clock of
            the server. One on this machine is asked.
        artifacts: A folder for the files of runs, which all who go on with them share; `None` for none.
        anchors: A folder outside the database, with how far the records of each run go, which all who go on with them
            share; `None` for none. A run without an anchor is then refused as damaged.
        connections: How many are open at once, at most.
        patience: Seconds for which a server that does not answer is tried again, and for which one statement may take.

    Raises:
        ContractError: An option makes no sense.
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
        self._sql = self.sql_type(schema)
        self._links = Connections(dsn, self._sql, self.durability, most=connections, patience=patience)
        self._beside: LoopThread | None = None
        self._keeper: Keeper | None = None
        self._table = f"the table {schema}.durations"
        self._is_closed = False

    async def __aenter__(self) -> PostgresJournal:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def create(self, run_id: str) -> PostgresTape:
        """Begin the records of a new run.

        Raises:
            RunExists: There is one of this name.
            JournalFailed: It cannot be written there; the message says why.
        """
        check_run_id(run_id)
        return await self._tape(run_id, partial(self._create, run_id, token_hex(16)))

    async def open(self, run_id: str, *, steal: bool = False) -> PostgresTape:
        """Take over a run, to go on with it: its former owner cannot add to it any more.

        A run is free if its owner has let go of it, or has ended on this machine, or has not been heard of for the
        time of its lease.

        Raises:
            RunNotFound: There is none of this name.
            RunHeld: Another process holds it, and *steal* is false.
            JournalDamaged: Its records are not what was written.
            JournalFailed: It cannot be written there.
        """
        return await self._tape(run_id, partial(self._open, run_id, token_hex(16), steal))

    async def read(self, run_id: str) -> list[Line]:
        """Give the records of a run, checked; whoever holds it goes on meanwhile.

        Raises:
            RunNotFound: There is none of this name.
            JournalDamaged: Its records are not what was written.
            JournalFailed: They cannot be read.
        """
        return await self._ask(partial(self._read, run_id))

    def artifacts(self, run_id: str) -> Path | None:
        """The folder for the files of a run; `None` if the journal keeps none."""
        return None if self._artifacts is None else self._artifacts / run_id

    async def runs(self) -> list[Held]:
        """The runs that are kept, in the order of their names.

        Raises:
            JournalFailed: They cannot be read.
        """
        rows = await self._ask(lambda connection: connection.fetch(self._sql.list))
        return [Held(row["run_id"], owner_text(row), is_held(row)) for row in rows]

    async def post(self, run_id: str, text: bytes) -> None:
        """Leave a letter for a run, whoever holds it, if anybody does.

        Raises:
            RunNotFound: There is none of this name.
            JournalFailed: It is too long, or cannot be written.
        """
        letter = token_hex(16)
        check_letter(text)
        sql = self._sql
        found = await self._ask(lambda connection: connection.fetch(sql.post, run_id, letter, text, sql.channel))
        if not found:
            raise no_such_run(run_id)

    async def delete(self, run_id: str) -> None:
        """Forget a run with all that belongs to it, a damaged one, too.

        Raises:
            RunNotFound: There is none of this name.
            RunHeld: Another process holds it.
            JournalFailed: It cannot be deleted.
        """
        await self._ask(partial(self._delete, run_id, []))
        folders = [folder / run_id for folder in (self._anchors, self._artifacts) if folder is not None]
        with places.as_failure(f"cannot delete the files of run '{run_id}'"):
            for folder in filter(Path.exists, folders):
                await anyio.to_thread.run_sync(shutil.rmtree, folder)

    async def durations(self) -> dict[str, Any]:
        """How long the calls of each tool took, in the runs of all who share the database.

        Raises:
            JournalFailed: It cannot be read.
        """
        text = await self._ask(lambda connection: kept_durations(connection, self._sql))
        return remembered.understood(text, self._table).as_dict()

    async def keep_durations(self, new: dict[str, Any]) -> None:
        """Add what a run has learned of that.

        Raises:
            JournalFailed: It cannot be written.
            RecordRefused: It is not what `Durations.as_dict` gives.
        """
        learned = Durations.from_dict(new)

        def merged(text: str) -> str:
            kept = remembered.understood(text, self._table)
            kept.merge(learned)
            return remembered.as_text(kept)

        await self._ask(lambda connection: keep_durations(connection, self._sql, merged))

    async def aclose(self) -> None:
        """Let go of the connections. Tapes that are still open fail."""
        self._is_closed = True
        if self._beside is not None:
            await self._beside.aclose(self._links.aclose)

    # ------------------------------------------------------------------------------------------------------------------

    def _loop(self) -> LoopThread:
        if self._beside is None:
            if self._is_closed:
                raise JournalFailed("the journal is closed")
            self._beside = LoopThread("PostgreSQL journal")
        return self._beside

    async def _ask(self, act: Callable[[Connection], Awaitable[T]]) -> T:
        """Do *act*, which may be done twice, in the loop beside."""
        return await self._loop().call(lambda: self._links.ask(act))

    async def _tape(self, run_id: str, take: Callable[[Connection], Awaitable[_PostgresTaken]]) -> PostgresTape:
        # What may take long can be cancelled.
        await self._ask(_nothing)
        # Nothing waits between taking the run and its tape: a cancellation leaves nothing behind that is held.
        with anyio.CancelScope(shield=True):
            taken = await self._ask(take)
        post = LetterRows(self._ask, self._sql, taken.claim.number)
        return PostgresTape(
            run_id,
            self.durability,
            taken.lines,
            self.artifacts(run_id),
            post=post,
            start=partial(self._start, taken),
        )

    def _start(self, taken: _PostgresTaken, tell: Callable[[], None], knock: Callable[[], None]) -> PostgresWriter:
        beside = self._loop()
        chain = Chain(taken.claim.run_id, (line.text for line in taken.lines))
        writer = PostgresWriter(beside, self._links, taken.claim, anchor=taken.anchor, chain=chain, tell=tell)
        beside.start(partial(self._work, beside, writer, knock))
        return writer

    async def _work(self, beside: LoopThread, writer: PostgresWriter, knock: Callable[[], None]) -> None:
        """Write a tape; in the loop beside."""
        if self._keeper is None:
            self._keeper = Keeper(self._links, self._lease_seconds)
            beside.start(self._keeper.run)
        self._keeper.add(writer, knock)
        try:
            await writer.run()
        finally:
            self._keeper.remove(writer)

    async def _create(self, run_id: str, claim: str, connection: Connection) -> _PostgresTaken:
        start = Chain(run_id).digest
        async with connection.transaction(isolation="read_committed"):
            owner = this_process().encode()
            await connection.execute(self._sql.create, run_id, owner, claim, self._lease_seconds, start)
            row = await connection.fetchrow(self._sql.find, run_id)
            if row is None or row["claim"] != claim:
                raise RunExists(f"there is a run '{run_id}' in this journal already; choose another id")
            taken = TapeClaim(run_id, row["number"], row["token"], self._lease_seconds)
            # Before the commit: no run is ever without its anchor.
            opened = await self._new_files(taken, [])
        return _PostgresTaken(taken, [], opened)

    async def _open(self, run_id: str, claim: str, steal: bool, connection: Connection) -> _PostgresTaken:
        if not is_run_id(run_id):
            raise no_such_run(run_id)
        async with connection.transaction(isolation="read_committed"):
            # From here on its owner can add nothing: the records are those that the new owner gets.
            row = await connection.fetchrow(self._sql.lock, run_id)
            if row is None:
                raise no_such_run(run_id)
            if not steal and row["claim"] != claim and is_held(row):
                raise held_error(row)
            taken = TapeClaim(run_id, row["number"], row["token"] + 1, self._lease_seconds)
            mark = await self._mark(run_id)
            if mark is not None and mark.token >= taken.token:
                raise JournalDamaged(run_id, 0, "the database is older than its anchor: it was put back")
            lines = await self._verified(connection, row, mark)
            owner = this_process().encode()
            await connection.execute(self._sql.take, taken.number, taken.token, owner, claim, self._lease_seconds)
        return _PostgresTaken(taken, lines, await self._new_files(taken, lines))

    async def _read(self, run_id: str, connection: Connection) -> list[Line]:
        if not is_run_id(run_id):
            raise no_such_run(run_id)
        # Before the records: while they are read, their owner may move it on.
        mark = await self._mark(run_id)
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            row = await connection.fetchrow(self._sql.find, run_id)
            if row is None:
                raise no_such_run(run_id)
            return await self._verified(connection, row, mark)

    async def _delete(self, run_id: str, found: list[int], connection: Connection) -> None:
        async with connection.transaction(isolation="read_committed"):
            row = await connection.fetchrow(self._sql.lock, run_id) if is_run_id(run_id) else None
            if row is None and found:
                return  # it was done when the connection was lost
            if row is None:
                raise no_such_run(run_id)
            if is_held(row):
                raise held_error(row)
            found.append(row["number"])
            for statement in self._sql.forget:
                await connection.execute(statement, row["number"])

    async def _verified(self, connection: Connection, row: Record, mark: anchor.AnchorMark | None) -> list[Line]:
        """Read the records, and compare them with the row of the run, and with the anchor.

        Raises:
            JournalDamaged: They are not what was written.
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

    async def _new_files(self, claim: TapeClaim, lines: Sequence[Line]) -> anchor.Anchor | None:
        return await anyio.to_thread.run_sync(self._make_files, claim, lines)

    def _make_files(self, claim: TapeClaim, lines: Sequence[Line]) -> anchor.Anchor | None:
        for folder in (self._anchors, self._artifacts):
            if folder is not None:
                places.make_root(folder)
                places.make_root(folder / claim.run_id)
        if self._anchors is None:
            return None
        digest = lines[-1].digest if lines else Chain(claim.run_id).digest
        mark = anchor.AnchorMark(len(lines), digest, claim.token)
        with places.as_failure(f"cannot write the anchor of run '{claim.run_id}'"):
            # A new file: a former owner that wakes up later writes to one that has no name any more.
            return anchor.replace(self._anchors / claim.run_id / "anchor", mark, self.durability)


@dataclass(frozen=True, slots=True)
class _PostgresTaken:
    """A run that was taken, before it has a writer."""

    claim: TapeClaim
    lines: list[Line]
    anchor: anchor.Anchor | None


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
    """What is asked to see whether the server is there."""
