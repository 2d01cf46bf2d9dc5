"""Caps: limits on steps that run at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Cap:
    """A limit on steps that run at once: a count of used slots, with the steps and the runs that wait for one.

    Runs that share a cap wait in line for one slot at a time, so that a long run cannot starve a short one.

    Attributes:
        limit: The number of slots.
        used: The slots that are taken.
        parked: A heap of ready steps that wait for a slot, with their priorities (`frontier.Entry`).
        waiting: The frontiers that wait for a slot, in the order of asking, and the callbacks that tell them.
        promised: The frontiers to which a free slot is promised.
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
        """Whether every slot is taken."""
        return self.used >= self.limit

    def free_for(self, frontier: object) -> int:
        """The number of slots that *frontier* may take; a slot that is promised to another counts as taken."""
        return self.limit - self.used - len(self.promised) + (frontier in self.promised)

    def release(self) -> None:
        """Return one slot."""
        self.used -= 1
        self.offer()

    def offer(self) -> None:
        """Promise free slots to the waiting frontiers, in the order of asking, and wake them."""
        while self.waiting and self.used + len(self.promised) < self.limit:
            first = next(iter(self.waiting))
            self.promised.add(first)
            self.waiting.pop(first)()

    def decline(self, frontier: object) -> None:
        """Offer the slot promised to *frontier*, which has no use for it, to the next one."""
        if frontier in self.promised:
            self.promised.remove(frontier)
            self.offer()
