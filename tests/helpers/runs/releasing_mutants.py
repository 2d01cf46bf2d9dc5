"""Ways to release outputs too early, too late or in the wrong place; each must be noticed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dagrun import Event
from dagrun.kernel.graph import output_eviction as releasing
from dagrun.kernel.graph.changes import apply
from dagrun.kernel.graph.live_graph import LiveGraph, ReleasedOutputs
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.outcome import SETTLED

_IS_NEEDED: Final = releasing._is_needed
_LOOK_AT: Final = releasing._look_at


def forgets_failures(graph: LiveGraph, released: ReleasedOutputs, node: Node) -> bool:
    """A step that has failed needs nothing, whatever the planner says to that."""
    return any(node.id in a.plan.value_sources and a.state not in SETTLED for a in node.successors)


def forgets_elements(graph: LiveGraph, released: ReleasedOutputs, node: Node) -> bool:
    """An element goes at once, before all are joined."""
    return node.parent is None and _IS_NEEDED(graph, released, node)


def forgets_sinks(graph: LiveGraph, node: Node) -> bool:
    """What nobody reads is not needed, although the run answers with it."""
    return False


def forgets_output(graph: LiveGraph, released: ReleasedOutputs) -> frozenset[str] | None:
    """What the output of the plan names is not looked at."""
    return frozenset()


def forgets_planner(graph: LiveGraph) -> bool:
    """It does not wait for what the planner says."""
    return False


def forgets_splices(graph: LiveGraph, steps: Any, leaving: Any, *, changes_output: bool) -> None:
    """Who has been found to be over is at the same place for ever, whatever a patch takes away before it."""


def is_read_by_unstarted(graph: LiveGraph, released: ReleasedOutputs, node: Node) -> bool:
    """A step that has started has what it needs: it may be tried again."""
    return any(node.id in a.plan.value_sources and not a.attempts and a.children is None for a in node.successors)


def releases_at_starts(graph: LiveGraph, event: Event, node: Node | None = None) -> None:
    """The same is looked at whenever something happens to a step."""
    apply(graph, event, node)
    step = getattr(event, "step", "")
    if graph.releasing is not None and step in graph.nodes and not releasing.may_be_named(graph):
        for id_ in graph.nodes[step].plan.value_sources:
            releasing._look_at(graph, graph.releasing, graph.nodes[id_])


def keeps_nothing_for_reopened(released: ReleasedOutputs, nodes: Any) -> None:
    """What is opened again finds what it has read marked as released."""


def drops_all_that_is_marked(graph: LiveGraph) -> None:
    """The same when the run goes on."""
    if graph.releasing is not None:
        graph.releasing.drops = True
        for id_ in graph.releasing.marked:
            releasing._drop(graph.nodes[id_], only_objects=False)
        graph.releasing.marked.clear()


def never_releases(graph: LiveGraph, released: ReleasedOutputs, node: Node) -> None:
    """Nothing goes."""


def marks_nothing(graph: LiveGraph, released: ReleasedOutputs, node: Node) -> None:
    """What is folded marks what was released before it went on, and nothing else."""
    if released.drops:
        _LOOK_AT(graph, released, node)


MUTANTS: Final[Mapping[str, Mapping[Any, Any]]] = {
    "failures are forgotten": {releasing._is_read: forgets_failures},
    "elements are forgotten": {releasing._is_needed: forgets_elements},
    "sinks are forgotten": {releasing._is_sink: forgets_sinks},
    "the output is forgotten": {releasing._answering: forgets_output},
    "the planner is forgotten": {releasing.may_be_named: forgets_planner},
    "splices are forgotten": {releasing.evict_after_splice: forgets_splices},
    "starts are ends": {releasing._is_read: is_read_by_unstarted, apply: releases_at_starts},
    "nothing is kept for what is opened again": {
        releasing.keep_for_reopened: keeps_nothing_for_reopened,
        releasing.drop_values: drops_all_that_is_marked,
    },
    "nothing is released": {releasing._look_at: never_releases},
    "nothing is marked": {releasing._look_at: marks_nothing},
}
