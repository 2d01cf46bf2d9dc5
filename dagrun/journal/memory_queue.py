"""The submitted runs of a journal in memory, for workers on one event loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final, Protocol

import anyio

from dagrun.errors import ContractError
from dagrun.journal.base import no_such_run
from dagrun.journal.queue import ClaimedRunLog, QueuedRun, QueueStatus, QueueTicket, Release, Wanted, ended_at_it
from dagrun.kernel.model.journal import Held

_OPEN: Final = (QueueStatus.QUEUED, QueueStatus.RUNNING)


class HandedRunLog(ClaimedRunLog, Protocol):
    """A run log of the journal, as its queue sees it."""

    left: Release
    on_release: Callable[[Any], None] | None

    @property
    def last_text(self) -> bytes:
        """The last record that is kept."""
        ...

    @property
    def has_unread_messages(self) -> bool:
        """Whether there are messages that were not returned yet."""
        ...


class KeptRuns(Protocol):
    """The journal, as its queue sees it."""

    async def create(self, run_id: str) -> HandedRunLog:
        """Start the record of a new run."""
        ...

    async def open(self, run_id: str) -> HandedRunLog:
        """Take over a run."""
        ...

    async def runs(self) -> list[Held]:
        """Return all runs."""
        ...


@dataclass(slots=True)
class _Row:
    """A submitted run.

    Attributes:
        ticket: How it is queued.
        due: When it may be claimed, by the clock of the loop.
        number: How many runs were submitted before.
        queued: Since when it is in the queue, by the clock of the loop; not before it is due.
        fitted: When a worker that fits it released it, by the clock of the loop.
    """

    ticket: QueueTicket
    due: float
    number: int
    queued: float
    fitted: float = -math.inf
    standing: QueueStatus = QueueStatus.QUEUED
    takeovers: int = 0
    reason: str = ""


class MemoryQueue:
    """The submitted runs; see `dagrun.journal.queue.RunQueue`.

    A run has no lease here: one that is ``running`` is claimed when no run log holds it.

    Args:
        journal: The journal that they are in.
    """

    def __init__(self, journal: KeptRuns) -> None:
        self._journal = journal
        self._rows: dict[str, _Row] = {}
        self._submitted = 0
        self._news = anyio.Event()

    async def submit(self, run_id: str, first: bytes, ticket: QueueTicket, *, connection: Any = None) -> None:
        """Create a run without an owner, and queue it; see `RunQueue.submit`.

        Raises:
            RunExists: There is already a run with this id.
            ContractError: A connection is given: memory has no transactions.
        """
        if connection is not None:
            raise ContractError("a journal in memory has no transactions: leave out connection=…")
        run_log = await self._journal.create(run_id)
        run_log.append(first)
        await run_log.aclose()
        # Not before `time` says so; on the clock of the loop, which may be virtual.
        due = anyio.current_time() + max(0.0, ticket.not_before - time.time())
        self._rows[run_id] = _Row(ticket, due, self._submitted, due)
        self._submitted += 1
        self._ring()

    async def claim(self, wanted: Wanted) -> HandedRunLog | None:
        """Take over one claimable run; see `RunQueue.claim`."""
        self._leave_unfit(wanted)
        while (run_id := await self._next(wanted)) is not None:
            row = self._rows[run_id]
            takeovers = row.takeovers + (row.standing is QueueStatus.RUNNING)
            if takeovers > wanted.max_takeovers:
                row.standing, row.reason = QueueStatus.STUCK, ended_at_it(row.takeovers)
                continue
            run_log = await self._journal.open(run_id)
            row.takeovers = run_log.left.takeovers_before = takeovers
            return run_log
        return None

    async def wait(self, wanted: Wanted) -> None:
        """Wait until there may be something to claim; see `RunQueue.wait`."""
        dues = [row.due for row in self._rows.values() if self._fits(row, wanted) and row.standing in _OPEN]
        dues += [self._unfit_at(row, wanted) for row in self._rows.values() if self._is_refused(row, wanted)]
        later = [due for due in dues if anyio.current_time() < due < math.inf]
        if await self._next(wanted) is None:
            with anyio.move_on_after(min(later) - anyio.current_time() if later else None):
                await self._news.wait()

    async def runs(self, standings: Collection[QueueStatus] = ()) -> list[QueuedRun]:
        """Return the submitted runs; see `RunQueue.runs`."""
        held = {each.run_id: each for each in await self._journal.runs()}
        return [
            QueuedRun(
                run_id=run_id,
                standing=row.standing,
                ticket=row.ticket,
                takeovers=row.takeovers,
                reason=row.reason,
                queued=time.time() - (anyio.current_time() - row.queued),
                owner=held[run_id].owner,
            )
            for run_id, row in self._rows.items()
            if not standings or row.standing in standings
        ]

    async def put_back(self, run_id: str) -> bool:
        """Queue a run again that waits or is stuck; see `RunQueue.put_back`."""
        row = self._rows.get(run_id)
        if row is None:
            raise no_such_run(run_id)
        if row.standing not in (QueueStatus.WAITING, QueueStatus.STUCK):
            return False
        row.standing, row.reason, row.takeovers = QueueStatus.QUEUED, "", 0
        row.queued = anyio.current_time()
        self._ring()
        return True

    # For the journal --------------------------------------------------------------------------------------

    def opened(self, run_log: HandedRunLog) -> None:
        """Note that a run is in progress, whether claimed or opened by hand."""
        row = self._rows.get(run_log.run_id)
        if row is not None:
            run_log.left = Release(takeovers_before=row.takeovers)
            row.standing, row.reason = QueueStatus.RUNNING, ""
            run_log.on_release = self._released

    def wake(self, run_id: str) -> None:
        """Put a waiting run back into the queue: a message has arrived."""
        row = self._rows.get(run_id)
        if row is not None and row.standing is QueueStatus.WAITING:
            row.standing, row.reason, row.queued = QueueStatus.QUEUED, "", anyio.current_time()
            self._ring()

    def forget(self, run_id: str) -> None:
        """Forget a run that was deleted."""
        self._rows.pop(run_id, None)

    def _released(self, run_log: HandedRunLog) -> None:
        row, left = self._rows[run_log.run_id], run_log.left
        left.last = run_log.last_text
        (row.standing, row.reason), row.takeovers = left.standing, left.takeovers
        if row.standing is QueueStatus.WAITING and run_log.has_unread_messages:
            row.standing, row.reason = QueueStatus.QUEUED, ""
        if not left.is_untouched:
            row.queued = row.fitted = anyio.current_time()
        self._ring()

    def _ring(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    async def _next(self, wanted: Wanted) -> str | None:
        held = {each.run_id for each in await self._journal.runs() if each.is_held}
        now, rows = anyio.current_time(), self._rows
        free = [
            run_id
            for run_id, row in rows.items()
            if row.standing in _OPEN and row.due <= now and run_id not in held and self._fits(row, wanted)
        ]
        return min(free, key=lambda run_id: (-rows[run_id].ticket.priority, rows[run_id].number), default=None)

    def _leave_unfit(self, wanted: Wanted) -> None:
        """Note why runs of refused builds do not fit, and mark those as stuck that no worker fits."""
        for row in self._rows.values():
            if self._is_refused(row, wanted):
                row.reason = wanted.refused[row.ticket.build]
                if self._unfit_at(row, wanted) <= anyio.current_time():
                    row.standing = QueueStatus.STUCK

    def _unfit_at(self, row: _Row, wanted: Wanted) -> float:
        """Return the time at which a run of a refused build is stuck, if no worker takes a run of its build before."""
        kin = [each for each in self._rows.values() if self._are_kin(each, row)]
        if any(each.standing is QueueStatus.RUNNING for each in kin):
            return math.inf  # a worker that fits it has something to do; its release is news
        return max(row.queued, *(each.fitted for each in kin)) + wanted.unfit_after

    @staticmethod
    def _is_refused(row: _Row, wanted: Wanted) -> bool:
        is_left = row.standing is QueueStatus.QUEUED and row.ticket.build in wanted.refused
        return is_left and row.ticket.pool in wanted.pools

    @staticmethod
    def _are_kin(one: _Row, two: _Row) -> bool:
        return (one.ticket.pool, one.ticket.build) == (two.ticket.pool, two.ticket.build)

    @staticmethod
    def _fits(row: _Row, wanted: Wanted) -> bool:
        return row.ticket.pool in wanted.pools and row.ticket.build not in wanted.refused
