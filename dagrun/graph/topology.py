"""Who waits for whom: dependencies as a graph, and the cycles in it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import networkx as nx

from dagrun.graph.findings import WHOLE_PLAN, Findings

# Dependencies of steps that stand before what they wait for. A graph of more takes seconds and gigabytes to build;
# a plan that is written in an order in which it can run needs none.
MAX_LOOSE_EDGES: Final = 1_000_000
MAX_NAMED: Final = 10
_MAX_CYCLES: Final = 100


def check_cycles(loose: Mapping[str, Collection[str]], index: Mapping[str, int], findings: Findings) -> None:
    """Look for steps that wait for each other.

    Args:
        loose: The steps that may be on one, with those that each waits for. The others stand after all that they wait
            for, and so does all of that.
        index: The place of each step in the plan.
        findings: Where the problems go.
    """
    count = sum(map(len, loose.values()))
    if count > MAX_LOOSE_EDGES:
        findings.add("DR114", WHOLE_PLAN, "steps", count=f"{count:,}", limit=f"{MAX_LOOSE_EDGES:,}")
        return
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(loose)
    graph.add_edges_from((need, id_) for id_, needs in loose.items() for need in needs if need in loose)
    if nx.is_directed_acyclic_graph(graph):
        return
    # Never `find_cycle`: on a dense graph without a cycle it takes for ever, and most of this one may be such.
    knots = [knot for knot in nx.strongly_connected_components(graph) if len(knot) > 1]
    for knot in sorted(knots, key=lambda knot: min(index[id_] for id_ in knot))[:_MAX_CYCLES]:
        cycle = _walk(knot, loose, index)
        findings.add("DR106", index[cycle[0]], "depends_on", cycle=name_cycle(cycle))


def _walk(knot: set[str], dependencies: Mapping[str, Collection[str]], index: Mapping[str, int]) -> list[str]:
    """One cycle in steps that can all reach each other, beginning with its first in the plan."""
    at = min(knot, key=index.__getitem__)
    passed: dict[str, int] = {}
    while at not in passed:
        passed[at] = len(passed)
        at = next(need for need in dependencies[at] if need in knot)
    cycle = list(passed)[passed[at] :]
    first = min(range(len(cycle)), key=lambda place: index[cycle[place]])
    return cycle[first:] + cycle[:first]


def name_cycle(cycle: list[str]) -> str:
    """Write a cycle as "a -> b -> a" (a waits for b), the middle of a long one left out."""
    if len(cycle) <= MAX_NAMED:
        return " -> ".join((*cycle, cycle[0]))
    shown = " -> ".join(cycle[: MAX_NAMED - 1])
    return f"{shown} -> … -> {cycle[0]} ({len(cycle)} steps)"
