"""Second calls of slow steps: what they change in the state of a run, and whether one is worth it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import nlargest
from typing import TYPE_CHECKING, Final

from dagrun.graph.node import Node
from dagrun.model.call_event import Hedged, HedgeEnded
from dagrun.model.outcome import Hedge

if TYPE_CHECKING:
    from dagrun.graph.live import LiveGraph

_SAME: Final = 1e-9  # seconds: sums of the same figures in another order


def hedged(graph: LiveGraph, event: Hedged) -> None:
    """A second call is made."""
    graph.nodes[event.step].attempts[-1].hedge = Hedge(event.at)


def hedge_ended(graph: LiveGraph, event: HedgeEnded) -> None:
    """It has ended."""
    hedge = graph.nodes[event.step].attempts[-1].hedge
    assert hedge is not None
    hedge.ended, hedge.has_won, hedge.fault = event.at, event.has_won, event.fault
    hedge.tokens, hedge.cost = event.tokens, event.cost


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
