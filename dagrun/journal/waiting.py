"""Those who wait on the loop for a record to become durable."""

from __future__ import annotations

import heapq

import anyio


class Waiting:
    """An event for each record that somebody waits for. One who was cancelled meanwhile costs nothing but its event."""

    __slots__ = ("_events", "_seqs")

    def __init__(self) -> None:
        self._events: dict[int, anyio.Event] = {}
        self._seqs: list[int] = []

    @property
    def first(self) -> int:
        """The first record that somebody waits for; 0 if nobody waits."""
        return self._seqs[0] if self._seqs else 0

    def event(self, seq: int) -> anyio.Event:
        """The event of record *seq*, set when it is durable or never will be."""
        event = self._events.get(seq)
        if event is None:
            event = self._events[seq] = anyio.Event()
            heapq.heappush(self._seqs, seq)
        return event

    def wake(self, upto: int) -> bool:
        """Wake those who wait for record *upto* or one before; say whether there were any."""
        count = len(self._seqs)
        while self._seqs and self._seqs[0] <= upto:
            self._events.pop(heapq.heappop(self._seqs)).set()
        return len(self._seqs) < count

    def wake_all(self) -> None:
        """Wake everybody."""
        for event in self._events.values():
            event.set()
        self._events.clear()
        self._seqs.clear()
