"""Caps: limits on steps that run at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Cap:
    """A limit on steps that run at once: a counter, the steps that it keeps back, and the runs that wait for room.

    Where runs share a cap, each stands in line for one slot at a time, so that a long run cannot starve a short one.
    """

    __slots__ = ("limit", "parked", "promised", "used", "waiting")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.parked: list[Any] = []
        self.waiting: dict[object, Callable[[], object]] = {}
        self.promised: set[object] = set()

    @property
    def is_full(self) -> bool:
        """Whether nothing more may start under it."""
        return self.used >= self.limit

    def free_for(self, frontier: object) -> int:
        """How many slots *frontier* may take: what is promised to others is taken already."""
        return self.limit - self.used - len(self.promised) + (frontier in self.promised)

    def release(self) -> None:
        """Give one slot back."""
        self.used -= 1
        self.offer()

    def offer(self) -> None:
        """Promise what is free to those who wait, in the order of asking, and tell them."""
        while self.waiting and self.used + len(self.promised) < self.limit:
            first = next(iter(self.waiting))
            self.promised.add(first)
            self.waiting.pop(first)()

    def decline(self, frontier: object) -> None:
        """Pass on what was promised to *frontier*, which has no use for it."""
        if frontier in self.promised:
            self.promised.remove(frontier)
            self.offer()
