"""The `Queues` protocol: runs that are submitted by one process, and carried out by whichever worker claims them.

A submitted run is a run with its first record and no owner, and a row that says where it stands. The row has no lease
of its own: whether somebody carries the run out is known from the lease of the run alone.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from dagrun.codec import decode_event
from dagrun.errors import short_repr, shorten
from dagrun.kernel.model.event import RunEnded, RunSuspended
from dagrun.kernel.model.journal import RunLog
from dagrun.kernel.model.outcome import Status

_FIRST_PAUSE: Final = 1.0  # seconds; each pause is twice as long as the one before, and at most `LATEST`
LATEST: Final = 60.0
_MOST_KNOWN: Final = 1_000

# A row of a queue, and since when it is in the queue.
Entry: TypeAlias = tuple[Any, Any]


class QueueStatus(StrEnum):
    """The status of a submitted run in its queue; workers claim queued runs alone."""

    QUEUED = "queued"  # a worker may claim it
    RUNNING = "running"  # a worker has claimed it; if the lease of the run expires, another may
    WAITING = "waiting"  # a message puts it back into the queue
    ENDED = "ended"
    STUCK = "stuck"  # no worker claims it any more, until somebody puts it back
    UNREADABLE = "unreadable"  # its row has another word, as of a newer version; workers leave it alone


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTicket:
    """How a run is queued.

    Attributes:
        pool: The workers that may claim it.
        build: Names the contracts of the tools that the run needs; a worker refuses builds that it does not fit.
        priority: Runs of a higher one are claimed first; of equal ones, the one that was submitted first.
        not_before: When it may be claimed, in seconds since 1970.
    """

    pool: str = "default"
    build: str = ""
    priority: int = 0
    not_before: float = 0.0

    __repr__ = short_repr


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedRun:
    """A submitted run, as lists show it.

    Attributes:
        run_id: The run.
        standing: Where it stands.
        ticket: How it is queued.
        takeovers: How often it was claimed because the lease of its worker had expired, since it was last released.
        reason: Why it stands there, in words; empty if there is nothing to say.
        owner: The process that holds it, in words; empty if there is none.
        queued: Since when it is in the queue, or when it was put there last, in seconds since 1970.
    """

    run_id: str
    standing: QueueStatus
    ticket: QueueTicket
    takeovers: int = 0
    reason: str = ""
    owner: str = ""
    queued: float = 0.0

    __repr__ = short_repr

    def as_dict(self) -> dict[str, Any]:
        """Return where it stands as plain JSON."""
        return {
            "status": str(self.standing),
            "standing": str(self.standing),  # its name in 0.2; removed in 0.4
            "pool": self.ticket.pool,
            "priority": self.ticket.priority,
            "not_before": self.ticket.not_before or None,
            "takeovers": self.takeovers,
            "owner": self.owner or None,
            "queued": self.queued,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The claim conditions of a worker.

    Attributes:
        pools: The pools that it works for.
        refused: The builds that it does not fit, and what differs.
        max_takeovers: How often a run is taken over; after one more, it is stuck: it probably kills its workers.
        unfit_after: Seconds after which a run of a refused build is stuck, if it has been in the queue for so long, and
            no run of its build and pool was carried out in this time: no worker fits it.
    """

    pools: Sequence[str] = ("default",)
    refused: Mapping[str, str] = field(default_factory=dict)
    max_takeovers: int = 3
    unfit_after: float = 3600.0

    __repr__ = short_repr


class ClaimedRunLog(RunLog, Protocol):
    """The run log of a claimed run. When it is closed, the run is released, and its queue status written.

    The standing follows from the last record: a run that has ended is ``ended``, one that was suspended for people
    ``waiting``, any other ``queued``. A run that would be waiting is queued if a message has come that it has not seen.
    """

    def leave(self, standing: QueueStatus, reason: str, *, is_untouched: bool = False) -> None:
        """Choose the queue status for when the run log is closed, unless its last record is the end of the run.

        Args:
            standing: The standing.
            reason: Why, in words.
            is_untouched: Whether the run was only looked at: its takeovers, and since when it is in the queue, stay as
                they were before the claim.
        """
        ...


class RunQueue(Protocol):
    """The submitted runs of a journal: they are added by `dagrun.submit`, and claimed by workers."""

    async def submit(self, run_id: str, first: bytes, ticket: QueueTicket, *, connection: Any = None) -> None:
        """Create a run without an owner, write its first record, and queue it: all of it, or nothing.

        Args:
            run_id: The run.
            first: Its first record.
            ticket: How it is queued.
            connection: A connection of the caller to the same database, in whose transaction this is done.

        Raises:
            RunExists: There is already a run with this id.
            JournalFailed: It cannot be written.
            ContractError: The journal cannot use such a connection.
        """
        ...

    async def claim(self, wanted: Wanted) -> ClaimedRunLog | None:
        """Take over one claimable run; `None` if there is none now.

        That is a run that is ``queued``, or ``running`` though its lease has expired. No two claims get the same run. A
        run whose record is damaged, or that was taken over too often, becomes ``stuck``, and the next one is claimed.
        Runs of refused builds are left to others, with what differs as the reason, and become ``stuck`` when no worker
        fits them; see `Wanted`. That may be up to a minute late. A run whose row is locked at that moment, by another
        claim or by a renewal of its lease, is not waited for: `wait` returns soon.

        Raises:
            JournalFailed: The store does not answer.
        """
        ...

    async def wait(self, wanted: Wanted) -> None:
        """Wait until there may be something to claim: a run was queued, is due, or its lease has expired."""
        ...

    async def runs(self, standings: Collection[QueueStatus] = ()) -> list[QueuedRun]:
        """Return the submitted runs, all or with some statuses, in the order in which they were submitted."""
        ...

    async def put_back(self, run_id: str) -> bool:
        """Queue a run again that waits or is stuck, and forget its takeovers; return whether that was so.

        Raises:
            RunNotFound: No such run was submitted.
        """
        ...


@runtime_checkable
class Queues(Protocol):
    """A journal to which runs can be submitted. This is optional."""

    @property
    def queue(self) -> RunQueue:
        """The submitted runs."""
        ...


def read_standing(word: str, reason: str) -> tuple[QueueStatus, str]:
    """Return the queue status in a row, and its reason; one invalid row must not hide all others."""
    for standing in QueueStatus:
        if standing == word:
            return standing, reason
    return QueueStatus.UNREADABLE, f"its row says {shorten(str(word))!r}, which this version of dagrun does not know"


def left_out(standings: Collection[str]) -> list[str]:
    """Return the words of rows that are not asked for; others may be there that no version has a word for here."""
    return [str(standing) for standing in QueueStatus if standings and standing not in standings]


def standing_after(text: bytes) -> tuple[QueueStatus, str]:
    """Return where a run stands that is released after the record *text*, and why.

    A record that cannot be read says nothing: the worker that claims the run finds the fault.
    """
    try:
        match decode_event(text):
            case RunEnded(status=status):
                return QueueStatus.ENDED, str(status)
            case RunSuspended(status=Status.WAITING, reason=reason):
                return QueueStatus.WAITING, reason
            case _:
                return QueueStatus.QUEUED, ""
    except ValueError:
        return QueueStatus.QUEUED, ""


def ended_at_it(takeovers: int) -> str:
    """Return why a run is stuck after the last takeover that is allowed."""
    return "1 worker has ended while at it" if takeovers == 0 else f"{takeovers + 1} workers have ended while at it"


class ClaimBackoff:
    """Runs that could not be opened here, with a back-off of 1, 2, 4 … 60 seconds before the next try.

    They are known by their row, and since when they are in the queue: one that was put back is tried at once.
    """

    def __init__(self) -> None:
        self._tried: dict[Entry, tuple[float, float]] = {}  # when it is tried again, by the monotonic clock; the pause

    def add(self, entry: Entry) -> None:
        """Put off a run that could not be opened, each time for longer."""
        now = time.monotonic()
        if len(self._tried) > _MOST_KNOWN:  # others have opened those that were not tried again, or they are gone
            self._tried = {each: (due, pause) for each, (due, pause) in self._tried.items() if due + LATEST > now}
        pause = min(2 * self._tried[entry][1], LATEST) if entry in self._tried else _FIRST_PAUSE
        self._tried[entry] = now + pause, pause

    def forget(self, entry: Entry) -> None:
        """Forget a run: it was opened."""
        self._tried.pop(entry, None)

    def left(self) -> dict[Entry, float]:
        """Return the runs that are left alone now, and for how many seconds."""
        now = time.monotonic()
        return {entry: due - now for entry, (due, _) in self._tried.items() if due > now}


@dataclass(slots=True)
class Release:
    """How a claimed run is released.

    Attributes:
        last: The last record; empty if there is none.
        takeovers_before: The takeovers so far, the claim's included: who only looks at a run does not undo it.
        chosen: The standing that the worker has chosen, and why.
        takeovers: The takeovers after the release.
        is_untouched: Whether the run was only looked at.
    """

    last: bytes = b""
    takeovers_before: int = 0
    chosen: tuple[QueueStatus, str] | None = None
    takeovers: int = 0
    is_untouched: bool = False

    def leave(self, standing: QueueStatus, reason: str, *, is_untouched: bool = False) -> None:
        """Choose a queue status; see `ClaimedRunLog.leave`."""
        self.chosen = standing, reason
        self.takeovers = self.takeovers_before if is_untouched else 0
        self.is_untouched = is_untouched

    @property
    def standing(self) -> tuple[QueueStatus, str]:
        """Where the run stands after the release, and why."""
        recorded = standing_after(self.last)
        return recorded if recorded[0] is QueueStatus.ENDED or self.chosen is None else self.chosen
