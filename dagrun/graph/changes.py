"""What it does to the live graph that a run is suspended, goes on, is opened again, or ends."""

from __future__ import annotations

from dagrun.graph.caps import Cap
from dagrun.graph.live_graph import LiveGraph, freeze, thaw
from dagrun.graph.node import Node
from dagrun.graph.patches.apply_patch import change_goal, splice
from dagrun.graph.plan_history import PastReplan
from dagrun.model import event as events
from dagrun.model.event import (
    AttemptEnded,
    AttemptStarted,
    CeilingNear,
    DraftEnded,
    DraftStarted,
    Hedged,
    HedgeEnded,
    ModelCharged,
    ModelReserved,
    PatchRefused,
    PlannerAsked,
    PlannerCalled,
    QuestionAnswered,
    QuestionAsked,
    ReplanEnded,
    ReplanRequested,
    ReplanStarted,
    RunEnded,
    RunReopened,
    RunResumed,
    RunStarted,
    RunStopping,
    RunSuspended,
    StepExpanded,
    StepResumed,
    StepSettled,
)
from dagrun.model.outcome import Hedge, Recovery, State, Status, TriggerKind
from dagrun.model.question import Answer, Asked, Question
from dagrun.model.value import encode


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


def step_expanded(graph: LiveGraph, event: StepExpanded) -> None:
    """Make a step of each element, and let it start."""
    parent = graph.nodes[event.step]
    parent.state = State.RUNNING
    parent.children = children = []
    parent.expanded = event.at
    parent.missing = len(event.items)
    limit = parent.plan.step.max_parallel
    caps = parent.caps if limit is None else (*parent.caps, Cap(limit))
    for index, item in enumerate(event.items):
        child = Node(f"{parent.id}[{index}]", parent.plan, parent.order)
        child.parent, child.index, child.item, child.caps = parent, index, item, caps
        children.append(child)
        graph.nodes[child.id] = child
        if child.id in graph.roots:
            graph.inherit_root(child)
        graph.frontier.push(child)
    graph.unsettled += len(children)


def draft_started(graph: LiveGraph, event: DraftStarted) -> None:
    """A planner writes the plan."""
    graph.goal = event.goal
    graph.is_drafting = True
    graph.is_frozen = event.is_held


def draft_ended(graph: LiveGraph, event: DraftEnded) -> None:
    """The plan is ended: all of it may run, or what has not started waits for a better one."""
    graph.is_drafting = False
    graph.draft_end = (event.result, event.reason)
    graph.problems = event.problems
    if event.result == "applied":
        graph.wants_more, graph.has_plan = event.more, True
        if not graph.triggers.get(""):  # else the goal is another one now
            thaw(graph)
    else:
        freeze(graph)


def hedged(graph: LiveGraph, event: Hedged) -> None:
    """A second call is made."""
    graph.nodes[event.step].attempts[-1].hedge = Hedge(event.at)


def hedge_ended(graph: LiveGraph, event: HedgeEnded) -> None:
    """It has ended."""
    hedge = graph.nodes[event.step].attempts[-1].hedge
    assert hedge is not None
    hedge.ended, hedge.has_won, hedge.fault = event.at, event.has_won, event.fault
    hedge.tokens, hedge.cost = event.tokens, event.cost


LiveGraph.changes = {
    RunStarted: LiveGraph._run_started,
    AttemptStarted: LiveGraph._attempt_started,
    AttemptEnded: LiveGraph._attempt_ended,
    StepSettled: LiveGraph._step_settled,
    events.StepExpanded: step_expanded,
    RunEnded: run_ended,
    events.Reviewed: LiveGraph._reviewed,
    events.Spliced: splice,
    events.GoalChanged: change_goal,
    events.ReplanRequested: replan_requested,
    events.ReplanStarted: replan_started,
    events.ReplanEnded: replan_ended,
    events.QuestionAsked: question_asked,
    events.QuestionAnswered: question_answered,
    events.StepResumed: step_resumed,
    events.PatchRefused: patch_refused,
    events.DraftStarted: draft_started,
    events.DraftEnded: draft_ended,
    PlannerCalled: planner_called,
    events.CeilingNear: ceiling_near,
    events.RunSuspended: run_suspended,
    events.RunResumed: run_resumed,
    events.RunReopened: run_reopened,
    events.RunStopping: run_stopping,
    PlannerAsked: planner_asked,
    ModelReserved: model_reserved,
    ModelCharged: model_charged,
    Hedged: hedged,
    HedgeEnded: hedge_ended,
}
