"""A step for which very many wait: they are told of its end in portions, as they are taken, and not all at once.

To tell a million steps that what they wait for has ended keeps the loop busy for tenths of a second. So a mark stands
for them in the line of ready steps; whoever comes upon it counts the next portion. Nobody can see that: whatever looks
at the steps of the graph, and every event but those of attempts, has all that is still open counted first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, ClassVar, Final

from dagrun.graph.by_place import ById
from dagrun.graph.live import LiveGraph
from dagrun.graph.node import Node
from dagrun.graph.releasing import ReleasingGraph
from dagrun.model.event import AttemptEnded, AttemptStarted, Event, StepSettled
from dagrun.model.outcome import State

_WAITING: Final = State.WAITING
_READY: Final = State.READY

# What these change does not depend on what is counted already: a step still waits for what has not been counted.
_HARMLESS: Final = frozenset((AttemptStarted, AttemptEnded, StepSettled))


class Fan:
    """The steps that wait for one that has succeeded, as far as they have not been told.

    Args:
        graph: The state.
        node: The step that has succeeded.

    Attributes:
        state: That of no step.
        is_open: Whether some have not been told yet.
    """

    __slots__ = ("_graph", "_rest", "is_open")

    state: Final = None

    def __init__(self, graph: FanningGraph, node: Node) -> None:
        self.is_open = True
        self._graph = graph
        self._rest: Iterator[Node] = iter(node.successors)
        graph.fans += 1

    def count_some(self) -> list[Node]:
        """Tell the next of them; give those that are ready now."""
        return self._count(self._graph.portion)

    def count_rest(self) -> list[Node]:
        """Tell all that are left; give those that are ready now."""
        return self._count(None)

    def _count(self, portion: int | None) -> list[Node]:
        ready, told = [], 0
        for after in islice(self._rest, portion):
            told += 1
            after.missing = missing = after.missing - 1
            if not missing and after.state is _WAITING:
                after.state = _READY
                ready.append(after)
        if self.is_open and (portion is None or told < portion):
            self.is_open = False
            self._graph.fans -= 1
        return ready


class FanningGraph(LiveGraph):
    """A live graph in which very many steps wait for one.

    Attributes:
        many: So many must wait for a step before they are told in portions.
        portion: So many at a time.
        fans: Of how many steps not all have been told yet.
    """

    many: ClassVar[int] = 10_000
    portion: ClassVar[int] = 1_000
    fans = 0

    @property
    def nodes(self) -> ById[Node]:
        """See `LiveGraph`: with every step where it stands."""
        if self.fans:
            self.frontier.count_all()
        return self._nodes

    def settled(self, node: Node) -> None:
        """Count a step that has ended; see `LiveGraph`."""
        if len(node.successors) <= self.many or not self._may_wait(node):
            super().settled(node)
            return
        after, node.successors = node.successors, ()
        try:
            super().settled(node)
        finally:
            node.successors = after
        self.frontier.push_fan(Fan(self, node))

    def _may_wait(self, node: Node) -> bool:
        """Whether all that waits for *node* is only to be counted, and somebody will do so."""
        if node.state is not State.SUCCEEDED or node.id in self.kept or self.is_frozen or self.is_drafting:
            return False
        # Where there are priorities, the best of them all comes first; and from a record that is folded nobody takes.
        return self.frontier.priorities is None and self.frontier.may_count_later


def _counted_before(change: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    def counted(graph: FanningGraph, event: Event) -> None:
        if graph.fans:
            graph.frontier.count_all()
        change(graph, event)

    return counted


FanningGraph.changes = {
    kind: change if kind in _HARMLESS else _counted_before(change) for kind, change in LiveGraph.changes.items()
}


class ReleasingFanningGraph(FanningGraph, ReleasingGraph):
    """The same, which lets go of what nobody needs any more."""
