"""Events: every change of a run, in order. They are the record, the progress bar and the report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dagrun.model.outcome import Decision, Failure, Outcome, State, Status
from dagrun.model.value import Stored, decode

# Slotted and not frozen: the hot path makes two per step, and freezing makes them four times as dear.


@dataclass(slots=True)
class Event:
    """Something that changed.

    Attributes:
        seq: 1 for the first event of the run, then one more each.
        at: Seconds since the start of the run.
    """

    seq: int
    at: float


@dataclass(slots=True)
class RunStarted(Event):
    """The run begins; the first event."""

    run_id: str
    steps: int
    goal: str
    wall_time: float


@dataclass(slots=True)
class AttemptStarted(Event):
    """A tool is called; the step is running."""

    step: str
    attempt: int
    tool: str


@dataclass(slots=True)
class AttemptEnded(Event):
    """A call has ended, and recovery has decided what follows.

    Attributes:
        state: The state of the step from now on.
        outcome: How the attempt ended.
        decision: What is done about it.
    """

    step: str
    attempt: int
    state: State
    outcome: Outcome
    decision: Decision


@dataclass(slots=True)
class StepSettled(Event):
    """A step has ended otherwise than by an attempt: skipped, cancelled, or by its elements.

    Attributes:
        reason: Why, in a sentence.
        cause: The id of the step that it comes from, or empty.
        is_tolerated: Whether the author of the plan asked for it (a false ``when``, ``on_failure: skip``).
        value: What the step gives, if it succeeded.
        is_default: Whether the value is the default that stands in for the output.
        errors: For a for_each: the elements that failed, and why.
        failure: Why, as code can act on it, if the step failed before anything was called.
    """

    step: str
    state: State
    reason: str
    cause: str = ""
    is_tolerated: bool = False
    value: Stored = None
    is_default: bool = False
    errors: tuple[tuple[int, str], ...] = ()
    failure: Failure | None = None


@dataclass(slots=True)
class StepExpanded(Event):
    """A step with for_each has got its list: a child for each element."""

    step: str
    items: tuple[Stored, ...]


@dataclass(slots=True)
class Progress(Event):
    """A tool says how far it is. Changes no state."""

    step: str
    fraction: float | None
    message: str


@dataclass(slots=True)
class RunEnded(Event):
    """The run has ended; the last event."""

    status: Status
    reason: str


@dataclass(slots=True)
class Gap(Event):
    """An observer was too slow: *missed* events before this one are not shown to it."""

    missed: int = field(default=0)


def as_dict(event: Event, *, with_values: bool = True) -> dict[str, Any]:
    """Give *event* as plain JSON, with its class name under ``event``.

    Args:
        event: The event.
        with_values: Whether the outputs of steps are shown.
    """
    shown: dict[str, Any] = {"event": type(event).__name__}
    for name in _fields(type(event)):
        shown[name] = _plain(getattr(event, name), with_values=with_values)
    return shown


def _fields(kind: type[Event]) -> list[str]:
    return [f.name for f in kind.__dataclass_fields__.values()]


def _plain(value: Any, *, with_values: bool) -> Any:
    match value:
        case Outcome():
            failure = value.failure.as_dict() if value.failure else None
            shown = {"state": str(value.state), "failure": failure, "tokens": value.tokens, "cost": value.cost}
            return shown | ({"value": decode(value.value)} if with_values else {})
        case Failure():
            return value.as_dict()
        case Decision():
            return {"recovery": str(value.recovery), "reason": value.reason, "delay": value.delay}
        case bytes():
            return decode(value) if with_values else f"<{len(value)} bytes>"
        case tuple():
            return [_plain(part, with_values=with_values) for part in value]
        case _:
            return value
