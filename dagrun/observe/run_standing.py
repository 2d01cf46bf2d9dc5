"""Where a run on record stands: who is at it, what it waits for, how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dagrun.api.replaying import Replayed
from dagrun.errors import shorten
from dagrun.model.event import RunResumed, RunStarted, RunSuspended
from dagrun.model.journal import Held
from dagrun.model.outcome import Status


class Stand(StrEnum):
    """What can be done with a run."""

    RUNNING = "running"  # a process is at it
    WAITING = "waiting"  # for people; nobody is at it
    INTERRUPTED = "interrupted"  # it can be resumed
    ENDED = "ended"
    EMPTY = "empty"  # it was killed before its first record, and nothing of it can go on
    DAMAGED = "damaged"  # its record is not what was written, or cannot be read


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A run, in short. Texts hold nothing that steers a terminal.

    Attributes:
        run_id: Of the run.
        stand: Where it stands.
        status: How it ended, or was suspended; empty if it goes on or was cut off.
        reason: Why, in a sentence; of a damaged one, what is wrong.
        owner: Who is at it, in words; empty if nobody is.
        goal: What it is for; empty if it began with a plan.
        steps: How many there are in its plan.
        settled: How many of them have ended.
        waits_for: The steps that people are asked about, or the questions.
        began: When, in seconds since 1970; `None` if the record does not say.
        last: When something was written last, the same.
        expires: When the record may be forgotten, the same; `None` for never.
    """

    run_id: str
    stand: Stand
    status: str = ""
    reason: str = ""
    owner: str = ""
    goal: str = ""
    steps: int = 0
    settled: int = 0
    waits_for: tuple[str, ...] = ()
    began: float | None = None
    last: float | None = None
    expires: float | None = None

    @property
    def is_resumable(self) -> bool:
        """Whether the run can go on."""
        return self.stand in (Stand.WAITING, Stand.INTERRUPTED) or self.status == Status.UNKNOWN

    @property
    def text(self) -> str:
        """The same in a sentence."""
        waits = f"waits for an answer about {shorten(', '.join(self.waits_for))}" if self.waits_for else ""
        match self.stand:
            case Stand.RUNNING:
                return f"running: {self.owner or 'somebody'}{'; ' if waits else ''}{waits}"
            case Stand.WAITING:
                return waits or f"waiting: {self.reason}"
            case Stand.INTERRUPTED:
                return self.reason if self.status else "interrupted: its process has ended"
            case Stand.EMPTY:
                return "empty: it was ended before its first record"
            case Stand.DAMAGED:
                return f"damaged: {self.reason}"
            case _:
                return self.status if self.status == Status.SUCCEEDED else f"{self.status}: {self.reason}"

    def as_dict(self) -> dict[str, Any]:
        """The same as plain JSON."""
        return {
            "run_id": self.run_id,
            "stand": str(self.stand),
            "status": self.status or None,
            "reason": self.reason,
            "owner": self.owner or None,
            "is_resumable": self.is_resumable,
            "goal": self.goal,
            "steps": self.steps,
            "settled": self.settled,
            "waits_for": list(self.waits_for),
            "began": self.began,
            "last": self.last,
            "expires": self.expires,
        }


def standing_of(past: Replayed, held: Held) -> Standing:
    """Say where a run stands.

    Args:
        past: The run, as its record says.
        held: Who holds it.
    """
    graph, last = past.graph, past.events[-1]
    planned = list(graph.planned())
    return Standing(
        run_id=past.run_id,
        stand=_stand_of(past, held),
        status="" if past.status is None else str(past.status),
        reason=shorten(past.reason),
        owner=held.owner if held.is_held else "",
        goal=shorten(graph.goal),
        steps=len(planned),
        settled=sum(1 for node in planned if node.state.is_settled),
        waits_for=tuple(dict.fromkeys(shorten(question.step or question.text) for question in past.pending)),
        began=_clock(past, 1),
        last=_clock(past, last.seq),
        expires=past.opening.expires_at,
    )


def _stand_of(past: Replayed, held: Held) -> Stand:
    if past.has_ended:
        return Stand.ENDED
    if held.is_held:
        return Stand.RUNNING
    is_waiting = isinstance(past.events[-1], RunSuspended) and past.status is Status.WAITING
    return Stand.WAITING if is_waiting else Stand.INTERRUPTED


def _clock(past: Replayed, seq: int) -> float | None:
    """The time of day of a record: that of the last start or resumption, and what has passed since."""
    found = None
    for event in past.events:
        if event.seq > seq:
            break
        if isinstance(event, RunStarted | RunResumed):
            found = event.wall_time - event.at
    return None if found is None else found + past.events[seq - 1].at
