"""The rules of a run, checked at every transition: by parts that watch themselves while they do their work."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dagrun.graph.frontier import Cap, Frontier
from dagrun.graph.live import LiveGraph, Node
from dagrun.model.event import AttemptEnded, AttemptStarted, Event, RunEnded, RunStarted, StepExpanded, StepSettled
from dagrun.model.outcome import Recovery, State

MAX_EVENTS: Final = 5_000  # no case needs so many: a run that makes more would go on for ever


class Runaway(Exception):
    """A run makes events without end."""


@dataclass
class Watch:
    """What happened in a simulation, and every rule that was broken.

    Attributes:
        broken: The rules, in words.
        frontiers: All that were made.
        taken_under: How many steps were taken and not given back, by cap.
        is_interrupted: Whether the code around a run was cancelled. The alarms of the run end with that: a step that
            will not stop is then dropped the next time that it suspends, which may be after its grace period.
    """

    broken: list[str] = field(default_factory=list)
    frontiers: list[WatchedFrontier] = field(default_factory=list)
    taken_under: Counter[Cap] = field(default_factory=Counter)
    is_interrupted: bool = False

    def parts(self, replacements: Mapping[Any, Any]) -> dict[Any, Any]:
        """Replacements that watch: those given, or else the parts themselves."""
        graph, frontier = replacements.get(LiveGraph, LiveGraph), replacements.get(Frontier, Frontier)
        watched = {
            LiveGraph: type("AnyWatchedGraph", (WatchedGraph, graph), {"watch": self}),
            Frontier: type("AnyWatchedFrontier", (WatchedFrontier, frontier), {"watch": self}),
        }
        return dict(replacements) | watched


class WatchedGraph(LiveGraph):
    """Checks each event before it is applied, and itself afterwards."""

    watch: Watch

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.applied: list[Event] = []

    def apply(self, event: Event) -> None:
        before = [f"{problem}, by {event}" for problem in may_happen(self, self.applied, event)]
        super().apply(event)
        self.applied.append(event)
        after = [f"{problem}, after {event}" for problem in miscounted(self)]
        self.watch.broken += (before + after)[:20]
        if len(self.applied) > MAX_EVENTS:
            raise Runaway


class WatchedFrontier(Frontier):
    """Checks that each step is taken once and given back once, and that the counts of its caps are right."""

    watch: Watch

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.taken: list[Node] = []
        self.watch.frontiers.append(self)

    def take(self) -> Node | None:
        node = super().take()
        if node is not None:
            if node in self.taken or node.state is not State.READY:
                self.watch.broken.append(f"{node} was taken while it ran, or was not ready")
            self.taken.append(node)
            self._count(node, 1)
        return node

    def release(self, node: Node) -> None:
        if node not in self.taken:
            self.watch.broken.append(f"{node} was given back and had not been taken")
        else:
            self.taken.remove(node)
            self._count(node, -1, is_settled=False)
        super().release(node)
        self._compare(node)

    def _caps(self, node: Node) -> list[Cap]:
        if self._priorities is None:
            return []
        return [*node.caps, self._total] if self._total is not None else list(node.caps)

    def _count(self, node: Node, change: int, *, is_settled: bool = True) -> None:
        for cap in self._caps(node):
            self.watch.taken_under[cap] += change
        if is_settled:
            self._compare(node)

    def _compare(self, node: Node) -> None:
        for cap in self._caps(node):
            if cap.used != self.watch.taken_under[cap]:
                self.watch.broken.append(f"a cap counts {cap.used}, but {self.watch.taken_under[cap]} were taken")
            if cap.used > cap.limit:
                self.watch.broken.append(f"{cap.used} run under a cap of {cap.limit}")


# What may happen ------------------------------------------------------------------------------------------------------


def may_happen(graph: WatchedGraph, before: list[Event], event: Event) -> Iterator[str]:
    """Say why *event* must not happen now."""
    yield from _may_follow(graph, before, event)
    match event:
        case AttemptStarted():
            yield from _may_start(graph, graph.nodes[event.step], event)
        case AttemptEnded():
            grace = math.inf if graph.watch.is_interrupted else graph.plan.policy.grace
            yield from _may_end(graph.nodes[event.step], event, grace)
        case StepSettled():
            yield from _may_settle(graph.nodes[event.step], event)
        case StepExpanded():
            node = graph.nodes[event.step]
            if node.state is not State.READY or not node.is_expandable:
                yield "expanded, but it has no list or was not ready"
            yield from _dependencies(graph, node)


def _may_follow(graph: LiveGraph, before: list[Event], event: Event) -> Iterator[str]:
    if before and event.at < before[-1].at:
        yield "time goes back"
    if (event.seq <= before[-1].seq) if before else (event.seq != 1):
        yield "out of order"
    if isinstance(event, RunStarted) != (not before):
        yield "the run does not start with its start"
    if graph.status is not None:
        yield "the run had ended"
    if isinstance(event, RunEnded) and any(not node.state.is_settled for node in graph.nodes.values()):
        yield "the run ends before its steps"


def _may_start(graph: LiveGraph, node: Node, event: AttemptStarted) -> Iterator[str]:
    if node.state is not State.READY or node.is_expandable:
        yield f"started while {node.state}"
    if event.attempt != len(node.attempts) + 1:
        yield "attempts are miscounted"
    if any(attempt.outcome is None for attempt in node.attempts):
        yield "two attempts at once"
    yield from _dependencies(graph, node)
    for attempt in node.attempts:
        outcome = attempt.outcome
        in_doubt = outcome is not None and outcome.state is State.UNKNOWN
        if in_doubt and not graph.plan.toolbox[attempt.tool].effect.may_repeat:
            yield "started again though an effect is in doubt"
    made = sum(1 for attempt in node.attempts if attempt.tool == event.tool and not _was_stray(attempt.outcome))
    rule = node.plan.step.retry or graph.plan.policy.retry
    if made >= rule.max_attempts:
        yield f"more than {rule.max_attempts} attempts"


def _was_stray(outcome: Any) -> bool:
    return outcome is not None and outcome.failure is not None and outcome.failure.kind == "stray_cancellation"


def _dependencies(graph: LiveGraph, node: Node) -> Iterator[str]:
    for id_ in node.plan.depends_on:
        need = graph.nodes[id_]
        if not need.state.is_settled:
            yield f"started before {id_} had ended"
        elif need.state is not State.SUCCEEDED and (not need.is_tolerated or id_ in node.plan.value_sources):
            yield f"started though {id_} is {need.state}"
    if node.parent is not None and node.parent.state is not State.RUNNING:
        yield "an element starts outside its for_each"


def _may_end(node: Node, event: AttemptEnded, grace: float) -> Iterator[str]:
    if node.state is not State.RUNNING:
        yield f"an attempt ends while the step is {node.state}"
    last = node.attempts[-1] if node.attempts else None
    if last is None or last.outcome is not None or last.number != event.attempt:
        yield "an attempt ends that does not run"
        return
    outcome, recovery = event.outcome, event.decision.recovery
    again = recovery in (Recovery.RETRY, Recovery.FALL_BACK)
    if again != (event.state is State.READY) or not (again or event.state.is_settled):
        yield f"{recovery} leads to {event.state}"
    if (event.state is State.SUCCEEDED) != (recovery in (Recovery.PROCEED, Recovery.DEFAULT)):
        yield f"{recovery} leads to {event.state}"
    if (outcome.state is State.SUCCEEDED) != (recovery is Recovery.PROCEED and outcome.failure is None):
        yield "an outcome is taken for a success or the other way round"
    limit = node.plan.timeout
    if limit is not None and event.at - last.started > limit + 1e-6 and outcome.state is State.SUCCEEDED:
        yield "a value came after its deadline, and was used"
    if limit is not None and event.at - last.started > limit + grace + 1e-6:
        yield "an attempt went on after its deadline and the grace period"


def _may_settle(node: Node, event: StepSettled) -> Iterator[str]:
    has_open_attempt = bool(node.attempts) and node.attempts[-1].outcome is None
    if node.state.is_settled or has_open_attempt or not event.state.is_settled:
        yield f"settled as {event.state} while {node.state}"
    if node.children is not None and any(not child.state.is_settled for child in node.children):
        yield "settled before its elements"
    if node.state is State.RUNNING and node.children is None:
        yield "settled while it runs"
    if event.state is State.SUCCEEDED and node.children is None and not event.is_default:
        yield "succeeded, and was never called"


# Counts ---------------------------------------------------------------------------------------------------------------


def miscounted(graph: LiveGraph) -> Iterator[str]:
    """Say which counts of *graph* differ from a recount, and which states from what they should follow from."""
    if graph.unsettled != sum(1 for node in graph.nodes.values() if not node.state.is_settled):
        yield "unsettled steps are miscounted"
    for node in graph.planned():
        needs = [graph.nodes[id_] for id_ in node.plan.depends_on]
        waits_for = needs if node.children is None else node.children
        if node.missing != sum(1 for need in waits_for if not need.state.is_settled):
            yield f"{node}: what it misses is miscounted"
        bad = [
            need
            for need in needs
            if need.state.is_settled and need.state is not State.SUCCEEDED
            if not need.is_tolerated or need.id in node.plan.value_sources
        ]
        if node.state is State.WAITING and (bad or not node.missing):
            yield f"{node} waits for nothing, or in vain"
        if node.state in (State.BLOCKED, State.READY) and (node.state is State.BLOCKED) != bool(bad):
            yield f"{node}, and {bad} of its dependencies are bad"


def unfinished(graph: LiveGraph) -> Iterator[str]:
    """Say what is half done; asked only between changes."""
    for node in graph.nodes.values():
        if node.state is State.BLOCKED:
            yield f"{node} is left blocked"
        if node.children is not None and not node.missing and not node.state.is_settled:
            yield f"{node} is left unsettled after its last element"
