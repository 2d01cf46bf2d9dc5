"""Which step should start first, kept up to date when a splice changes the plan."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from dagrun.graph.checked import CheckedStep
from dagrun.graph.critical import Expected
from dagrun.graph.node import Node
from dagrun.model.outcome import State

if TYPE_CHECKING:
    from dagrun.graph.live import LiveGraph


def set_priorities(graph: LiveGraph, steps: Mapping[str, CheckedStep], others: Iterable[str]) -> None:
    """Find the longest remaining paths anew: of steps that a splice has touched, and of those before them.

    Without a limit on what runs at once nobody needs them, and nothing is done.

    Args:
        graph: The graph, with the splice applied.
        steps: The steps that came or changed.
        others: Steps that have lost or won a dependent.
    """
    known = graph.frontier.priorities
    if known is None:
        if any(checked.step.max_parallel is not None for checked in steps.values()):
            graph.frontier.rank(_all_priorities(graph))  # the first limit of this run
        return
    touched = {id_ for id_ in (*steps, *others) if _counts(graph.nodes[id_])}
    graph.frontier.reorder(list(_raise(graph, known, touched)))


def _counts(node: Node) -> bool:
    return node.parent is None and not node.is_gone and not node.state.is_settled


def _longest(node: Node, known: Mapping[str, float], expected: Expected) -> float:
    best = 0.0
    for after in node.successors:
        # What waits for an element is its for_each.
        family = after if after.parent is None else after.parent
        path = known.get(family.id, 0.0)
        if path > best and not family.is_gone:
            best = path
    return best + expected.seconds(node.plan)


def _raise(graph: LiveGraph, known: dict[str, float], touched: Collection[str]) -> Iterator[Node]:
    """Set the priorities of *touched*, and of what comes before them; give the ready steps that stand elsewhere now."""
    labels, nodes, expected = graph.labels, graph.nodes, graph.expected
    seen = set(touched)
    heap = [(-labels[id_], id_) for id_ in seen]
    heapify(heap)
    while heap:  # those that come last first: then each is looked at once
        node = nodes[heappop(heap)[1]]
        longest = _longest(node, known, expected)
        if known.get(node.id) == longest:
            continue
        known[node.id] = longest
        if node.state is State.READY:
            yield node
        yield from (child for child in node.children or () if child.state is State.READY)
        for need in node.plan.depends_on:
            if need not in seen and _counts(nodes[need]):
                seen.add(need)
                heappush(heap, (-labels[need], need))


def _all_priorities(graph: LiveGraph) -> dict[str, float]:
    labels = graph.labels
    known: dict[str, float] = {}
    for node in sorted(filter(_counts, graph.nodes.values()), key=lambda node: -labels[node.id]):
        known[node.id] = _longest(node, known, graph.expected)
    return known
