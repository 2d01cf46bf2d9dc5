"""Alarms: all deadlines of a run on one heap, and one task that sleeps until the next."""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heappop, heappush

import anyio
from anyio.abc import TaskGroup


class Timers:
    """Calls functions at given times. The sleeping task starts with the first alarm, and wakes only for alarms.

    Args:
        tasks: The task group of the run.
        now: The clock of the loop.
        after: Called when all alarms that were due have rung.
    """

    def __init__(self, tasks: TaskGroup, now: Callable[[], float], after: Callable[[], None]) -> None:
        self._after = after
        self._tasks = tasks
        self._now = now
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._nap: anyio.CancelScope | None = None
        self._is_over = False

    def at(self, time: float, ring: Callable[[], None]) -> None:
        """Call *ring* at *time* on the clock of the loop, or soon after. *ring* checks whether it still matters."""
        self._count += 1
        heappush(self._heap, (time, self._count, ring))
        if self._nap is None:
            self._nap = anyio.CancelScope(deadline=time)
            self._tasks.start_soon(self._sleep, name="dagrun alarms")
        elif time < self._nap.deadline:
            self._nap.deadline = time

    def stop(self) -> None:
        """Ring no more, and let the sleeping task end."""
        self._is_over = True
        self._heap.clear()
        if self._nap is not None:
            self._nap.cancel()

    async def _sleep(self) -> None:
        while not self._is_over and self._nap is not None:
            with self._nap:
                await anyio.sleep_forever()
            self._ring_due()
            self._nap = anyio.CancelScope(deadline=self._heap[0][0] if self._heap else math.inf)

    def _ring_due(self) -> None:
        now = self._now()
        while self._heap and self._heap[0][0] <= now and not self._is_over:
            heappop(self._heap)[2]()
        self._after()
