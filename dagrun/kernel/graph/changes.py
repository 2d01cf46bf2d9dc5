"""Every change of the state of a run: the change that each event makes, and the order in which events may follow.

A run changes by events alone, and `apply` is the one place where an event becomes a change. `EventLog` calls it when
something happens, `fold` when a record is read back: both come to the same state.

**The run.** The events about it, in the order in which they may come::

    RunStarted ... [CeilingNear] ... [RunStopping] ... RunEnded
                                 ... RunSuspended, RunResumed [RunReopened] ...

1. `RunStarted` is the first event, and `RunEnded` the last. After `RunEnded` or `RunSuspended` only `RunResumed` or
   `RunReopened` may follow. The latter opens steps whose effect is in doubt, or whose output is not on record.
2. After `RunStopping` nothing starts; what runs ends, and what does not run is settled as cancelled.

**A step.** `STEP_TRANSITIONS` says in which state of its step an event may come, and what the state may be afterwards;
`OTHER_TRANSITIONS`, its possible changes of other steps. docs/explanation/states.md draws both.

3. A step settles once, unless it is opened again. `LiveGraph.settled` counts it, releases the steps that waited only
   for it, and blocks the steps that cannot run without it.
4. The dependents of a settled step may be blocked a while longer (`LiveGraph.kept`): until the planner has been asked
   about it (`ReplanEnded`), or a person has let the run continue after it (`QuestionAnswered`).
5. While the graph is frozen (after `GoalChanged`, or a first plan that was refused), no step starts that was never
   called. While the first plan is being written (`DraftStarted` to `DraftEnded`), only steps start whose call does no
   harm if the plan turns out otherwise.
6. A step that has succeeded never changes. `Spliced` changes and drops steps that have not started. A dropped step that
   runs is only marked, and settles when its call has ended.
7. Each `AttemptStarted` of a step has its `AttemptEnded` before the next one; after a crash it comes once the run is
   resumed. `Hedged` and `HedgeEnded` come between the two: a second call is made beside a slow one.

**The planner.** `ReplanRequested` names a reason to ask it. Then follow `ReplanStarted`; for each call `PlannerAsked`
and `PlannerCalled`, and `HandedOn` if the next planner of a fallback chain is asked; for each patch `Spliced` or
`PatchRefused`; and `ReplanEnded`. The first plan is written between
`DraftStarted` and `DraftEnded`, and each of its steps is a `Spliced`.

8. Requests about steps that have nothing to do with each other may be open at the same time; `PlannerCalled`,
   `Spliced` and `ReplanEnded` say which one they belong to. Reasons that arise near an open request belong to a later
   one. A request that could not be made has a `ReplanEnded` alone, with the number 0.

**Models.** Each call of a model that no tool makes (by a planner or a critic) has a `ModelReserved` and a
`ModelCharged`.

9. After each change outputs are released that no step needs any more, if the policy says so (`output_eviction.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from dagrun.kernel.graph.live_graph import OF_ANOTHER, PAUSE, REPLAN, LiveGraph, freeze, mark_approved, thaw
from dagrun.kernel.graph.node import Cap, Node
from dagrun.kernel.graph.output_eviction import keep_for_reopened, release_outputs
from dagrun.kernel.graph.plan_history import PastReplan
from dagrun.kernel.model.contracts.held_objects import NOT_RECORDED
from dagrun.kernel.model.event import (
    AttemptEnded,
    AttemptStarted,
    CeilingNear,
    ConfidenceReported,
    DraftEnded,
    DraftStarted,
    Event,
    GoalChanged,
    HandedOn,
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
    Reviewed,
    RunEnded,
    RunReopened,
    RunResumed,
    RunStarted,
    RunStopping,
    RunSuspended,
    Spliced,
    StepExpanded,
    StepResumed,
    StepSettled,
)
from dagrun.kernel.model.outcome import SETTLED, Attempt, Hedge, Outcome, Recovery, State, Status, TriggerKind
from dagrun.kernel.model.question import Answer, Asked, Question
from dagrun.kernel.model.value import Stored, Unavailable, encode, is_lost_object

GOAL = ""  # stands for the goal among the ids of steps

_KEPT_OUT: Final = Unavailable("the policy keeps it out of the record")
_ELEMENT: Final = Unavailable(f"{NOT_RECORDED}an element of a list")


# The transitions ------------------------------------------------------------------------------------------------------


def _each(states: Iterable[State], *after: State) -> Mapping[State, frozenset[State]]:
    """Return a row of the tables: from each of *states*, the step may get into one of the states *after*."""
    return dict.fromkeys(states, frozenset(after))


def _same(states: Iterable[State]) -> Mapping[State, frozenset[State]]:
    """Return a row for an event that keeps the state of its step, which is one of *states*."""
    return {state: frozenset((state,)) for state in states}


_WAITING, _READY, _RUNNING, _HELD, _BLOCKED = State.WAITING, State.READY, State.RUNNING, State.HELD, State.BLOCKED
_SUCCEEDED, _SUPERSEDED, _UNKNOWN = State.SUCCEEDED, State.SUPERSEDED, State.UNKNOWN
_UNSTARTED: Final = (_WAITING, _READY, _BLOCKED)
_IN_CALL: Final = (_RUNNING, _HELD, _READY)  # its tool asks a person; it was answered, and waits for a slot to continue

STEP_TRANSITIONS: Final[Mapping[type[Event], Mapping[State, frozenset[State]]]] = {
    AttemptStarted: _each((_READY,), _RUNNING),
    StepExpanded: _each((_READY,), _RUNNING),
    ConfidenceReported: _same(_IN_CALL),
    Hedged: _same(_IN_CALL),
    HedgeEnded: _same(_IN_CALL),
    AttemptEnded: _each(_IN_CALL, _READY, _HELD, _RUNNING, *SETTLED),  # running: critics review the output
    Reviewed: _each((_RUNNING,), _READY, _HELD, *SETTLED),
    QuestionAsked: {**_each(_IN_CALL, _HELD), **_same(SETTLED)},  # settled: whether its dependents may run
    QuestionAnswered: {**_same(State), _HELD: frozenset((_HELD, _READY, _BLOCKED))},
    StepResumed: _each((_READY, _HELD), _RUNNING),
    StepSettled: _each((*_UNSTARTED, _HELD, _RUNNING), *SETTLED),  # running: a for_each
}
"""By event: the states in which the step that it names may be, and for each the states that may follow.

A record that breaks this is damaged (`apply_recorded`). Events that are missing here name no step.
"""

_DEPENDENTS: Final = _each((_WAITING,), _READY, _BLOCKED)

OTHER_TRANSITIONS: Final[Mapping[type[Event], Mapping[State, frozenset[State]]]] = {
    AttemptEnded: _DEPENDENTS,
    Reviewed: _DEPENDENTS,
    StepSettled: _DEPENDENTS,
    StepExpanded: _DEPENDENTS,  # those that take single elements, or the elements as a stream
    QuestionAnswered: _each((_BLOCKED,), _WAITING, _READY),  # the dependents of a step that pauses the run
    Spliced: {
        **_each((*_UNSTARTED, _HELD), *_UNSTARTED, _SUPERSEDED, _UNKNOWN),  # rewired, or dropped
        _RUNNING: frozenset((_SUPERSEDED, _UNKNOWN)),  # a for_each none of whose elements runs
    },
    GoalChanged: _each((_READY,), _BLOCKED),
    DraftEnded: {**_each((_BLOCKED,), _WAITING, _READY), **_each((_READY,), _BLOCKED)},
    ReplanEnded: _each((_BLOCKED,), _WAITING, _READY),
    RunResumed: _each((_HELD,), _READY, _BLOCKED),
    RunReopened: {**_each(_UNSTARTED, *_UNSTARTED), **_each(SETTLED, *_UNSTARTED, _RUNNING, _HELD)},
}
"""By event: the states of other steps that it may change, and what they may be afterwards."""

_PROCEED: Final = Recovery.PROCEED


# The run --------------------------------------------------------------------------------------------------------------


def run_started(graph: LiveGraph, event: RunStarted) -> None:
    """The run begins: put the steps that wait for no other on the frontier."""
    graph.open_at(event.at, event.wall_time)
    if (opening := event.opening) is not None:
        graph.roots, graph.guarded_tools = opening.roots, opening.guarded_tools
        for id_ in graph.roots:
            if id_ in graph.nodes:  # the elements of a for_each come later
                graph.inherit_root(graph.nodes[id_])
        graph.parent = opening.parent
        _keep_elements(graph, opening.elements)
        for id_, why in opening.guards.items():
            graph.nodes[id_].make_extra().guards = why
        for id_ in opening.agreed:
            graph.nodes[id_].make_extra().is_agreed = True
        if opening.written:
            from dagrun.kernel.graph.patches.flow_after import take_over_authors  # few policies have a trust boundary

            take_over_authors(graph, opening.written)
    for node in graph.nodes.values():
        if node.state is State.READY:
            graph.frontier.push(node)


def _keep_elements(graph: LiveGraph, elements: Mapping[str, Outcome]) -> None:
    """Keep the outputs of elements of an earlier run until their for_each has its list."""
    for id_, outcome in elements.items():
        graph.elements[id_] = outcome.value
        fan = graph.nodes[id_.partition("[")[0]]
        if not fan.plan.tool.effect.is_free:
            fan.make_extra().frozen = fan  # an element took effect: only the same call may come in its place


def run_ended(graph: LiveGraph, event: RunEnded) -> None:
    """The run has ended."""
    graph.status, graph.reason = event.status, event.reason


def ceiling_near(graph: LiveGraph, event: CeilingNear) -> None:
    """Optional steps are dropped from now on."""
    graph.saving = event


def run_suspended(graph: LiveGraph, event: RunSuspended) -> None:
    """The run pauses until it is resumed."""
    graph.status, graph.reason = event.status, event.reason


def run_stopping(graph: LiveGraph, event: RunStopping) -> None:
    """The run is being ended early."""
    graph.stopping = (event.status, event.reason)


def run_resumed(graph: LiveGraph, event: RunResumed) -> None:
    """The run is resumed: held steps without an open question become ready, and their questions are asked again."""
    graph.open_at(event.at, event.wall_time)
    graph.status, graph.reason = None, ""
    asked_about = {question.step for question in graph.questions.values()}
    for node in graph.nodes.values():
        if node.state is State.HELD and node.id not in asked_about and not node.is_in_flight and not _has_failed(node):
            graph.release(node)


def _has_failed(node: Node) -> bool:
    """Whether a person is needed because of the end of the last attempt, and not before the next one."""
    if node.is_gone:
        return True  # there is no next one
    decision = node.attempts[-1].decision if node.attempts else None
    return decision is not None and decision.recovery not in (Recovery.RETRY, Recovery.FALL_BACK)


def run_reopened(graph: LiveGraph, event: RunReopened) -> None:
    """Settled steps are opened again, and the steps that depend on them wait again."""
    nodes = [graph.nodes[id_] for id_ in event.steps]
    if graph.releasing is not None:
        keep_for_reopened(graph.releasing, nodes)
    graph.status, graph.reason = None, ""
    graph.stopping = None  # else the run would be ended early again, before any of the steps could settle
    for node in nodes:
        graph.unsettled += 1
        if node.parent is not None:
            node.parent.missing += 1
        node.ended, node.value, node.is_tolerated = None, None, False
        node.state = State.BLOCKED
    for node in nodes:
        _open(graph, node)
        # A for_each that has its elements counts those, and would be one short when its source ends again.
        followers = node.extra.followers if node.extra is not None else ()  # of those, the elements count
        families = [after for after in node.successors if after.children is not None and after not in followers]
        node.successors = [after for after in node.successors if after.children is None or after in followers]
        for child in (child for family in families for child in family.children or () if is_lost_object(child.item)):
            if _may_wait_again(child):  # it gets its element, an object in memory, from the new output
                graph.frontier.withdraw((child,))
                node.precede(child)
    dependents = {after.id: after for node in nodes for after in graph.behind(node)}
    for after in dependents.values():
        if _may_wait_again(after):
            graph.reassess(after)


def _may_wait_again(node: Node) -> bool:
    busy = node.is_in_flight or node.is_under_review or node.children is not None or node.state is State.HELD
    return not (busy or node.state.is_settled or node.is_gone)


def _open(graph: LiveGraph, node: Node) -> None:
    """Put a step that is opened again into its new state."""
    if node.children is not None:
        node.state = State.RUNNING
    elif node.is_gone or (node.is_in_doubt and not node.tool.effect.may_repeat):
        node.state = State.HELD  # a step that has left the plan is not called again, whatever its tool
    elif node.attempts or (node.is_defined_by_parent and node.item is not OF_ANOTHER):
        node.state = State.READY
        graph.frontier.push(node)
    else:
        graph.reassess(node)


# Attempts -------------------------------------------------------------------------------------------------------------


def attempt_started(graph: LiveGraph, event: AttemptStarted, node: Node | None = None) -> None:
    """A tool is called: the step is running."""
    node = graph.nodes[event.step] if node is None else node
    node.state = _RUNNING
    node.earlier = () if node.latest is None else node.attempts
    node.latest = Attempt(event.attempt, event.tool, event.at)


def attempt_ended(graph: LiveGraph, event: AttemptEnded, node: Node | None = None) -> None:
    """A call has ended, and recovery has decided the next action."""
    node = graph.nodes[event.step] if node is None else node
    attempt = node.latest
    assert attempt is not None, "it was not called"
    attempt.ended, attempt.outcome, attempt.decision = event.at, event.outcome, event.decision
    if node.extra is not None and node.extra.told and not event.outcome.was_cut_off:
        node.extra.told = ()
    if event.state is _SUCCEEDED and event.decision.recovery is _PROCEED and not node.plan.pauses_after:
        node.state, node.value = _SUCCEEDED, event.outcome.value
        graph.settled(node)
    else:
        _follow_decision(graph, node, event)


def reviewed(graph: LiveGraph, event: Reviewed) -> None:
    """Critics have judged the output of a call, and recovery has decided the next action."""
    node = graph.nodes[event.step]
    node.make_extra().verdicts = event.verdicts
    for verdict in event.verdicts:
        graph.models.add(verdict.tokens, verdict.cost)
        graph.has_confidence = graph.has_confidence or verdict.confidence is not None
    attempt = node.attempts[-1]
    attempt.outcome, attempt.decision = event.outcome, event.decision
    _follow_decision(graph, node, event)


def _follow_decision(graph: LiveGraph, node: Node, event: AttemptEnded | Reviewed) -> None:
    """Put *node* into the state that recovery has decided on."""
    recovery, state = event.decision.recovery, event.state
    node.state = state
    if recovery is Recovery.REPLAN:  # rule 4
        graph.kept.setdefault(node.id, set()).add(REPLAN)
    if state is _SUCCEEDED:
        if node.pauses_after:
            graph.kept.setdefault(node.id, set()).add(PAUSE)
        is_default = recovery is Recovery.DEFAULT
        limit = graph.plan.policy.max_argument_bytes
        node.value = encode(node.plan.step.default, limit) if is_default else event.outcome.value
        if event.outcome.surprise and recovery is _PROCEED:
            graph.warnings.append(f"{node.id} was surprising ({event.outcome.surprise}), and nobody was asked")
        graph.settled(node)
    elif state in SETTLED:
        # A step that left the plan while it ran is tolerated, unless its effect is in doubt.
        graph.all_well, graph.all_known = False, graph.all_known and state is not State.UNKNOWN
        node.is_tolerated = recovery is Recovery.SKIP or (node.is_gone and state is not State.UNKNOWN)
        graph.settled(node)
    else:
        node.on_fallback = recovery is Recovery.FALL_BACK or node.on_fallback


def confidence_reported(graph: LiveGraph, event: ConfidenceReported) -> None:
    """The tool of a step has reported the confidence of its output."""
    graph.nodes[event.step].make_extra().confidence = (event.attempt, event.confidence)
    graph.has_confidence = True


def hedged(graph: LiveGraph, event: Hedged) -> None:
    """A second call is made beside the slow one."""
    graph.nodes[event.step].attempts[-1].hedge = Hedge(event.at)


def hedge_ended(graph: LiveGraph, event: HedgeEnded) -> None:
    """The second call has ended."""
    hedge = graph.nodes[event.step].attempts[-1].hedge
    assert hedge is not None
    hedge.ended, hedge.has_won, hedge.fault = event.at, event.has_won, event.fault
    hedge.tokens, hedge.cost = event.tokens, event.cost


# Ends and elements ----------------------------------------------------------------------------------------------------


def step_settled(graph: LiveGraph, event: StepSettled, node: Node | None = None) -> None:
    """A step has ended otherwise than by a call: it was skipped or cancelled, or its elements have ended."""
    node = graph.nodes[event.step] if node is None else node
    node.state = event.state
    node.value = event.value
    node.is_tolerated = event.is_tolerated
    node.ended = event
    graph.all_well = graph.all_well and event.state is _SUCCEEDED
    graph.all_known = graph.all_known and event.state is not State.UNKNOWN
    if event.asks_planner:  # rule 4
        graph.kept.setdefault(node.id, set()).add(REPLAN)
    if node.state is _SUCCEEDED and node.pauses_after:
        graph.kept.setdefault(node.id, set()).add(PAUSE)
    if node.extra is not None and node.extra.followers:
        from dagrun.kernel.graph.mapped_steps import fan_settled

        fan_settled(node)
    graph.settled(node)


def step_expanded(graph: LiveGraph, event: StepExpanded) -> None:
    """A for_each has its list: make a step of each element, and let it start."""
    parent = graph.nodes[event.step]
    parent.state = State.RUNNING
    parent.children = children = []
    parent.expanded = event.at
    parent.missing = len(event.items)
    kept_out = _ELEMENT if graph.has_objects and _gives_objects(graph, parent) else _KEPT_OUT
    limit = parent.plan.step.max_parallel
    caps = parent.caps if limit is None else (*parent.caps, Cap(limit))
    hidden = frozenset(event.hidden)
    for index, shown in enumerate(event.items):
        item: Stored = kept_out if index in hidden else OF_ANOTHER if event.over else shown
        child = Node(f"{parent.id}[{index}]", parent.plan, parent.order)
        child.parent, child.index, child.item, child.caps = parent, index, item, caps
        children.append(child)
        graph.nodes[child.id] = child
        if child.id in graph.roots:
            graph.inherit_root(child)
        if not event.over:
            graph.frontier.push(child)
    graph.unsettled += len(children)
    if event.over:
        parent.make_extra().over = graph.nodes[event.over]
        for child in children:
            graph.reassess(child)
    if parent.successors:
        from dagrun.kernel.graph.mapped_steps import start_followers

        start_followers(graph, parent)


def _gives_objects(graph: LiveGraph, parent: Node) -> bool:
    """Whether the list of a for_each comes from a tool that returns objects in memory."""
    sources = parent.plan.items.sources if parent.plan.items is not None else ()
    plans = [graph.nodes[id_].plan for id_ in sources if id_ in graph.nodes]
    return any(tool is not None and tool.output.has_objects for plan in plans for tool in (plan.tool, plan.fallback))


def spliced(graph: LiveGraph, event: Spliced) -> None:
    """A patch is applied; see `dagrun.kernel.graph.patches.apply_patch`, which few runs need."""
    from dagrun.kernel.graph.patches.apply_patch import splice

    splice(graph, event)


def goal_changed(graph: LiveGraph, event: GoalChanged) -> None:
    """The goal has changed: let no step start that was never called."""
    from dagrun.kernel.graph.patches.apply_patch import change_goal

    change_goal(graph, event)


# The planner and models -----------------------------------------------------------------------------------------------


def draft_started(graph: LiveGraph, event: DraftStarted) -> None:
    """The planner begins to write the first plan."""
    graph.goal = event.goal
    graph.is_drafting = True
    graph.is_frozen = event.is_held


def draft_ended(graph: LiveGraph, event: DraftEnded) -> None:
    """The first plan is complete: all of it may run, or the steps that have not started wait for a better plan."""
    graph.is_drafting = False
    graph.draft_end = (event.result, event.reason)
    graph.problems = event.problems
    if event.result == "applied":
        graph.wants_more, graph.has_plan = event.more, True
        mark_approved(graph, graph.planned())
        if not graph.triggers.get(GOAL):  # else the goal has changed since
            thaw(graph)
    else:
        freeze(graph)


def replan_requested(graph: LiveGraph, event: ReplanRequested) -> None:
    """There is a new reason to ask the planner."""
    graph.triggers[event.trigger.step] = event.trigger


def replan_started(graph: LiveGraph, event: ReplanStarted) -> None:
    """A request to the planner begins."""
    graph.replans += 1
    graph.asking[graph.replans] = event.steps


def replan_ended(graph: LiveGraph, event: ReplanEnded) -> None:
    """A request to the planner has ended, or could not be made; release the steps that waited for it alone."""
    graph.asking.pop(event.number, None)
    if graph.handed_on and event.number:
        passed = dict(graph.handed_on)
        last = passed.pop(event.number, ())
        # The planner that wants to see the results is asked for more, not those before it in the chain.
        graph.handed_on = {**passed, 0: last} if event.more else passed
    graph.replanned.append(PastReplan(event.result, event.fingerprints, event.signature, event.reason))
    changed = event.result in ("applied", "repaired")
    for step in event.steps:
        trigger = graph.triggers.pop(step, None)
        if trigger is not None and trigger.kind.is_surprising_success and not changed:
            graph.warnings.append(
                f"{step} was surprising ({trigger.reason}), and the plan was not changed: {event.reason}"
            )
        elif not changed and _is_unrepaired(graph, step, event.result):
            graph.why_unchanged = event.reason
        if step == GOAL:
            graph.wants_more = event.more
            if changed or event.result == "unchanged":
                graph.problems, graph.has_plan = (), True
                mark_approved(graph, graph.planned())
            thaw(graph)
        else:
            graph.unblock_dependents(graph.nodes[step], REPLAN)
    graph.has_agreed = False


def _is_unrepaired(graph: LiveGraph, step: str, result: str) -> bool:
    """Whether a request that did not change the plan leaves its cause unrepaired."""
    return result != "unchanged" if step == GOAL else not graph.nodes[step].is_gone


def patch_refused(graph: LiveGraph, event: PatchRefused) -> None:
    """A patch was refused; if it was to be the first plan, there still is none."""
    goal = graph.triggers.get(GOAL)
    if goal is not None and goal.kind is TriggerKind.GOAL_GIVEN and event.origin == "planner":
        graph.problems = event.problems


def planner_asked(graph: LiveGraph, event: PlannerAsked) -> None:
    """The planner is called."""
    graph.planner_calls = event.number
    if graph.plan.policy.flow is not None:
        from dagrun.kernel.graph.patches.flow_after import note_brief  # here: few policies have a trust boundary

        note_brief(graph)


def planner_called(graph: LiveGraph, event: PlannerCalled) -> None:
    """A call of the planner has ended, and its models have used tokens."""
    graph.models.add(event.tokens, event.cost)
    graph.planner_answers, graph.planner_failure = event.answers, event.failure
    graph.planner_notes = event.notes or graph.planner_notes


def handed_on(graph: LiveGraph, event: HandedOn) -> None:
    """The next planner of the fallback chain is asked from now on."""
    passed = graph.handed_on.get(event.request, ())
    graph.handed_on = {**graph.handed_on, event.request: (*passed, event)}


def model_reserved(graph: LiveGraph, event: ModelReserved) -> None:
    """A planner or a critic is about to call a model."""
    graph.model_calls[event.number] = (event, None)


def model_charged(graph: LiveGraph, event: ModelCharged) -> None:
    """The call of that model has ended."""
    graph.model_calls[event.number] = (graph.model_calls[event.number][0], event)


# People ---------------------------------------------------------------------------------------------------------------


def question_asked(graph: LiveGraph, event: QuestionAsked) -> None:
    """A person must answer. The step of the question is held, unless it has settled."""
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
        # The deadline of a step begins with its first attempt: before that, waiting takes nothing from it.
        extra.held_since = event.at if node.attempts or node.parent is not None else None


def question_answered(graph: LiveGraph, event: QuestionAnswered) -> None:
    """A question is closed: it was answered, or has become void."""
    question = graph.questions.pop(event.question)
    if not event.step:
        if question.kind is Asked.OUTPUT:
            graph.withheld = _withheld(event.answer)
        elif question.kind is Asked.PATCH:
            graph.has_agreed = _is_yes(event.answer)
        return
    node = graph.nodes[event.step]
    if not node.is_in_flight:  # else it still waits for a slot, until `StepResumed`
        _end_wait(node, event.at)
    if event.answer is not None:
        _keep_answer(node, question, event.answer, is_hidden=event.hides_value)
    if question.kind is Asked.PERMISSION and event.state is State.READY and not _is_yes(event.answer):
        node.on_fallback = True
    if question.kind is Asked.PAUSE and node.state.is_settled:
        node.make_extra().is_closed = not _is_yes(event.answer)
        graph.unblock_dependents(node, PAUSE)
    elif event.state is State.READY:
        graph.release(node)
    elif event.state is not None:
        node.state = event.state


def _withheld(answer: Answer | None) -> tuple[Status, str] | None:
    """Return the status and reason of a run whose answer is withheld; `None` if it may be returned."""
    if answer is None:
        return Status.WAITING, "nobody was there to let the answer out"
    if answer.choice == "approve":
        return None
    return Status.FAILED, "a person did not let the answer out" + (f": {answer.note}" if answer.note else "")


def step_resumed(graph: LiveGraph, event: StepResumed) -> None:
    """A tool that has asked a person in the middle of its call continues."""
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


def _keep_answer(node: Node, question: Question, answer: Answer, *, is_hidden: bool) -> None:
    """Store the effects of a person's answer on the next attempt of *node*."""
    extra = node.make_extra()
    match question.kind, answer.choice:
        case Asked.APPROVAL, "approve":
            extra.approved = question.id
        case Asked.PAUSE, "approve":
            extra.is_passed = True
        case Asked.INPUT, "approve" if question.name:
            extra.given[question.name] = _KEPT_OUT if is_hidden else encode(answer.value)
            extra.generation += 1  # the last call had no effect, and the arguments differ: the next is another call
            extra.forgiven = len(node.attempts)
        case Asked.INPUT, _ if not question.name:  # of a tool in the middle of its call
            extra.told = (*extra.told, (question.content, None if is_hidden else answer))
        case Asked.PERMISSION, "approve":
            extra.forgiven = len(node.attempts)
        case Asked.EFFECT, "did_not" | "deny":  # the last call had no effect: the next is another call; "deny" is old
            extra.generation += 1
            extra.forgiven = extra.cleared = len(node.attempts)
        case Asked.EFFECT, "took_effect":
            extra.applied = len(node.attempts)


# The table ------------------------------------------------------------------------------------------------------------

_CHANGES: Final[Mapping[type[Event], Callable[..., None]]] = {
    RunStarted: run_started,
    RunStopping: run_stopping,
    RunSuspended: run_suspended,
    RunResumed: run_resumed,
    RunReopened: run_reopened,
    RunEnded: run_ended,
    CeilingNear: ceiling_near,
    AttemptStarted: attempt_started,
    AttemptEnded: attempt_ended,
    Reviewed: reviewed,
    ConfidenceReported: confidence_reported,
    Hedged: hedged,
    HedgeEnded: hedge_ended,
    StepSettled: step_settled,
    StepExpanded: step_expanded,
    Spliced: spliced,
    GoalChanged: goal_changed,
    DraftStarted: draft_started,
    DraftEnded: draft_ended,
    ReplanRequested: replan_requested,
    ReplanStarted: replan_started,
    ReplanEnded: replan_ended,
    PatchRefused: patch_refused,
    PlannerAsked: planner_asked,
    PlannerCalled: planner_called,
    HandedOn: handed_on,
    ModelReserved: model_reserved,
    ModelCharged: model_charged,
    QuestionAsked: question_asked,
    QuestionAnswered: question_answered,
    StepResumed: step_resumed,
}

# What these do is seen in the nodes, in the attempts and in `LiveGraph.model_calls`. The hot path makes the first two.
_SEEN_LATER: Final = frozenset(
    (AttemptStarted, AttemptEnded, StepSettled, StepExpanded, Hedged, HedgeEnded, ModelReserved, ModelCharged)
)


def _remembered(change: Callable[..., None]) -> Callable[..., None]:
    """Return *change*, which also adds its event to `LiveGraph.rare`."""

    def change_and_remember(graph: LiveGraph, event: Event) -> None:
        change(graph, event)
        match event:
            case Spliced():
                event = replace(event, checked=None)  # only for the live graph, which has all of it now
            case Reviewed():
                event = replace(event, outcome=replace(event.outcome, value=None))  # the node has it, if anyone has
        graph.rare.append(event)

    return change_and_remember


CHANGES: Final[Mapping[type[Event], Callable[..., None]]] = {
    kind: change if kind in _SEEN_LATER else _remembered(change) for kind, change in _CHANGES.items()
}
"""The change of each kind of event. `Progress` and `Gap` are missing: they are shown, and never applied."""


def apply(graph: LiveGraph, event: Event, node: Node | None = None) -> None:
    """Apply *event* to *graph*; *node* is its step, if already looked up. Never fails on an event of a run."""
    if node is None:
        CHANGES[type(event)](graph, event)
    else:
        CHANGES[type(event)](graph, event, node)
    if graph.releasing is not None:  # rule 9
        release_outputs(graph, graph.releasing)


def step_of(event: Any) -> str:
    """Return the step id of an event in `STEP_TRANSITIONS`; empty for a question without a step."""
    step: str = event.question.step if type(event) is QuestionAsked else event.step
    return step


def apply_recorded(graph: LiveGraph, event: Any) -> str:
    """Apply an event of a record; return why `STEP_TRANSITIONS` rules it out, or an empty text."""
    kind = type(event)
    moves = STEP_TRANSITIONS.get(kind)
    # Not by `step_of`: a call more for each event is two percent of reading a record.
    if moves is None or not (step := event.question.step if kind is QuestionAsked else event.step):
        apply(graph, event)
        return ""
    node = graph.nodes[step]
    before = node.state
    if before not in moves:
        return f"{kind.__name__} comes while step {step} is {before}"
    apply(graph, event)
    if node.state not in moves[before]:
        return f"{kind.__name__} makes step {step} {node.state}, which is {before}"
    return ""
