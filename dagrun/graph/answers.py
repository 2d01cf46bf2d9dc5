"""What the answers of planners and people do to the live graph: the part of `LiveGraph.apply` about asking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagrun.graph.drafts import thaw
from dagrun.graph.history import PastReplan
from dagrun.model.call_event import PlannerCalled
from dagrun.model.event import (
    PatchRefused,
    QuestionAnswered,
    QuestionAsked,
    ReplanEnded,
    ReplanRequested,
    ReplanStarted,
    StepResumed,
)
from dagrun.model.outcome import State, Status, TriggerKind
from dagrun.model.question import Answer, Asked, Question
from dagrun.model.value import encode

if TYPE_CHECKING:
    from dagrun.graph.live import LiveGraph
    from dagrun.graph.node import Node

GOAL = ""  # stands for the goal among the ids of steps


def replan_requested(graph: LiveGraph, event: ReplanRequested) -> None:
    """There is one more reason to ask the planner."""
    graph.triggers[event.trigger.step] = event.trigger


def replan_started(graph: LiveGraph, event: ReplanStarted) -> None:
    """The planner is asked."""
    graph.replans += 1
    graph.asking = graph.replans


def replan_ended(graph: LiveGraph, event: ReplanEnded) -> None:
    """The planner was asked, or could not be; what waited only for that goes on."""
    graph.asking = 0
    graph.replanned.append(PastReplan(event.result, event.fingerprints, event.signature))
    changed = event.result in ("applied", "repaired")
    for step in event.steps:
        trigger = graph.triggers.pop(step, None)
        if trigger is not None and trigger.kind is TriggerKind.SURPRISE and not changed:
            graph.warnings.append(
                f"{step} was surprising ({trigger.reason}), and the plan was not changed: {event.reason}"
            )
        elif not changed and _is_unrepaired(graph, step, event.result):
            graph.why_unchanged = event.reason
        if step == GOAL:
            graph.wants_more = event.more
            if changed or event.result == "unchanged":
                graph.problems, graph.has_plan = (), True
            thaw(graph)
        else:
            graph.let_go(graph.nodes[step], "replan")


def _is_unrepaired(graph: LiveGraph, step: str, result: str) -> bool:
    """Whether a request that has changed nothing leaves its cause as it was."""
    return result != "unchanged" if step == GOAL else not graph.nodes[step].is_gone


def patch_refused(graph: LiveGraph, event: PatchRefused) -> None:
    """A patch came to nothing; if it was to be the first plan, there still is none."""
    goal = graph.triggers.get(GOAL)
    if goal is not None and goal.kind is TriggerKind.GOAL_GIVEN and event.origin == "planner":
        graph.problems = event.problems


def planner_called(graph: LiveGraph, event: PlannerCalled) -> None:
    """The planner was called once more, and its models have used something."""
    graph.models.add(event.tokens, event.cost)


def question_asked(graph: LiveGraph, event: QuestionAsked) -> None:
    """A person must answer; the step that it is about is held, unless it has settled."""
    question = event.question
    graph.questions[question.id] = question
    if question.kind is Asked.OUTPUT:
        graph.shown_output = question.arguments
    if not question.step:
        return
    node = graph.nodes[question.step]
    extra = node.make_extra()
    extra.asked += 1
    if not node.state.is_settled:
        node.state = State.HELD
        # Before that its deadline does not run yet.
        extra.held_since = event.at if node.attempts or node.parent is not None else None


def question_answered(graph: LiveGraph, event: QuestionAnswered) -> None:
    """A question is no longer open."""
    question = graph.questions.pop(event.question)
    if not event.step:
        if question.kind is Asked.OUTPUT:
            graph.withheld = _withheld(event.answer)
        return
    node = graph.nodes[event.step]
    if not node.is_in_flight:  # else it still waits for a place to go on
        _end_wait(node, event.at)
    if event.answer is not None:
        _note(node, question, event.answer)
    if question.kind is Asked.PERMISSION and event.state is State.READY and not _is_yes(event.answer):
        node.on_fallback = True
    if question.kind is Asked.PAUSE and node.state.is_settled:
        graph.let_go(node, "pause")
    elif event.state is State.READY:
        graph.release(node)
    elif event.state is not None:
        node.state = event.state


def _withheld(answer: Answer | None) -> tuple[Status, str] | None:
    """How the run ends after the question whether its answer may be handed out; `None` if it may."""
    if answer is None:
        return Status.WAITING, "nobody was there to let the answer out"
    if answer.choice == "approve":
        return None
    return Status.FAILED, "a person did not let the answer out" + (f": {answer.note}" if answer.note else "")


def step_resumed(graph: LiveGraph, event: StepResumed) -> None:
    """A step goes on that has asked a person in the middle of its work."""
    node = graph.nodes[event.step]
    node.state = State.RUNNING
    _end_wait(node, event.at)


def _end_wait(node: Node, at: float) -> None:
    extra = node.extra
    if extra is not None and extra.held_since is not None:
        extra.held += at - extra.held_since
        extra.held_since = None


def _is_yes(answer: Answer | None) -> bool:
    return answer is not None and answer.choice == "approve"


def _note(node: Node, question: Question, answer: Answer) -> None:
    """Keep with the step what a yes, or a known effect, changes about its next attempt."""
    extra = node.make_extra()
    match question.kind, answer.choice:
        case Asked.APPROVAL, "approve":
            extra.approved = question.id
        case Asked.PAUSE, "approve":
            extra.is_passed = True
        case Asked.INPUT, "approve" if question.name:
            extra.given[question.name] = encode(answer.value)
            extra.generation += 1  # surely nothing has happened, and the arguments differ: it is another call
            extra.forgiven = len(node.attempts)
        case Asked.PERMISSION, "approve":
            extra.forgiven = len(node.attempts)
        case Asked.EFFECT, "deny":  # it surely did not take effect: the next call is another one
            extra.generation += 1
            extra.forgiven = extra.cleared = len(node.attempts)
