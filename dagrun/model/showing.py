"""Events as people and other programs are shown them."""

from __future__ import annotations

from typing import Any

from dagrun.errors import Problem
from dagrun.model.brief import Trigger
from dagrun.model.event import Event
from dagrun.model.outcome import Decision, Failure, Outcome
from dagrun.model.patch import Add, Consequence, Drop, Replace, Rewire, edit_as_dict
from dagrun.model.question import Answer, Question
from dagrun.model.value import Unavailable, decode, readable
from dagrun.model.verdict import Verdict


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
    return [f.name for f in kind.__dataclass_fields__.values() if f.repr]


def _plain(value: Any, *, with_values: bool) -> Any:
    match value:
        case Outcome():
            failure = value.failure.as_dict() if value.failure else None
            shown = {"state": str(value.state), "failure": failure, "tokens": value.tokens, "cost": value.cost}
            return shown | ({"value": readable(value.value)} if with_values else {})
        case Failure():
            return value.as_dict()
        case Decision():
            trigger = None if value.trigger is None else str(value.trigger)
            return {"recovery": str(value.recovery), "reason": value.reason, "delay": value.delay, "trigger": trigger}
        case Verdict() | Problem() | Trigger() | Consequence() | Question() | Answer():
            return value.as_dict()
        case Add() | Drop() | Replace() | Rewire():
            return edit_as_dict(value)
        case Unavailable():
            return readable(value)
        case bytes():
            return decode(value) if with_values else f"<{len(value)} bytes>"
        case tuple():
            return [_plain(part, with_values=with_values) for part in value]
        case _:
            return value
