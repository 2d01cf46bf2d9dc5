"""Figures of a run, from its graph alone: durations, usage, and the report for people who take over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.mapped_steps import followers_of
from dagrun.kernel.graph.node import Node
from dagrun.kernel.graph.step_order import remaining_paths, topological_order
from dagrun.kernel.model.outcome import PROCEED, Recovery, State
from dagrun.kernel.model.usage import ModelUse


class RunFigures:
    """Sums over the steps of a run. Changed steps are counted again by `take`.

    Args:
        graph: The state of the run.

    Attributes:
        counts: Steps of the current plan by state, without the elements of for_each.
        calls: Calls of each tool, with hedges.
        decided: Attempts by what recovery has decided, unless it was to proceed.
        in_flight: The steps with a call that has not ended.
        work: The seconds that all attempts took together.
    """

    def __init__(self, graph: LiveGraph) -> None:
        self.counts: Counter[State] = Counter()
        self.calls: Counter[str] = Counter()
        self.decided: Counter[Recovery] = Counter()
        self.in_flight: dict[str, Node] = {}
        self.work = 0.0
        self._usage = ModelUse()
        self._graph = graph
        self._parts: dict[str, _Part] = {}
        self.take(graph.nodes)

    @property
    def used(self) -> ModelUse:
        """The usage reported by all attempts, and by the models of the planner and the critics."""
        total = replace(self._graph.models)
        _add_usage(total, self._usage, 1)
        return total

    def take(self, steps: Iterable[str]) -> None:
        """Count some steps, also those that were counted before."""
        nodes, parts = self._graph.nodes, self._parts
        for id_ in steps:
            node = nodes[id_]
            if id_ in parts:
                self._add(parts[id_], -1)
            if node.latest is not None and node.latest.outcome is None:
                self.in_flight[id_] = node
            else:
                self.in_flight.pop(id_, None)
            is_planned = node.parent is None and (node.extra is None or not node.is_gone)
            part = parts[id_] = _Part(node.state if is_planned else None, *_sums(node))
            self._add(part, 1)

    def _add(self, part: _Part, sign: int) -> None:
        state, work, tools, decided, usage = part
        if state is not None:
            self.counts[state] += sign
        for tool in tools:
            self.calls[tool] += sign
        for recovery in decided:
            self.decided[recovery] += sign
        self.work += sign * work
        if usage is not None:
            _add_usage(self._usage, usage, sign)


class _Part(NamedTuple):
    """The share of one step: its state if it is in the plan; the seconds, tools, decisions and usage of its calls."""

    state: State | None
    work: float = 0.0
    tools: tuple[str, ...] = ()
    decided: tuple[Recovery, ...] = ()
    usage: ModelUse | None = None


def _sums(node: Node) -> tuple[Any, ...]:
    call = node.latest
    if call is None:
        return ()
    outcome = call.outcome
    is_plain = outcome is None or (call.decision is PROCEED and not outcome.tokens and outcome.cost is None)
    if is_plain and not node.earlier and call.hedge is None:
        return call.duration, (call.tool,)
    usage, attempts = ModelUse(), node.attempts
    reports = [report for attempt in attempts for report in (attempt.outcome, attempt.hedge) if report is not None]
    for report in reports:
        usage.add(report.tokens, report.cost)
    made = tuple(attempt.tool for attempt in attempts for _ in range(1 if attempt.hedge is None else 2))
    decided = tuple(attempt.decision.recovery for attempt in attempts if attempt.decision is not None)
    return sum(attempt.duration for attempt in attempts), made, decided, usage


def _add_usage(total: ModelUse, usage: ModelUse, sign: int) -> None:
    total.tokens += sign * usage.tokens
    total.known_cost += sign * usage.known_cost
    total.unpriced += sign * usage.unpriced


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
