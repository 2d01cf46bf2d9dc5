"""What it does to the live graph that a run is suspended, goes on, is opened again, or ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagrun.model.call_event import ModelCharged, ModelReserved, PlannerAsked
from dagrun.model.event import CeilingNear, RunEnded, RunReopened, RunResumed, RunStopping, RunSuspended
from dagrun.model.outcome import Recovery, State

if TYPE_CHECKING:
    from dagrun.graph.live import LiveGraph
    from dagrun.graph.node import Node


def run_ended(graph: LiveGraph, event: RunEnded) -> None:
    """Nothing happens any more."""
    graph.status, graph.reason = event.status, event.reason


def ceiling_near(graph: LiveGraph, event: CeilingNear) -> None:
    """Optional steps are dropped from now on."""
    graph.saving = event


def run_suspended(graph: LiveGraph, event: RunSuspended) -> None:
    """Nothing more happens until the run is resumed."""
    graph.status, graph.reason = event.status, event.reason


def run_stopping(graph: LiveGraph, event: RunStopping) -> None:
    """The run is being ended early."""
    graph.stopping = (event.status, event.reason)


def run_resumed(graph: LiveGraph, event: RunResumed) -> None:
    """The run goes on: what was held and has no question open is asked about anew."""
    graph.status, graph.reason = None, ""
    asked_about = {question.step for question in graph.questions.values()}
    for node in graph.nodes.values():
        if node.state is State.HELD and node.id not in asked_about and not node.is_in_flight and not _has_failed(node):
            graph.release(node)


def _has_failed(node: Node) -> bool:
    """Whether a person is needed because of how its last attempt has ended, and not before the next one begins."""
    decision = node.attempts[-1].decision if node.attempts else None
    return decision is not None and decision.recovery not in (Recovery.RETRY, Recovery.FALL_BACK)


def run_reopened(graph: LiveGraph, event: RunReopened) -> None:
    """Steps that had settled are open again, and everything that waits for them waits once more."""
    nodes = [graph.nodes[id_] for id_ in event.steps]
    graph.status, graph.reason = None, ""
    graph.stopping = None  # what ended the run early would end it again, before anything could be settled
    for node in nodes:
        graph.unsettled += 1
        if node.parent is not None:
            node.parent.missing += 1
        node.ended, node.value, node.is_tolerated = None, None, False
        node.state = State.BLOCKED
    for node in nodes:
        _open(graph, node)
    again = {after.id: after for node in nodes for after in node.successors}
    for after in again.values():
        if _may_wait_again(after):
            graph.reassess(after)


def _may_wait_again(node: Node) -> bool:
    busy = node.is_in_flight or node.is_under_review or node.children is not None or node.state is State.HELD
    return not (busy or node.state.is_settled or node.is_gone)


def _open(graph: LiveGraph, node: Node) -> None:
    """Put a step that is open again where it stands."""
    if node.children is not None:
        node.state = State.RUNNING
    elif node.is_in_doubt and not node.tool.effect.may_repeat:
        node.state = State.HELD
    elif node.attempts or node.is_defined_by_parent:
        node.state = State.READY
        graph.frontier.push(node)
    else:
        graph.reassess(node)


def planner_asked(graph: LiveGraph, event: PlannerAsked) -> None:
    """The planner is called once more."""
    graph.planner_calls = event.number


def model_reserved(graph: LiveGraph, event: ModelReserved) -> None:
    """A model that no tool calls is about to be called."""
    graph.model_calls[event.number] = (event, None)


def model_charged(graph: LiveGraph, event: ModelCharged) -> None:
    """Its call has ended."""
    graph.model_calls[event.number] = (graph.model_calls[event.number][0], event)
