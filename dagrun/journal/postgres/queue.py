"""The submitted runs of a journal in PostgreSQL."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import anyio
import anyio.lowlevel
from anyio.lowlevel import current_token

from dagrun.errors import ContractError, JournalDamaged, JournalFailed, RunExists
from dagrun.journal.base import check_run_id, new_answer_key, no_such_run
from dagrun.journal.hash_chain import Chain
from dagrun.journal.lease import this_process
from dagrun.journal.postgres.queue_statements import release
from dagrun.journal.postgres.run_log import PostgresRunLog
from dagrun.journal.postgres.statements import make_queue, owner_text
from dagrun.journal.postgres.writer import RunLogClaim
from dagrun.journal.queue import (
    LATEST,
    ClaimBackoff,
    Entry,
    QueuedRun,
    QueueStatus,
    QueueTicket,
    Release,
    Wanted,
    ended_at_it,
    left_out,
    read_standing,
)
from dagrun.kernel.model.journal import Line
from dagrun.kernel.runtime.backend import call_soon

if TYPE_CHECKING:
    from asyncpg import Connection, Record

    from dagrun.journal.anchor import Anchor
    from dagrun.journal.postgres.lease_keeper import LeaseKeeper
    from dagrun.journal.postgres.statements import Sql
    from dagrun.journal.postgres.writer import TakenRun

T = TypeVar("T")
_WITHOUT_NEWS: Final = 1.0  # seconds until the next look, where no connection listens
_SOONEST: Final = 0.05  # seconds: a row that another claim has locked is due now, and cannot be had


class _Ask(Protocol):
    async def __call__(self, act: Callable[[Connection], Awaitable[T]]) -> T: ...


@dataclass(frozen=True, slots=True)
class JournalAccess:
    """The parts of a journal that its queue uses.

    Attributes:
        sql: The statements.
        seconds: How long a lease lasts.
        ask: Runs something with a connection, in the thread of the journal; perhaps twice.
        records: Returns the records of a run whose row is locked, for a new owner.
        new_files: Makes the files of a run beside the database.
        run_log: Makes the run log of a run that was taken.
        keeper: Returns what listens; only in the thread.
    """

    sql: Sql
    seconds: float
    ask: _Ask
    records: Callable[[Connection, Record, RunLogClaim], Awaitable[list[Line]]]
    new_files: Callable[[RunLogClaim, Sequence[Line]], Awaitable[Anchor | None]]
    run_log: Callable[[TakenRun], PostgresRunLog]
    keeper: Callable[[], LeaseKeeper]


class PostgresQueue:
    """The submitted runs; see `dagrun.journal.queue.RunQueue`.

    Args:
        journal: What the journal lends.

    Attributes:
        schema: The schema of the tables.
    """

    def __init__(self, journal: JournalAccess) -> None:
        self.schema = journal.sql.schema
        self._journal = journal
        self._sql = journal.sql.queue
        self._is_there = False
        self._put_off = ClaimBackoff()  # used in the thread of the journal only
        self._left_builds: tuple[str, ...] = ()
        self._leave_next = 0.0

    async def submit(self, run_id: str, first: bytes, ticket: QueueTicket, *, connection: Any = None) -> None:
        """Create a run without an owner, and queue it; see `RunQueue.submit`.

        Args:
            run_id: The run.
            first: Its first record.
            ticket: How it is queued.
            connection: A connection of asyncpg, on the loop of the caller; the run is there when its transaction is
                committed. `None` for a transaction of its own.

        Raises:
            RunExists: There is already a run with this id.
            JournalFailed: It cannot be written.
            ContractError: The connection is none of asyncpg.
        """
        check_run_id(run_id)
        chain, claim = Chain(run_id), token_hex(16)
        chain.add(first)
        line = Line(1, first, chain.digest)
        when = (ticket.pool, ticket.build, ticket.priority, ticket.not_before)
        values = (run_id, claim, chain.digest, first.decode(), new_answer_key(), *when, self._sql.channel)
        if connection is not None:
            if not _is_asyncpg(connection):
                raise ContractError(f"connection is a connection of asyncpg, got {type(connection).__name__}")
            await self._ask(_nothing)  # the table must exist before the transaction of the caller uses it
            is_new = await self._submit(values, line, connection)
        else:
            is_new = await self._ask(partial(self._submit, values, line))
        if not is_new:
            raise RunExists(f"there is a run '{run_id}' in this journal already; choose another id")

    async def claim(self, wanted: Wanted) -> PostgresRunLog | None:
        """Take over one claimable run; see `RunQueue.claim`."""
        claim, may_have_taken = token_hex(16), False
        failure: JournalFailed | None = None
        await self._ask(_nothing)  # as `PostgresJournal` does: reaching the server can be cancelled
        await self._leave_unfit(wanted)

        async def act(connection: Connection) -> TakenRun | str | JournalFailed | None:
            nonlocal may_have_taken
            is_retry, may_have_taken = may_have_taken, True
            return await self._claim(wanted, claim, connection, is_retry=is_retry)

        while True:
            with anyio.CancelScope(shield=True):
                taken = await self._ask(act)
                if isinstance(taken, tuple):
                    return self._journal.run_log(taken)
            if isinstance(taken, JournalFailed):
                failure = taken  # of its own files, perhaps: the others go on
            elif taken is None and failure is not None:
                raise failure
            elif taken is None:
                return None
            await anyio.lowlevel.checkpoint()  # a long row of those that were set aside or put off can be cancelled

    async def wait(self, wanted: Wanted) -> None:
        """Wait until there may be something to claim; see `RunQueue.wait`."""
        loop, news = current_token(), anyio.Event()

        def notify(pool: str | None) -> None:
            if pool is None or pool in wanted.pools:
                call_soon(loop, news.set)

        keepers: list[LeaseKeeper] = []

        async def look(connection: Connection) -> float:
            if not keepers:  # before the look: what is queued after it rings
                keepers.append(self._journal.keeper())
                keepers[0].listen(notify)
            return await self._seconds_until_due(wanted, connection, is_told=keepers[0].is_listening)

        try:
            with anyio.move_on_after(await self._ask(look)):
                await news.wait()
        finally:
            for keeper in keepers:
                keeper.unlisten(notify)

    async def runs(self, standings: Collection[QueueStatus] = ()) -> list[QueuedRun]:
        """Return the submitted runs; see `RunQueue.runs`."""
        others = left_out(standings)
        rows = await self._ask(lambda connection: connection.fetch(self._sql.list, others))
        return [run for run in map(_queued, rows) if not standings or run.standing in standings]

    async def put_back(self, run_id: str) -> bool:
        """Queue a run again that waits or is stuck; see `RunQueue.put_back`."""
        return await self._ask(partial(self._put_back, run_id))

    async def _ask(self, act: Callable[[Connection], Awaitable[T]]) -> T:
        async def prepared(connection: Connection) -> T:
            if not self._is_there:
                await make_queue(connection, self._journal.sql)
                self._is_there = True
            return await act(connection)

        return await self._journal.ask(prepared)

    async def _seconds_until_due(self, wanted: Wanted, connection: Connection, *, is_told: bool) -> float:
        left = self._put_off.left()
        due = await connection.fetchval(self._sql.next_due, *_filter(wanted, left))
        dues = [*left.values(), *([] if due is None else [float(due)])]
        return max(_SOONEST, min([*dues, LATEST if is_told else _WITHOUT_NEWS]))

    async def _submit(self, values: tuple[Any, ...], line: Line, connection: Connection) -> bool:
        """Create and queue a run, in a part of the transaction that is open, if there is one; whether it is ours."""
        run_id = values[0]
        async with connection.transaction():
            if await connection.fetch(self._sql.submit, *values):
                # Before the commit, so that no run is ever without its anchor, and no other run loses its own.
                opened = await self._journal.new_files(RunLogClaim(run_id, 0, 1, 0.0), [line])
                if opened is not None:
                    opened.close()
                return True
        # An earlier try may have succeeded, whose answer was lost with its connection.
        return bool(await connection.fetchval(self._sql.is_ours, *values[:2]))

    async def _leave_unfit(self, wanted: Wanted) -> None:
        """Note why runs of refused builds do not fit; mark those as stuck that no worker fits; not at each claim."""
        now, builds = anyio.current_time(), tuple(wanted.refused)
        if not builds or (builds == self._left_builds and now < self._leave_next):
            return
        self._left_builds, self._leave_next = builds, now + min(LATEST, wanted.unfit_after / 10)
        values = (list(wanted.pools), list(builds), list(wanted.refused.values()), wanted.unfit_after)
        await self._ask(lambda connection: connection.execute(self._sql.leave_unfit, *values))

    async def _claim(
        self, wanted: Wanted, claim: str, connection: Connection, *, is_retry: bool
    ) -> TakenRun | str | JournalFailed | None:
        """Claim a run; or return why the next one was set aside, why it is put off, or `None` if there is none."""
        sql, journal = self._sql, self._journal
        async with connection.transaction(isolation="read_committed"):
            row = await connection.fetchrow(sql.find_claimed, claim) if is_retry else None
            if row is None:
                row = await connection.fetchrow(sql.find_next, *_filter(wanted, self._put_off.left()))
            if row is None:
                return None
            entry = row["number"], row["queued"]
            takeovers = row["takeovers"] + row["is_takeover"]
            try:
                if takeovers > wanted.max_takeovers:
                    return await self._set_aside(connection, row, ended_at_it(row["takeovers"]))
                taken = RunLogClaim(row["run_id"], row["number"], row["token"] + 1, journal.seconds)
                lines = await journal.records(connection, row, taken)
            except JournalDamaged as error:
                return await self._set_aside(connection, row, str(error))
            except JournalFailed as error:  # of this machine, like those below
                await connection.execute(sql.say_why, row["number"], str(error))
                self._put_off.add(entry)
                return error
            owner = this_process().encode()
            await connection.execute(sql.take, taken.number, taken.token, owner, claim, taken.seconds, takeovers)
            key = await connection.fetchval(journal.sql.answer_key, row["run_id"])
        left = Release(lines[-1].text if lines else b"", takeovers)
        try:
            anchor = await journal.new_files(taken, lines)
        except JournalFailed as error:  # of this machine: the run is for a worker with a folder for its files
            left.leave(QueueStatus.QUEUED, str(error), is_untouched=True)
            await release(connection, sql, (taken.number, taken.token), left, [])
            self._put_off.add(entry)
            return error
        self._put_off.forget(entry)
        return taken, lines, anchor, str(key or ""), left

    async def _set_aside(self, connection: Connection, row: Record, reason: str) -> str:
        await connection.execute(self._sql.set_aside, row["number"], reason)
        return reason

    async def _put_back(self, run_id: str, connection: Connection) -> bool:
        async with connection.transaction(isolation="read_committed"):
            standing = await connection.fetchval(self._sql.find, run_id)
            if standing is None:
                raise no_such_run(run_id)
            if standing not in (QueueStatus.WAITING, QueueStatus.STUCK):
                return False
            await connection.execute(self._sql.put_back, run_id, self._sql.channel)
        return True


def _filter(wanted: Wanted, left: Collection[Entry]) -> tuple[list[Any], ...]:
    """Return the parameters of the statements that find claimable runs."""
    return list(wanted.pools), list(wanted.refused), [run for run, _ in left], [queued for _, queued in left]


def _is_asyncpg(connection: Any) -> bool:
    import asyncpg

    return isinstance(connection, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy)


def _queued(row: Record) -> QueuedRun:
    ticket = QueueTicket(pool=row["pool"], build=row["build"], priority=row["priority"], not_before=row["not_before"])
    standing, reason = read_standing(row["standing"], row["reason"])
    return QueuedRun(
        run_id=row["run_id"],
        standing=standing,
        ticket=ticket,
        takeovers=row["takeovers"],
        reason=reason,
        queued=row["queued"],
        owner=owner_text(row),
    )


async def _nothing(_: Connection) -> None:
    """Ask nothing; see `dagrun.journal.postgres.journal`."""
