"""Hedging: whether a slow call may get a second one beside it, and whether the end of the run waits for it.

Second calls are limited to a share of all calls: where every call is slow, more calls would make it slower.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import nlargest
from typing import Final

from dagrun.graph.live_graph import LiveGraph
from dagrun.graph.node import Node

ALWAYS: Final = 3  # second calls of a tool that are always allowed: a share of few calls would be none
FADES_ABOVE: Final = 1_000  # calls of a tool; then both counts are halved, so that old calls count less


class HedgeShare:
    """Counts the calls and the second calls of each tool, in all runs that share it."""

    __slots__ = ("_calls", "_hedged")

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()
        self._hedged: Counter[str] = Counter()

    def called(self, tool: str) -> None:
        """Count a call."""
        self._calls[tool] += 1
        if self._calls[tool] > FADES_ABOVE:
            self._calls[tool] //= 2
            self._hedged[tool] //= 2

    def allows(self, tool: str, share: float) -> bool:
        """Whether a call of *tool* may get a second one: at most the part *share* of its calls may, and a few more."""
        return self._hedged[tool] < ALWAYS + share * self._calls[tool]

    def hedged(self, tool: str) -> None:
        """Count a second call."""
        self._hedged[tool] += 1


_SAME: Final = 1e-9  # seconds: sums of the same figures in another order


@dataclass(frozen=True, slots=True)
class Rest:
    """The time until the end of the run along the path of one running step.

    Attributes:
        seconds: The expected rest of the step, and the longest path behind it.
        step: The id of the step; for an element, that of its for_each.
    """

    seconds: float
    step: str


def longest_rests(graph: LiveGraph, running: Iterable[Node], at: float) -> tuple[Rest, ...]:
    """Return the two longest rests of different running steps; fewer, if fewer run.

    The path of a waiting step is part of the path of a step that it waits for, so besides these only ready steps need a
    look (`is_waited_for`). The paths are those by which the frontier orders steps.

    Args:
        graph: The state.
        running: All running steps.
        at: Now, in seconds since the start of the run.
    """
    paths, seconds = graph.frontier.priorities or {}, graph.expected.seconds
    longest: dict[str, float] = {}
    for node in running:
        family = _family(node).id
        rest = paths.get(family, 0.0) - min(at - node.attempts[-1].started, seconds(node.plan))
        if rest > longest.get(family, -math.inf):
            longest[family] = rest
    return tuple(Rest(longest[id_], id_) for id_ in nlargest(2, longest, key=longest.__getitem__))


def is_waited_for(graph: LiveGraph, node: Node, rests: Iterable[Rest]) -> bool:
    """Whether the end of the run waits for *node*: by the paths, no other step takes longer from now on.

    Args:
        graph: The state.
        node: A running step, which may be called once more from the start.
        rests: The result of `longest_rests`.
    """
    family = _family(node).id
    mine = (graph.frontier.priorities or {}).get(family, 0.0) + _SAME
    if graph.frontier.longest_waiting > mine:
        return False
    return all(rest.seconds <= mine for rest in rests if rest.step != family)


def _family(node: Node) -> Node:
    return node if node.parent is None else node.parent
