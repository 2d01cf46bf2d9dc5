"""The state of a run before its first event: built apart from the run, so that it can be built in a thread."""

from __future__ import annotations

from dataclasses import dataclass

from dagrun.graph.checked import CheckedPlan
from dagrun.graph.critical import Expected
from dagrun.graph.fans import FanningGraph, ReleasingFanningGraph
from dagrun.graph.frontier import Cap, Frontier
from dagrun.graph.limits import make_frontier
from dagrun.graph.live import LiveGraph
from dagrun.graph.releasing import ReleasingGraph
from dagrun.model.value import Stored


@dataclass(slots=True)
class Built:
    """A run that has not begun.

    Attributes:
        frontier: Ready steps.
        graph: The state.
    """

    frontier: Frontier
    graph: LiveGraph


def build(plan: CheckedPlan, inputs: Stored, shared: Cap | None, expected: Expected) -> Built:
    """Build the state in which a run of *plan* begins.

    Args:
        plan: What is run.
        inputs: The inputs of the run, stored.
        shared: A cap that counts the steps of several runs, or none.
        expected: How long steps are expected to take.
    """
    frontier, caps_of = make_frontier(plan, shared, expected)
    return Built(frontier, kind_of(plan)(plan, inputs, frontier, caps_of, expected))


def kind_of(plan: CheckedPlan) -> type[LiveGraph]:
    """The live graph for *plan*: what only few plans need costs the others nothing."""
    has_fan = len(plan.steps) > FanningGraph.many and any(len(after) > FanningGraph.many for after in plan.after)
    if plan.policy.release_outputs:
        return ReleasingFanningGraph if has_fan else ReleasingGraph
    return FanningGraph if has_fan else LiveGraph
