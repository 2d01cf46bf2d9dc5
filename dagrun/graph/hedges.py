"""Second calls of slow steps: what they change in the state of a run, and whether one is worth it."""

from __future__ import annotations

from collections.abc import Iterable
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


def is_waited_for(graph: LiveGraph, node: Node, running: Iterable[Node], at: float) -> bool:
    """Whether the end of the run waits for *node*, as far as anybody can tell: nothing else takes longer from now on.

    What waits for others takes no longer than what it waits for, so it is enough to look at what runs and at what is
    ready. The paths are those by which the frontier puts steps in order.

    Args:
        graph: The state.
        node: A step that runs, and may be called once more from the start.
        running: All steps that run.
        at: Now, in seconds since the start of the run.
    """
    paths = graph.frontier.priorities or {}
    mine = paths.get(_family(node).id, 0.0) + _SAME
    if graph.frontier.longest_waiting > mine:
        return False

    def rest(other: Node) -> float:
        gone = at - other.attempts[-1].started
        return paths.get(_family(other).id, 0.0) - min(gone, graph.expected.seconds(other.plan))

    return all(rest(other) <= mine for other in running if _family(other) is not _family(node))


def _family(node: Node) -> Node:
    return node if node.parent is None else node.parent
