"""The state of a run before its first event: built apart from the run, so that it can be built in a thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dagrun.graph.checked import CheckedPlan
from dagrun.graph.critical import Expected
from dagrun.graph.fans import FanningGraph, ReleasingFanningGraph
from dagrun.graph.frontier import Cap, Frontier
from dagrun.graph.limits import make_frontier
from dagrun.graph.live import LiveGraph
from dagrun.graph.releasing import ReleasingGraph
from dagrun.model.value import Stored


def _nothing() -> None:
    pass


@dataclass(slots=True)
class Built:
    """A run that has not begun.

    Attributes:
        on_room: Called when a cap shared with other runs has room again; whoever carries the run out sets it.
        frontier: Ready steps.
        graph: The state.
    """

    on_room: Callable[[], None] = _nothing
    frontier: Frontier = field(init=False)
    graph: LiveGraph = field(init=False)

    def has_room(self) -> None:
        """Pass on that there is room."""
        self.on_room()


def build(plan: CheckedPlan, inputs: Stored, shared: Cap | None, expected: Expected) -> Built:
    """Build the state in which a run of *plan* begins.

    Args:
        plan: What is run.
        inputs: The inputs of the run, stored.
        shared: A cap that counts the steps of several runs, or none.
        expected: How long steps are expected to take.
    """
    built = Built()
    built.frontier, caps_of = make_frontier(plan, shared, built.has_room, expected)
    built.graph = kind_of(plan)(plan, inputs, built.frontier, caps_of, expected)
    return built


def kind_of(plan: CheckedPlan) -> type[LiveGraph]:
    """The live graph for *plan*: what only few plans need costs the others nothing."""
    has_fan = len(plan.steps) > FanningGraph.many and any(len(after) > FanningGraph.many for after in plan.after)
    if plan.policy.release_outputs:
        return ReleasingFanningGraph if has_fan else ReleasingGraph
    return FanningGraph if has_fan else LiveGraph
