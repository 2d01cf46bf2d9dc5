"""The order that dagrun does not have: first ready, first started. Put in its place for a comparison, and only here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from heapq import heappush
from itertools import count
from typing import Any

from dagrun.kernel.graph import live_graph as limits
from dagrun.kernel.graph.node import Node
from dagrun.kernel.graph.step_order import Frontier


class FirstReady(Frontier):
    """Ready steps under a cap, in the order in which they have become ready."""

    __slots__ = ("_arrivals",)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._arrivals = count()

    def push(self, node: Node) -> None:
        """Add a step that has become ready."""
        if self.priorities is None:  # without a cap they are in this order anyway
            super().push(node)
            return
        heappush(self._heap, (float(next(self._arrivals)), node.order, node.index, node))


@contextmanager
def first_ready() -> Iterator[None]:
    """Let the limited runs that begin inside the body start what is ready first, instead of the longest path."""
    vars(limits).update(Frontier=FirstReady)
    try:
        yield
    finally:
        vars(limits).update(Frontier=Frontier)
