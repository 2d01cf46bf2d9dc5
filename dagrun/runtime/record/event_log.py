"""The events of a run, in their order: applied to the state, written down, and shown to observers."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, Protocol

import anyio

from dagrun.graph.changes import apply
from dagrun.graph.live_graph import LiveGraph
from dagrun.graph.node import Node
from dagrun.model.event import Event, Gap, Progress, RunEnded, RunResumed, RunStarted, RunSuspended
from dagrun.model.outcome import Status
from dagrun.model.redaction.events import CLEANERS

DEFAULT_BUFFER: Final = 10_000
_LOG: Final = logging.getLogger("dagrun.observers")


class Observer(Protocol):
    """Takes the events of a run, in order, after the changes that they stand for are complete."""

    def take(self, batch: Sequence[Event]) -> None:
        """Take some events; must not wait and not raise."""

    def close(self) -> None:
        """No more events will come."""


class Subscription:
    """The events of a run for one observer, an async iterator.

    An observer that falls behind by more than *buffer* events loses the oldest of them, and is shown a `Gap` in their
    place.
    """

    def __init__(self, buffer: int = DEFAULT_BUFFER) -> None:
        self._events: deque[Event] = deque()
        self._buffer = buffer
        self._missed = 0
        self._news: anyio.Event | None = None
        self._is_closed = False

    def take(self, batch: Sequence[Event]) -> None:
        """Add some events; never waits."""
        self._events.extend(batch)
        while len(self._events) > self._buffer:
            self._events.popleft()
            self._missed += 1
        self._wake()

    def close(self) -> None:
        """Say that no more events come."""
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
            _LOG.exception("on_event raised, and is not called any more")
            self._function = None

    def close(self) -> None:
        """Nothing to do: the last event has been seen."""


class EventLog:
    """Numbers the events of a run, and hands each to everybody who wants it.

    Args:
        graph: The state; nobody else changes it.
        now: The clock of the loop.
        keep: Writes an event down, before anybody is shown it; `None` if there is no journal.
        flush: Called at the end of each change: what was written since becomes durable together.

    Attributes:
        graph: The state.
        zero: When the run began, on the clock of the loop; time in which the run was suspended is left out.
        ended_at: When it ended, or was suspended; `None` as long as it goes on.
    """

    def __init__(
        self,
        graph: LiveGraph,
        now: Callable[[], float],
        keep: Callable[[Event], object] | None = None,
        flush: Callable[[], None] | None = None,
    ) -> None:
        self.graph = graph
        self.zero = now()
        self.ended_at: float | None = None
        self._now = now
        self._keep = keep
        self._flush = flush
        self._redactor = graph.plan.redactor
        self._seq = 0
        self._first: RunStarted | RunResumed | None = None
        self._observers: list[Observer] = []
        self._pending: list[Event] = []
        self._is_delivering = False

    def next_seq(self) -> int:
        """The number of the next event; to be used at once."""
        self._seq += 1
        return self._seq

    def at(self) -> float:
        """Seconds since the start of the run."""
        return self._now() - self.zero

    @property
    def makespan(self) -> float:
        """Seconds from the start of the run to its end, or to now."""
        return (self._now() if self.ended_at is None else self.ended_at) - self.zero

    def emit(self, event: Event, node: Node | None = None) -> None:
        """Apply *event* to the state, and keep it for the journal and the observers; *node* as in `changes.apply`."""
        clean = CLEANERS.get(type(event))
        if clean is not None:  # before anybody has seen it: what follows from it is clean, too
            clean(event, self._redactor)
        self._take(event, node)

    def _take(self, event: Event, node: Node | None = None) -> None:
        """The same for an event without any text that must not be seen."""
        apply(self.graph, event, node)
        if self._keep is not None:
            self._keep(event)
        if self._observers:
            self._pending.append(event)

    def deliver(self) -> None:
        """Show the observers what has happened: called at the end of a change, never in the middle of one."""
        if self._flush is not None:
            self._flush()
        # An observer may change the run again, by cancelling a step, say; what comes of that is delivered in turn.
        while self._pending and not self._is_delivering:
            batch, self._pending = self._pending, []
            self._is_delivering = True
            try:
                for observer in self._observers:
                    observer.take(batch)
            finally:
                self._is_delivering = False

    def watch(self, observer: Observer) -> None:
        """Show every event from now on to *observer*; and the very first one, if nothing else has happened yet."""
        if self._first is not None and self._seq == self._first.seq:
            observer.take((self._first,))
        if self.ended_at is None:
            self.deliver()
            self._observers.append(observer)
        else:
            observer.close()

    def begin_run(self, event: RunStarted) -> None:
        """Record the start of the run: the first event. Who starts a run can only subscribe after it."""
        self._first = event
        self.emit(event)

    def take_up(self, seq: int, at: float, event: Callable[[int, float], RunResumed]) -> None:
        """Go on after record *seq*, which was made *at* seconds after the start; the time since does not count."""
        self._seq = seq
        self.zero = self._now() - at
        self._first = resumed = event(self.next_seq(), at)
        self.emit(resumed)

    def progress(self, node: Node, fraction: float | None, message: str) -> None:
        """Show the observers how far a step is; no state changes."""
        if self._observers:
            self._pending.append(Progress(self._seq, self.at(), node.id, fraction, self._redactor.text(message)))
            self.deliver()

    def end_run(self, status: Status, reason: str) -> None:
        """Record the end of the run: the last event."""
        self._close(RunEnded(self.next_seq(), self.at(), status, reason))

    def suspend_run(self, status: Status, reason: str) -> None:
        """Record that nothing more is done for now: the last event until the run is resumed."""
        self._close(RunSuspended(self.next_seq(), self.at(), status, reason))

    def _close(self, event: RunEnded | RunSuspended) -> None:
        self.ended_at = self.zero + event.at
        self.emit(event)
        self.deliver()
        for observer in self._observers:
            observer.close()
