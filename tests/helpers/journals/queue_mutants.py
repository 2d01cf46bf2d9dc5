"""Broken queues: each does one thing wrong with submitted runs, and the suite of journals must notice every one."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import anyio

from dagrun import MemoryJournal
from dagrun.errors import RunExists
from dagrun.journal.memory_queue import HandedRunLog, MemoryQueue
from dagrun.journal.queue import QueueStatus, QueueTicket, Wanted


class NewestFirst(MemoryQueue):
    """Claims what was submitted last."""

    async def submit(self, run_id: str, first: bytes, ticket: QueueTicket, *, connection: Any = None) -> None:
        await super().submit(run_id, first, ticket, connection=connection)
        self._submitted -= 2


class NoPriorities(MemoryQueue):
    """Claims what was submitted first, whatever its priority."""

    async def submit(self, run_id: str, first: bytes, ticket: QueueTicket, *, connection: Any = None) -> None:
        plain = QueueTicket(pool=ticket.pool, build=ticket.build, not_before=ticket.not_before)
        await super().submit(run_id, first, plain, connection=connection)
        self._rows[run_id].ticket = ticket if len(self._rows) < 2 else plain


class AnyPool(MemoryQueue):
    """Claims runs of other pools."""

    @staticmethod
    def _fits(row: Any, wanted: Wanted) -> bool:
        return row.ticket.build not in wanted.refused


class AnyBuild(MemoryQueue):
    """Claims runs that the worker has refused."""

    @staticmethod
    def _fits(row: Any, wanted: Wanted) -> bool:
        return row.ticket.pool in wanted.pools


class TooEarly(MemoryQueue):
    """Claims runs before their time."""

    async def submit(self, run_id: str, first: bytes, ticket: QueueTicket, *, connection: Any = None) -> None:
        await super().submit(run_id, first, ticket, connection=connection)
        self._rows[run_id].due = 0.0


class Deaf(MemoryQueue):
    """Lets those who wait sleep on."""

    def _ring(self) -> None:
        """Ring for nobody."""


class TakesNamesTwice(MemoryQueue):
    """Lets a second submission of a name pass for the first."""

    async def submit(self, run_id: str, first: bytes, ticket: QueueTicket, *, connection: Any = None) -> None:
        with suppress(RunExists):
            await super().submit(run_id, first, ticket, connection=connection)


class ForgetsHandOpening(MemoryQueue):
    """Notes nothing of a run that is opened."""

    def opened(self, run_log: HandedRunLog) -> None:
        """Note nothing."""


class Unanswered(MemoryQueue):
    """Leaves runs that wait where they are when a letter comes."""

    def wake(self, run_id: str) -> None:
        """Wake nothing."""


class WakesTheDead(MemoryQueue):
    """Queues a run for which a letter comes, also one that has ended."""

    def wake(self, run_id: str) -> None:
        self._rows[run_id].standing = QueueStatus.QUEUED


class MissesLetters(MemoryQueue):
    """Lets a run wait for a letter that has come."""

    def _released(self, run_log: HandedRunLog) -> None:
        super()._released(run_log)
        self._rows[run_log.run_id].standing, self._rows[run_log.run_id].reason = run_log.left.standing


class ComesBackForEver(MemoryQueue):
    """Queues a run that waits while there are letters, also those that it has seen."""

    def _released(self, run_log: HandedRunLog) -> None:
        super()._released(run_log)
        if run_log._kept.letters:  # type: ignore[attr-defined]
            self._rows[run_log.run_id].standing = QueueStatus.QUEUED


class ChoosesOverTheEnd(MemoryQueue):
    """Lets a worker choose where a run stands that has ended."""

    def _released(self, run_log: HandedRunLog) -> None:
        super()._released(run_log)
        if run_log.left.chosen is not None:
            self._rows[run_log.run_id].standing = run_log.left.chosen[0]


class HearsNoChoice(MemoryQueue):
    """Lets the last record alone say where a run stands."""

    def _released(self, run_log: HandedRunLog) -> None:
        run_log.left.chosen = None
        super()._released(run_log)


class NeverStuck(MemoryQueue):
    """Leaves runs in the queue for ever that no worker fits."""

    def _leave_unfit(self, wanted: Wanted) -> None:
        """Set nothing aside."""


class Impatient(MemoryQueue):
    """Sets runs aside at once that a worker does not fit."""

    def _unfit_at(self, row: Any, wanted: Wanted) -> float:
        return -math.inf


class Unaware(MemoryQueue):
    """Sets runs aside whose worker is busy."""

    def _unfit_at(self, row: Any, wanted: Wanted) -> float:
        return float(row.queued) + wanted.unfit_after


class CountsEachLook(MemoryQueue):
    """Takes a look of a worker that does not fit for a sign that one fits."""

    def _released(self, run_log: HandedRunLog) -> None:
        super()._released(run_log)
        self._rows[run_log.run_id].fitted = anyio.current_time()


class CannotPutBack(MemoryQueue):
    """Leaves a stuck run where it is."""

    async def put_back(self, run_id: str) -> bool:
        await super().put_back(run_id)
        self._rows[run_id].standing = QueueStatus.STUCK
        return True


class PutsBackOld(MemoryQueue):
    """Puts a run back as if it had been in the queue all the time."""

    async def put_back(self, run_id: str) -> bool:
        since = self._rows[run_id].queued if run_id in self._rows else 0.0
        try:
            return await super().put_back(run_id)
        finally:
            if run_id in self._rows:
                self._rows[run_id].queued = since


class RemembersTheDeleted(MemoryQueue):
    """Lists runs that were deleted."""

    def forget(self, run_id: str) -> None:
        """Forget nothing."""


def mutant(queue: type[MemoryQueue]) -> type[MemoryJournal]:
    """Return a journal with a broken queue."""

    def broken(journal: Any) -> MemoryQueue:
        if journal._queue is None:
            journal._queue = queue(journal)
        return journal._queue  # type: ignore[no-any-return]

    return type(queue.__name__, (MemoryJournal,), {"queue": property(broken), "__doc__": queue.__doc__})


MUTANTS = {
    each.__name__: mutant(each)
    for each in list(globals().values())
    if isinstance(each, type) and issubclass(each, MemoryQueue) and each is not MemoryQueue
}
