"""The rules of a run, by which each transition is judged."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from dagrun import Event, State
from dagrun.events import AttemptEnded, AttemptStarted, ReplanStarted, RunEnded, RunStarted, StepExpanded, StepSettled
from dagrun.kernel.graph.changes import GOAL
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.outcome import Recovery
from dagrun.kernel.runtime.record.record import Backlog
from splice_rules import queued

if TYPE_CHECKING:
    from watched import WatchedGraph

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


def _may_follow(graph: WatchedGraph, before: list[Event], event: Event) -> Iterator[str]:
    if before and event.at < before[-1].at:
        yield "time goes back"
    if event.seq != (before[-1].seq + 1 if before else 1):
        yield "out of order"
    if isinstance(event, RunStarted) != (not before):
        yield "the run does not start with its start"
    if graph.status is not None:
        yield "the run had ended"
    if isinstance(event, RunEnded) and graph.open:
        yield f"the run ends, and the planner was not asked about {graph.open}"
    if isinstance(event, ReplanStarted):
        yield from _may_be_asked(graph, before, event)
    if isinstance(event, RunEnded) and any(not node.state.is_settled for node in graph.nodes.values()):
        yield "the run ends before its steps"


def _may_be_asked(graph: WatchedGraph, before: list[Event], event: ReplanStarted) -> Iterator[str]:
    about = [_near(graph, step) for steps in graph.asked.values() for step in steps]
    if not graph.open.issuperset(event.steps) or any(
        not near.isdisjoint(_near(graph, step)) for near in about for step in event.steps
    ):
        yield f"the planner is asked about {event.steps}, while it is asked about {list(graph.asked.values())}"
    if any(graph.prints[step] in graph.seen for step in event.steps if graph.prints[step]):
        yield "the planner is asked about the very same failure again"
    if sum(1 for earlier in before if isinstance(earlier, ReplanStarted)) >= graph.plan.policy.max_replans:
        yield "the planner is asked more often than the policy says"


def _near(graph: WatchedGraph, step: str) -> set[str]:
    """A step, or the whole for_each that it is an element of, and the steps that depend on it directly.

    The goal is near everything: nothing else is asked meanwhile.
    """
    if not step:
        return set(graph.nodes)
    node = graph.nodes[step]
    whole = node if node.parent is None else node.parent
    rest = (other for other in graph.nodes.values() if not other.is_gone and other.parent is None)
    return {whole.id, *(other.id for other in rest if {whole.id, step} & set(other.plan.depends_on))}


def _may_start(graph: WatchedGraph, node: Node, event: AttemptStarted) -> Iterator[str]:
    if node.state is not State.READY or node.is_expandable:
        yield f"started while {node.state}"
    if node.is_gone:
        yield "started after it has left the plan"
    if GOAL in graph.open and not node.attempts:
        yield "started before there is a plan for the changed goal"
    if any(rule.tool == event.tool for rule in graph.plan.policy.approve):
        now = node.id, graph.book.definition(node)
        if now not in [call[:2] for call in graph.approved]:
            yield "started, and nobody has agreed to this call of it"
    if event.attempt != len(node.attempts) + 1:
        yield "attempts are miscounted"
    if any(attempt.outcome is None for attempt in node.attempts):
        yield "two attempts at once"
    yield from _dependencies(graph, node)
    yield from _again(graph, node, event)


def _again(graph: WatchedGraph, node: Node, event: AttemptStarted) -> Iterator[str]:
    last = node.attempts[-1] if node.attempts else None
    if last is not None and last.ended is not None and last.decision is not None:
        delay = last.decision.delay
        if event.at < last.ended + delay - 1e-6:
            yield f"started again before its delay of {delay} s is over"
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


def _dependencies(graph: WatchedGraph, node: Node) -> Iterator[str]:
    for id_ in node.plan.depends_on:
        need = graph.nodes[id_]
        if id_ in graph.open:
            yield f"started while the planner is asked about {id_}"
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
    wanted = State.READY if again else State.HELD if recovery is Recovery.ASK else None
    if event.state is not wanted if wanted is not None else not event.state.is_settled:
        yield f"{recovery} leads to {event.state}"
    is_surprise = recovery is Recovery.REPLAN and bool(outcome.surprise)
    if (event.state is State.SUCCEEDED) != (recovery in (Recovery.PROCEED, Recovery.DEFAULT) or is_surprise):
        yield f"{recovery} leads to {event.state}"
    if (outcome.state is State.SUCCEEDED) != (
        outcome.failure is None and (recovery is Recovery.PROCEED or is_surprise)
    ):
        yield "an outcome is taken for a success or the other way round"
    if node.is_gone and recovery is not Recovery.GIVE_UP:
        yield f"it has left the plan, and {recovery} follows"
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


def miscounted(graph: WatchedGraph) -> Iterator[str]:
    """Say which counts of *graph* differ from a recount, and which states from what they should follow from."""
    if graph.unsettled != sum(1 for node in graph.nodes.values() if not node.state.is_settled):
        yield "unsettled steps are miscounted"
    for node in graph.nodes.values():
        # What has settled is told nothing any more, and an element waits for nothing unless it is a substitute.
        if not node.state.is_settled and (node.parent is None or node.plan is not node.parent.plan):
            yield from _misplaced(graph, node)
    twice = [id_ for id_, count in Counter(queued(graph)).items() if count > 1]
    if twice := [id_ for id_ in twice if graph.nodes[id_].state is State.READY]:
        yield f"{twice} wait twice for their turn"


def _may_start_early(graph: WatchedGraph, node: Node) -> bool:
    """Whether nothing that a step may call needs a plan that has ended."""
    tools = [tool for tool in (node.plan.tool, node.plan.fallback) if tool is not None]
    return all(t.effect.is_free or t.stream_safe or t.name in graph.plan.policy.planning.stream_safe for t in tools)


def _misplaced(graph: WatchedGraph, node: Node) -> Iterator[str]:
    needs = [graph.nodes[id_] for id_ in node.plan.depends_on]
    # An element that was replaced while it ran has to end, too.
    waits_for = needs if node.children is None else [child for child in graph.nodes.values() if child.parent is node]
    if node.missing != sum(1 for need in waits_for if not need.state.is_settled):
        yield f"{node}: what it misses is miscounted"
    bad = [
        need
        for need in needs
        if need.id in graph.kept
        or (
            (need.state.is_settled and need.state is not State.SUCCEEDED)
            and (not need.is_tolerated or need.id in node.plan.value_sources)
        )
    ]
    is_held = graph.is_frozen or (graph.is_drafting and not _may_start_early(graph, node))
    held_back = bool(bad) or (is_held and not node.missing and not node.attempts)
    if node.state is State.WAITING and (bad or not node.missing):
        yield f"{node} waits for nothing, or in vain"
    if node.state is State.READY and node.missing:
        yield f"{node}, and something that it waits for has not ended"
    if node.state in (State.BLOCKED, State.READY) and (node.state is State.BLOCKED) != held_back:
        yield f"{node}, and {bad} of its dependencies are bad"


ORDINARY_PORTION: Final = Backlog.portion


def unfinished(graph: WatchedGraph) -> Iterator[str]:
    """Say what is half done; asked only between changes."""
    # Where few steps are settled in a turn, what is blocked for ever waits for the next one.
    is_later = graph.status is None and Backlog.portion < ORDINARY_PORTION
    for node in graph.nodes.values():
        is_left = node.state is State.BLOCKED and not graph.is_frozen and not is_later
        if is_left and graph.open.isdisjoint(node.plan.depends_on):
            yield f"{node} is left blocked"
        is_over = node.children is not None and not node.missing and not node.state.is_settled
        if is_over and not any(child.id in graph.open for child in node.children or ()):
            yield f"{node} is left unsettled after its last element"
