"""Observers of a run: they take its events, as an async iterator or by calling a function."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, Protocol

import anyio

from dagrun.kernel.model.event import Event, Gap, RunEnded

DEFAULT_BUFFER: Final = 10_000
_LOG: Final = logging.getLogger("dagrun.observers")


class Observer(Protocol):
    """Takes the events of a run, in order, after their changes are complete."""

    def take(self, batch: Sequence[Event]) -> None:
        """Take some events; must neither wait nor raise."""

    def close(self) -> None:
        """Note that no more events will come."""


class Subscription:
    """The events of a run for one observer, an async iterator.

    An observer that falls behind by more than *buffer* events loses the oldest of them, and gets a `Gap` in their
    place.
    """

    def __init__(self, buffer: int = DEFAULT_BUFFER) -> None:
        self._events: deque[Event] = deque()
        self._buffer = buffer
        self._missed = 0
        self._news: anyio.Event | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<Subscription: {len(self._events)} events not read{', no more to come' * self._is_closed}>"

    def take(self, batch: Sequence[Event]) -> None:
        """Add some events; never wait."""
        self._events.extend(batch)
        while len(self._events) > self._buffer:
            self._events.popleft()
            self._missed += 1
        self._wake()

    def close(self) -> None:
        """Note that no more events will come."""
        self._is_closed = True
        self._wake()

    def _wake(self) -> None:
        if self._news is not None:
            self._news.set()
            self._news = None

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if self._is_closed:
                raise StopAsyncIteration
            if self._news is None:  # several tasks may share one subscription: all of them must wake
                self._news = anyio.Event()
            await self._news.wait()
        if self._missed:
            missed, self._missed = self._missed, 0
            first = self._events[0]
            return Gap(first.seq - 1, first.at, missed)
        event = self._events.popleft()
        self._is_closed = self._is_closed or isinstance(event, RunEnded)
        return event


class Callback:
    """Calls a function with each event. A function that raises is not called again."""

    def __init__(self, function: Callable[[Event], object]) -> None:
        self._function: Callable[[Event], object] | None = function

    def take(self, batch: Sequence[Event]) -> None:
        """Call the function for each event."""
        try:
            for event in batch:
                if self._function is not None:
                    self._function(event)
        except Exception:  # noqa: BLE001  (an observer must not break the run that it watches)
            _LOG.exception("on_event raised, and is no longer called")
            self._function = None

    def close(self) -> None:
        """Do nothing: the function has been called with the last event."""
