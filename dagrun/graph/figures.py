"""Figures of a run, from its graph alone: durations, usage, and the report for people who take over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dagrun.graph.fans import followers_of
from dagrun.graph.live_graph import LiveGraph
from dagrun.graph.longest_paths import remaining_paths, topological_order
from dagrun.graph.node import Node
from dagrun.model.outcome import State
from dagrun.model.usage import ModelUse


def work(graph: LiveGraph) -> float:
    """Return the seconds that all attempts took together."""
    return sum(attempt.duration for node in graph.nodes.values() for attempt in node.attempts)


def critical_path(graph: LiveGraph) -> float:
    """Return the longest chain of dependent steps by the time that each one took, back-off included, in seconds.

    Where a step needs single elements of a for_each, the chain goes through those.
    """
    nodes = {node.id: node for node in graph.planned()}
    # The plan does not ask for the barriers of waves.
    successors = {
        id_: [after.id for after in graph.after(node) if id_ not in after.plan.gates] for id_, node in nodes.items()
    }
    spans = {id_: _span(node) for id_, node in nodes.items()}
    if any(node.extra is not None and node.extra.followers for node in nodes.values()):
        _go_by_element(nodes, successors, spans)
    degree = dict.fromkeys(successors, 0)
    for after in successors.values():
        for id_ in after:
            degree[id_] += 1
    order = topological_order(successors, degree)
    return max(remaining_paths(order, successors, spans.__getitem__).values(), default=0.0)


def _go_by_element(nodes: Mapping[str, Node], successors: dict[str, list[str]], spans: dict[str, float]) -> None:
    """Insert the elements of each for_each between its beginning and its end, and link their own dependents to them."""
    fans = [node for node in nodes.values() if node.children]
    for fan in fans:
        children, end, work = fan.children or [], f"{fan.id} ends", f"{fan.id} in all"
        successors[end] = successors[fan.id]
        successors[fan.id] = [work, *(child.id for child in children)]
        successors[work], spans[end] = [end], 0.0
        spans[work] = spans[fan.id] if fan.plan.step.max_parallel is not None else 0.0
        spans[fan.id] = 0.0
        for child in children:
            spans[child.id], successors[child.id] = _span_of_calls(child), [end]
    for fan in fans:
        for child in fan.children or ():
            successors[child.id] += (after.id for after in followers_of(child) if after.id in successors)
        for after in fan.extra.followers if fan.extra is not None else ():
            if after.id in nodes:
                successors[f"{fan.id} ends"].remove(after.id)
                successors[fan.id].append(after.id)


def _span(node: Node) -> float:
    """Return the least seconds that a step can take: its attempts and the delays between them.

    For a for_each that is its longest element, or the work of all elements divided by its own ``max_parallel``. A limit
    of the policy that kept elements waiting is not counted.
    """
    if not node.children:
        return _span_of_calls(node)
    spans = [_span_of_calls(child) for child in node.children]
    return max(*spans, sum(spans) / (node.plan.step.max_parallel or len(spans)))


def _span_of_calls(node: Node) -> float:
    attempts = node.attempts
    return attempts[-1].started + attempts[-1].duration - attempts[0].started if attempts else 0.0


def used(graph: LiveGraph) -> ModelUse:
    """Return the usage reported by all attempts, and by the models of the planner and the critics."""
    total = replace(graph.models)
    for node in graph.nodes.values():
        add_usage(total, node)
    return total


def add_usage(total: ModelUse, node: Node) -> None:
    """Add the usage reported by the attempts of one step to *total*."""
    for attempt in node.attempts:
        for call in (attempt.outcome, attempt.hedge):
            if call is not None:
                total.add(call.tokens, call.cost)


def handoff(graph: LiveGraph, reason: str) -> dict[str, Any]:
    """Return the report for people who take over a run: the work done, tried and left open.

    Args:
        graph: The state of the run.
        reason: Why the run was handed to people.
    """
    nodes = list(graph.planned())
    return {
        "reason": reason,
        "goal": graph.goal,
        "done": [node.id for node in nodes if node.state is State.SUCCEEDED],
        "tried": [_tried(node) for node in nodes if node.attempts and node.state is not State.SUCCEEDED],
        "undecided": [
            {"step": node.id, "state": str(node.state), "reason": node.reason}
            for node in nodes
            if node.state is State.UNKNOWN or (not node.attempts and node.state is not State.SUCCEEDED)
        ],
        "revisions": [
            {"number": r.number, "origin": r.origin, "reason": r.reason, "did": str(r.consequence)}
            for r in graph.revisions
        ],
    }


def _tried(node: Node) -> dict[str, Any]:
    return {
        "step": node.id,
        "state": str(node.state),
        "reason": node.reason,
        "attempts": [
            {"tool": a.tool, "decision": a.decision.reason if a.decision is not None else ""} for a in node.attempts
        ],
    }
