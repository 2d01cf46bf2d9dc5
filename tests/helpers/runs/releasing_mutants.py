"""Ways to release outputs too early, too late or in the wrong place; each must be noticed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dagrun.graph import released_outputs as releasing
from dagrun.graph.node import Node
from dagrun.graph.released_outputs import ReleasingGraph
from dagrun.model.event import Event
from dagrun.model.outcome import SETTLED


class ForgetsFailures(ReleasingGraph):
    """A step that has failed needs nothing, whatever the planner says to that."""

    def _is_read(self, node: Node) -> bool:
        return any(node.id in a.plan.value_sources and a.state not in SETTLED for a in node.successors)


class ForgetsElements(ReleasingGraph):
    """An element goes at once, before all are joined."""

    def _is_needed(self, node: Node) -> bool:
        return node.parent is None and super()._is_needed(node)


class ForgetsSinks(ReleasingGraph):
    """What nobody reads is not needed, although the run answers with it."""

    def _is_sink(self, node: Node) -> bool:
        return False


class ForgetsOutput(ReleasingGraph):
    """What the output of the plan names is not looked at."""

    def _answering(self) -> frozenset[str] | None:
        return frozenset()


class ForgetsPlanner(ReleasingGraph):
    """It does not wait for what the planner says."""

    _may_be_named = False


class ForgetsSplices(ReleasingGraph):
    """Who has been found to be over is at the same place for ever, whatever a patch takes away before it."""

    def _note_splice(self, event: Any) -> None:
        pass


class StartsAreEnds(ReleasingGraph):
    """A step that has started has what it needs: it may be tried again."""

    def _is_read(self, node: Node) -> bool:
        return any(node.id in a.plan.value_sources and not a.attempts and a.children is None for a in node.successors)

    def apply(self, event: Event, node: Node | None = None) -> None:
        super().apply(event, node)
        step = getattr(event, "step", "")
        if step in self.nodes and not self._may_be_named:
            for id_ in self.nodes[step].plan.value_sources:
                self._look_at(self.nodes[id_])


class NeverTakesBack(ReleasingGraph):
    """What is opened again finds what it has read marked as released."""

    def _take_back(self, event: Any) -> None:
        pass

    def drop_marked(self) -> None:
        self.drops = True
        for id_ in self.marked:
            releasing._drop(self.nodes[id_])
        self.marked.clear()


class NeverReleases(ReleasingGraph):
    """Nothing goes."""

    def _look_at(self, node: Node) -> None:
        pass


class MarksOtherwise(ReleasingGraph):
    """What is folded marks what was released before it went on, and nothing else."""

    def _look_at(self, node: Node) -> None:
        if self.drops:
            super()._look_at(node)


MUTANTS: Final[Mapping[str, type[ReleasingGraph]]] = {
    kind.__name__: kind
    for kind in (
        ForgetsFailures,
        ForgetsElements,
        ForgetsSinks,
        ForgetsOutput,
        ForgetsPlanner,
        ForgetsSplices,
        StartsAreEnds,
        NeverTakesBack,
        NeverReleases,
        MarksOtherwise,
    )
}
