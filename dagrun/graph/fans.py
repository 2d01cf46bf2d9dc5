"""A step for which very many wait: they are told of its end in portions, and not all at once.

To tell a million steps that what they wait for has ended keeps the loop busy for tenths of a second. If it has
succeeded, a mark stands for them in the line of ready steps; whoever comes upon it counts the next portion. If it has
not, whoever skips what waits for it tells them on the way. Nobody can see that: whatever looks at the steps of the
graph, and nearly every event but those of attempts and ends of steps, has all that is still open counted first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, ClassVar, Final

from dagrun.graph.by_place import ById
from dagrun.graph.live import LiveGraph
from dagrun.graph.node import Node
from dagrun.graph.releasing import ReleasingGraph
from dagrun.model.event import AttemptEnded, AttemptStarted, Event, RunStopping, StepSettled
from dagrun.model.outcome import State

_WAITING: Final = State.WAITING
_READY: Final = State.READY
_BLOCKED: Final = State.BLOCKED

# What these change does not depend on what is counted already: a step still waits for what has not been counted.
_HARMLESS: Final = frozenset((AttemptStarted, AttemptEnded, StepSettled, RunStopping))


class Fan:
    """The steps that wait for one that has ended, as far as they have not been told.

    Args:
        graph: The state.
        node: The step that has ended.

    Attributes:
        state: That of no step.
        is_open: Whether some have not been told yet.
        told: How many have been.
    """

    __slots__ = ("_blocks", "_graph", "_node", "_rest", "is_open", "told")

    state: Final = None

    def __init__(self, graph: FanningGraph, node: Node) -> None:
        self.is_open = True
        self.told = 0
        self._graph = graph
        self._node = node
        self._blocks = node.state is not State.SUCCEEDED
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
            if after.state is not _WAITING:
                continue
            if self._blocks and self._graph.blocks(self._node, after):
                after.state = _BLOCKED
            elif not missing:
                after.state = _READY
                ready.append(after)
        self.told += told
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

    def __init__(self, *args: Any, **options: Any) -> None:
        self._failed: dict[Node, Fan] = {}
        super().__init__(*args, **options)

    @property
    def nodes(self) -> ById[Node]:
        """See `LiveGraph`: with every step where it stands."""
        if self.fans:
            self.count_all()
        return self._nodes

    def count_all(self) -> None:
        """Tell all that have not been told yet."""
        self.frontier.count_all()
        failed, self._failed = self._failed, {}
        for fan in failed.values():
            self._push(fan.count_rest())

    def told(self, node: Node) -> Iterable[Node]:
        """See `LiveGraph`: each is told as it is come to."""
        return self._tell(node, self._failed[node]) if node in self._failed else node.successors

    def _tell(self, node: Node, fan: Fan) -> Iterator[Node]:
        for place, after in enumerate(node.successors):
            if place >= fan.told:
                self._push(fan.count_some())
            yield after
        self._push(fan.count_rest())  # there is nobody left, and it is noted that it knows
        self._failed.pop(node, None)

    def _push(self, ready: Iterable[Node]) -> None:
        for node in ready:
            self.frontier.push(node)

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
        fan = Fan(self, node)
        if node.state is State.SUCCEEDED:
            self.frontier.push_fan(fan)
        else:
            self._failed[node] = fan

    def _may_wait(self, node: Node) -> bool:
        """Whether all that waits for *node* is only to be counted, and somebody will do so."""
        if node.id in self.kept or self.is_frozen or self.is_drafting:
            return False
        # Where there are priorities, the best of them all comes first; and from a record that is folded nobody takes.
        return self.frontier.priorities is None and self.frontier.may_count_later


def _counted_before(change: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    def counted(graph: FanningGraph, event: Event) -> None:
        if graph.fans:
            graph.count_all()
        change(graph, event)

    return counted


FanningGraph.changes = {
    kind: change if kind in _HARMLESS else _counted_before(change) for kind, change in LiveGraph.changes.items()
}


class ReleasingFanningGraph(FanningGraph, ReleasingGraph):
    """The same, which lets go of what nobody needs any more."""
