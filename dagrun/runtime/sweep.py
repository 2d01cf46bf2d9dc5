"""The steps of a run that is ended early: all that have not started are settled, in portions if they are many.

To settle a million steps takes seconds, in which nothing else in the loop would get its turn. Where they are many, what
the attempts that end meanwhile would take along is left to the sweep, so that each step ends as if all had been settled
at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import islice
from typing import ClassVar

from dagrun.graph.live import LiveGraph
from dagrun.graph.node import Node
from dagrun.model.outcome import State
from dagrun.runtime.record import Record
from dagrun.runtime.skips import may_wait


class Sweep:
    """Settles what has not started.

    Args:
        graph: The state; read here, changed by the record.
        record: Makes the changes.
        running: The steps that run, and end by themselves.
        reason: Why the run is being ended.
        end_interrupted: Records the end of an attempt that was dropped without one, as the run was to be suspended.

    Attributes:
        reason: As given.
        portion: The most steps that are settled in one turn of the loop.
    """

    portion: ClassVar[int] = 500

    def __init__(
        self,
        *,
        graph: LiveGraph,
        record: Record,
        running: Collection[str],
        reason: str,
        end_interrupted: Callable[[Node, str], object],
    ) -> None:
        self._graph = graph
        self._record = record
        self._running = running
        self.reason = reason
        self._end_interrupted = end_interrupted
        self._left = self._each()
        self._behind: list[Node] = []
        self._late: list[Node] = []  # attempts that have ended since it has begun: too late to take anything along

    @classmethod
    def may_wait(cls, graph: LiveGraph) -> bool:
        """Whether there is so much to settle that it should be done in portions, and may be."""
        return graph.unsettled > cls.portion and may_wait(graph)

    def settle_all(self) -> None:
        """Settle all that is left."""
        for _ in self._left:
            pass

    def begin(self) -> None:
        """Let nothing be skipped from now on but by this: it is settled in portions."""
        self._record.behind = self._late

    def settle_some(self) -> bool:
        """Settle the next; say whether there are more."""
        self._record.behind = self._behind
        some = sum(1 for _ in islice(self._left, self.portion))
        self._record.behind = self._late
        return some == self.portion

    def _each(self) -> Iterator[None]:
        record, dropped = self._record, []
        yield from self._tell_late()  # before all are looked at, which would have these told at once
        for _ in record.skips.rest():
            yield from self._behind_all()
            yield
        for node in self._nodes():
            if node.state.is_settled or node.id in self._running or node.children is not None:
                pass
            elif node.is_in_flight or node.is_under_review:
                dropped.append(node)
            else:
                record.settle(node, State.CANCELLED, self.reason)
                yield from self._behind_all()
            yield
        for node in dropped:
            self._end_interrupted(node, self.reason)
        yield from self._tell_late()

    def _tell_late(self) -> Iterator[None]:
        while self._late:
            for _ in self._graph.told(self._late.pop()):
                yield

    def _behind_all(self) -> Iterator[None]:
        record = self._record
        while record.behind:
            yield from record.skipping(record.behind.pop())

    def _nodes(self) -> Iterator[Node]:
        """All of them, in their order; without a list of the plan, for the collector would look through it at once."""
        nodes, first = self._graph.nodes, self._graph.plan.steps
        yield from map(nodes.__getitem__, first)
        yield from list(islice(nodes.values(), len(first), None))  # what a splice or the list of a for_each has added
