"""What must hold of a run that is over: judged by its events alone, and by what the tools themselves saw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from acts import MOST_TOKENS, Stage
from dagrun import Event, Policy, State
from dagrun.cli.terminal.event_lines import as_dict
from dagrun.events import (
    AttemptEnded,
    AttemptStarted,
    Progress,
    ReplanEnded,
    RunEnded,
    Spliced,
    StepExpanded,
    StepSettled,
)
from dagrun.kernel.graph.changes import apply
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node
from dagrun.kernel.graph.step_order import Frontier
from dagrun.kernel.model.outcome import ErrorKind
from dagrun.kernel.model.value import decode
from watched import WatchedGraph


def trace_of(events: Sequence[Event]) -> str:
    """Everything that happened, and when; only the time of day is left out."""
    return "\n".join(
        str({name: part for name, part in as_dict(event).items() if name != "wall_time"}) for event in events
    )


def judge(graph: WatchedGraph, applied: Sequence[Event], seen: Sequence[Event], stage: Stage | None) -> Iterator[str]:
    """Say what is wrong with a run that is over.

    Args:
        graph: Its last state.
        applied: The events that changed it.
        seen: The events that an observer was shown from the start.
        stage: The log of the tools, if they keep one.
    """
    yield from _is_complete(graph, applied, seen)
    yield from _replays(graph, applied)
    yield from exceeded_caps(graph, applied)
    yield from _spends(graph, applied)
    if stage is not None:
        yield from _agrees_with(stage, graph)


def _is_complete(graph: LiveGraph, applied: Sequence[Event], seen: Sequence[Event]) -> Iterator[str]:
    if left := [node for node in graph.nodes.values() if not node.state.is_settled]:
        yield f"not settled: {left}"
    numbers = accumulate(0 if isinstance(event, Progress) else 1 for event in seen)  # progress changes no state
    if [event.seq for event in seen] != list(numbers):
        yield "the events that an observer saw have gaps, or another order"
    if [event for event in seen if not isinstance(event, Progress)] != list(applied):
        yield "an observer saw something else than what happened"
    ends = [event for event in seen if isinstance(event, RunEnded)]
    if len(ends) != 1 or seen[-1] is not ends[0]:
        yield f"the run ended {len(ends)} times, or something happened after that"
    started = [(event.step, event.attempt) for event in seen if isinstance(event, AttemptStarted)]
    ended = [(event.step, event.attempt) for event in seen if isinstance(event, AttemptEnded)]
    if sorted(started) != sorted(ended) or len(set(ended)) != len(ended):
        yield "not every attempt ended once"


class _Nobody(Frontier):
    """Where ready steps go when nobody takes them."""

    def push(self, node: Node) -> None:
        pass


def _replays(graph: LiveGraph, applied: Sequence[Event]) -> Iterator[str]:
    again = LiveGraph(graph.plan, graph.inputs, _Nobody())
    for event in applied:
        apply(again, event)
    if (again.status, again.reason, again.unsettled) != (graph.status, graph.reason, graph.unsettled):
        yield "a replay ends otherwise than its run"
    if _state_of(again) != _state_of(graph):
        yield "a replay gives other steps than its run"


def _state_of(graph: LiveGraph) -> dict[str, Any]:
    return {
        id_: (node.state, node.missing, decode(node.value), node.is_tolerated, node.on_fallback, node.attempts)
        for id_, node in graph.nodes.items()
    }


def _agrees_with(stage: Stage, graph: WatchedGraph) -> Iterator[str]:
    """Compare the record with what the tools saw: each attempt called once, and no value made up or mixed up."""
    calls = sorted(stage.entered)
    attempts = sorted((id_, attempt.number) for id_, node in graph.nodes.items() for attempt in node.attempts)
    never_called = {
        (id_, attempt.number)
        for id_, node in graph.nodes.items()
        for attempt in node.attempts
        if attempt.outcome and attempt.outcome.failure and attempt.outcome.failure.kind is ErrorKind.BAD_ARGUMENTS
    }
    if calls != [attempt for attempt in attempts if attempt not in never_called]:
        yield "the calls that the tools saw are not the attempts in the record"
    for id_, node in graph.nodes.items():
        for attempt in node.attempts:
            if (id_, attempt.number) in stage.got and any(r.tool == attempt.tool for r in graph.plan.policy.approve):
                yield from _not_approved(graph, node, stage.got[id_, attempt.number])
        outcome = node.attempts[-1].outcome if node.attempts else None
        if outcome is None or outcome.state is not State.SUCCEEDED:
            continue
        if decode(node.value) != stage.returned.get((id_, node.attempts[-1].number)):
            yield f"{id_} has a value that its tool did not give"


def _not_approved(graph: WatchedGraph, node: Node, got: tuple[Any, int]) -> Iterator[str]:
    agreed = [args for id_, _, args in graph.approved if id_ == node.id]
    if got not in [(args.get("feed"), args.get("item", 0)) for args in agreed]:
        yield f"{node} was called with {got}, and a person has agreed to {agreed}"


def _spends(graph: LiveGraph, applied: Sequence[Event]) -> Iterator[str]:
    """Count tokens by the events alone: what calls have used, and what those that run may use at worst."""
    limit, spent = graph.plan.policy.max_tokens, 0
    running: set[str] = set()
    for event in applied if limit is not None else ():
        if isinstance(event, AttemptStarted):
            running.add(event.step)
        if isinstance(event, AttemptEnded):
            running.discard(event.step)
            spent += event.outcome.tokens or MOST_TOKENS
        if limit is not None and spent + len(running) * MOST_TOKENS > limit:
            yield f"{spent} tokens are spent and {len(running)} calls run at {event.at}, the ceiling is {limit}"


def exceeded_caps(graph: LiveGraph, applied: Sequence[Event]) -> Iterator[str]:
    """Count what runs, by the events alone, against every limit of the policy and of the steps."""
    policy = graph.plan.policy
    running: set[str] = set()
    for event in applied:
        if isinstance(event, AttemptEnded):
            running.discard(event.step)
        if isinstance(event, AttemptStarted):
            running.add(event.step)
            yield from (f"{problem} at {event.at}" for problem in _over(graph, policy, running))


def _over(graph: LiveGraph, policy: Policy, running: set[str]) -> Iterator[str]:
    nodes = [graph.nodes[id_] for id_ in running]
    if policy.max_running is not None and len(nodes) > policy.max_running:
        yield f"{len(nodes)} run, the limit is {policy.max_running}"
    for tool, limit in policy.max_running_by_tool.items():
        if (count := sum(1 for node in nodes if node.plan.tool.name == tool)) > limit:
            yield f"{count} run of {tool}, the limit is {limit}"
    for pool, limits in policy.pools.items():
        if limits.max_running and (count := sum(1 for node in nodes if node.plan.pool == pool)) > limits.max_running:
            yield f"{count} run in {pool}, the limit is {limits.max_running}"
    for parent in {node.parent for node in nodes if node.parent is not None}:
        limit_ = parent.plan.step.max_parallel
        if limit_ is not None and (count := sum(1 for node in nodes if node.parent is parent)) > limit_:
            yield f"{count} elements of {parent.id} run, the limit is {limit_}"


def count(events: Sequence[Event]) -> Counter[str]:
    """What was exercised, by name."""
    counts = Counter({"events": len(events)})
    for event in events:
        counts["expansions"] += isinstance(event, StepExpanded)
        if isinstance(event, Spliced):
            counts[f"spliced by the {event.origin}"] += 1
        if isinstance(event, ReplanEnded):
            counts[f"replan {event.result}"] += 1
        if isinstance(event, AttemptEnded):
            counts["attempts"] += 1
            counts[str(event.decision.recovery)] += 1
        if isinstance(event, AttemptEnded | StepSettled) and event.state.is_settled:
            counts[str(event.state)] += 1
    return counts
