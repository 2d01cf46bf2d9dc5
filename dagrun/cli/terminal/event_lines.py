"""Events of a run as JSON lines, written by a thread, so that a slow reader never delays the run."""

from __future__ import annotations

import queue
import threading
from types import TracebackType
from typing import Any, Final, Self

from dagrun import Add, Answer, Consequence, Drop, Event, Question, Replace, Rewire, Trigger, Unavailable, Verdict
from dagrun.cli.terminal.text import Data
from dagrun.errors import Problem
from dagrun.kernel.model.event import Gap
from dagrun.kernel.model.outcome import Decision, Failure, Outcome
from dagrun.kernel.model.patch import edit_as_dict
from dagrun.kernel.model.redaction.redactor import DEFAULT_REDACTOR, Redactor
from dagrun.kernel.model.value import decode, decode_or_reason


def as_dict(event: Event, *, with_values: bool = True) -> dict[str, Any]:
    """Return *event* as plain JSON, with its class name under ``event``.

    Args:
        event: The event.
        with_values: Whether the outputs of steps are in it.
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
            return shown | ({"value": decode_or_reason(value.value)} if with_values else {})
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
            return decode_or_reason(value)
        case bytes():
            return decode(value) if with_values else f"<{len(value)} bytes>"
        case tuple():
            return [_plain(part, with_values=with_values) for part in value]
        case _:
            return value


BUFFER: Final = 100_000  # events


class EventLines:
    """Writes each event as one line, when it happens.

    A reader that falls behind by more than *buffer* events misses some, and sees a ``Gap`` in their place. A reader
    that closes its end does not stop the run.

    Args:
        data: Takes the lines.
        redactor: Takes out what may not be shown.
        buffer: Events that may wait to be written.
    """

    def __init__(self, data: Data, redactor: Redactor = DEFAULT_REDACTOR, buffer: int = BUFFER) -> None:
        self._data = data
        self._redactor = redactor
        self._waiting: queue.Queue[Event | None] = queue.Queue(buffer)
        self._missed = 0
        self._writer = threading.Thread(target=self._write, name="dagrun event lines", daemon=True)

    def __enter__(self) -> Self:
        self._writer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._waiting.put(None)  # waits for room in the queue, so that every event in it is written
        self._writer.join()

    def on_event(self, event: Event) -> None:
        """Queue an event; never waits."""
        try:
            if self._missed:
                self._waiting.put_nowait(Gap(event.seq - 1, event.at, self._missed))
                self._missed = 0
            self._waiting.put_nowait(event)
        except queue.Full:
            self._missed += 1

    def _write(self) -> None:
        while (event := self._waiting.get()) is not None:
            if not self._data.is_closed:
                self._data.line(self._redactor.value(as_dict(event)))
