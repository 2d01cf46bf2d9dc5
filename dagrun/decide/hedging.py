"""How many calls got a second one beside them, and whether one more may: where all is slow, more make it slower."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import nlargest
from typing import TYPE_CHECKING, Final

from dagrun.graph.node import Node

if TYPE_CHECKING:
    from dagrun.graph.live_graph import LiveGraph


ALWAYS: Final = 3  # second calls of a tool: a share of few calls would be none
FADES_ABOVE: Final = 1_000  # calls of a tool; then all is halved, so that what was long ago counts less


class HedgeShare:
    """Counts the calls of each tool, and the second ones, in all runs that share it."""

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
        """Whether a call of *tool* may get a second one: at most the part *share* of them, the first few aside."""
        return self._hedged[tool] < ALWAYS + share * self._calls[tool]

    def hedged(self, tool: str) -> None:
        """Count a second call."""
        self._hedged[tool] += 1


_SAME: Final = 1e-9  # seconds: sums of the same figures in another order


@dataclass(frozen=True, slots=True)
class Rest:
    """How long the run takes from now on for the sake of one step that runs, or of one of its elements.

    Attributes:
        seconds: To the end of the run, along the longest path behind the step.
        step: Its id; that of the for_each, of an element.
    """

    seconds: float
    step: str


def longest_rests(graph: LiveGraph, running: Iterable[Node], at: float) -> tuple[Rest, ...]:
    """The two longest rests of different steps that run; fewer, if fewer run.

    What waits for others takes no longer than what it waits for, so nothing else needs to be looked at but what is
    ready. The paths are those by which the frontier puts steps in order.

    Args:
        graph: The state.
        running: All steps that run.
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
    """Whether the end of the run waits for *node*, as far as the paths tell: nothing else takes longer from now on.

    Args:
        graph: The state.
        node: A step that runs, and may be called once more from the start.
        rests: What `longest_rests` has given.
    """
    family = _family(node).id
    mine = (graph.frontier.priorities or {}).get(family, 0.0) + _SAME
    if graph.frontier.longest_waiting > mine:
        return False
    return all(rest.seconds <= mine for rest in rests if rest.step != family)


def _family(node: Node) -> Node:
    return node if node.parent is None else node.parent
