"""Confidence of results: a confidence given to an output holds for everything derived from it.

Nobody has to give a confidence. Where somebody does, it holds for the output, and for each output and answer that used
it: the lowest counts. It is computed when it is asked for, so a run without any pays nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.outcome import State
from dagrun.kernel.model.value import decode_or_reason


class Said(NamedTuple):
    """The confidence that a tool or a critic gave to an output.

    Attributes:
        value: From 0 to 1.
        step: The step whose output it is about.
        who: The tool or the critic that gave it.
        reason: The reason in a sentence, or empty.
    """

    value: float
    step: str
    who: str
    reason: str = ""


def own_confidence(node: Node) -> Said | None:
    """Return the lowest confidence that its tool and its critics gave the output of *node*; `None` if none did."""
    extra = node.extra
    if extra is None or node.state is not State.SUCCEEDED:
        return None
    said = [
        Said(verdict.confidence, node.id, verdict.critic, verdict.reason)
        for verdict in extra.verdicts
        if verdict.confidence is not None
    ]
    if extra.confidence is not None and extra.confidence[0] == len(node.attempts):
        said.append(Said(extra.confidence[1], node.id, node.tool.name))
    return min(said, default=None)


def confidences(graph: LiveGraph, ids: Iterable[str]) -> list[Said]:
    """Return every confidence that was given to the outputs of the steps *ids* and to their sources.

    Returns:
        At most one for each step, the lowest first.
    """
    nodes: Mapping[str, Node] = graph.nodes
    found: list[Said] = []
    seen = {id_ for id_ in ids if id_ in nodes}
    left = list(seen)
    while left:
        node = nodes[left.pop()]
        said = own_confidence(node)
        if said is not None:
            found.append(said)
        for before in (*node.plan.value_sources, *(child.id for child in node.children or ())):
            if before not in seen and before in nodes:
                seen.add(before)
                left.append(before)
    return sorted(found)


def answer_confidences(graph: LiveGraph) -> list[Said]:
    """Return every confidence that counts for the answer of the run, the lowest first."""
    if not graph.has_confidence:
        return []
    output = graph.output
    ids = [node.id for node in graph.sinks()] if output is None else list(output.sources)
    return confidences(graph, ids)


def transcript(graph: LiveGraph, most: int = 200) -> list[str]:
    """Return one line for each step of a run, for a person who judges the answer."""
    lines = []
    for node in graph.planned():
        calls = len(node.attempts)
        seconds = sum(attempt.duration for attempt in node.attempts)
        took = f" after {calls} call{'s' * (calls != 1)}, {seconds:.2f} s" if calls else ""
        said = own_confidence(node)
        sure = f"; confidence {said.value:g} by {said.who}" if said is not None else ""
        why = f": {node.reason}" if node.reason else f": {said.reason}" if said is not None and said.reason else ""
        lines.append(f"{node.id} ({node.tool.name}): {node.state}{took}{sure}{why}")
    return lines if len(lines) <= most else [*lines[:most], f"… and {len(lines) - most} more"]


def sources_of(graph: LiveGraph, node: Node) -> dict[str, Any]:
    """Return the decoded outputs that *node* depends on, by step; for a for_each, each element by itself."""
    found: dict[str, Any] = {}
    for id_ in node.plan.depends_on:
        source = graph.nodes.get(id_)
        if source is None or id_ not in node.plan.value_sources:
            continue
        for part in source.children if source.children is not None else (source,):
            if part.state is State.SUCCEEDED:
                found[part.id] = decode_or_reason(part.value)
    return found
