"""The record of a run: every change of its state is an event, made by a method of `Record`.

1. Only `Record` changes the state. None of its methods awaits, so a cancellation comes before a change or after it,
   never in the middle.
2. A change is an event: `emit` removes secrets from it, applies it to the graph, writes it to the journal, and keeps it
   for the observers.
3. What follows from a change at once, such as skipping the steps behind a failed one, is done by the same method.
4. Observers are shown the events of a change when it is complete, by `deliver`. They may change the run in turn.
5. The `Backlog` settles steps that are to be skipped or cancelled, some hundred in each turn of the loop. To settle
   10,000 takes a tenth of a second, in which no other task in the loop would get its turn. The steps can no longer
   start, so nothing goes wrong while only some of them are settled, and the run does not end before all are. What
   changes the plan, and a question to the planner or a person, has the rest settled first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final

from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from dagrun.errors import Problem, ValueRefused, ValueTooLarge
from dagrun.kernel.decide.recovery import Ended, Situation, Tally, decide
from dagrun.kernel.decide.replanning import fingerprint_of
from dagrun.kernel.graph.changes import GOAL
from dagrun.kernel.graph.fold import leaves_effect_unresolved
from dagrun.kernel.graph.live_graph import PAUSE, LiveGraph
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model import event as events
from dagrun.kernel.model.event import (
    AttemptEnded,
    AttemptStarted,
    Event,
    ModelCharged,
    ModelReserved,
    PlannerAsked,
    StepExpanded,
    StepSettled,
)
from dagrun.kernel.model.outcome import Decision, ErrorKind, Failure, Outcome, Recovery, State, Status, TriggerKind
from dagrun.kernel.model.plan import RetryRule
from dagrun.kernel.model.planner import Trigger
from dagrun.kernel.model.question import Answer, Asked, Question
from dagrun.kernel.model.value import Stored, Unavailable, encode, join_stored
from dagrun.kernel.runtime.record.event_log import EventLog
from dagrun.kernel.runtime.run_callbacks import RunCallbacks

if TYPE_CHECKING:
    from dagrun.kernel.graph.patches.apply_patch import CheckedPatch
    from dagrun.kernel.graph.patches.check_patch import Origin, Splicer

_SUCCEEDED: Final = State.SUCCEEDED
_NO_RETRY: Final = RetryRule(max_attempts=1)

CLOSED: Final = "a person stopped the run after {}"
TAKEN_OVER: Final = "taken over from run {}"


class Record(EventLog):
    """Makes every change of a run an event, and applies its consequences at once.

    Args:
        graph: The state; only this object changes it.
        now: The clock of the loop.
        up: Ends the run, if the end of a step does that; calls people and the planner.
        keep: As for `EventLog`.
        flush: As for `EventLog`.

    Attributes:
        replan_on: The kinds of triggers that the planner may be asked about; empty if there is no planner.
        backlog: Skips the steps that can no longer run, and cancels those of a run that is ended early.
    """

    def __init__(
        self,
        graph: LiveGraph,
        now: Callable[[], float],
        up: RunCallbacks,
        keep: Callable[[Event], object] | None = None,
        flush: Callable[[], None] | None = None,
        *,
        run_id: str = "",
    ) -> None:
        super().__init__(graph, now, keep, flush, run_id=run_id)
        self.replan_on: Collection[TriggerKind] = ()
        self.backlog = Backlog(graph, up)
        self._up = up

    def unsuccessful(self) -> Tally:
        """Count the steps of the plan that did not succeed, and those that left it with an unresolved effect.

        In a run that is ended early, count only the steps in doubt: nothing else changes how the run ends.
        """
        tally = Tally()
        is_stopped = self.graph.stopping is not None
        is_all_known = self.graph.all_well or (is_stopped and self.graph.all_known)
        if is_all_known and not self.graph.revisions:
            tally.planned = len(self.graph.plan.steps)
            return tally  # known without looking at every step
        for node in self.graph.nodes.values():
            tally.planned += node.parent is None and not node.is_gone
            state = node.state
            is_of_interest = state is State.UNKNOWN if is_stopped else state is not _SUCCEEDED
            if is_of_interest and (self._is_in_doubt(node) if node.is_gone else node.parent is None):
                tally.add(Ended(node.id, state, node.reason, node.is_tolerated, node.plan.step.optional))
            elif state is _SUCCEEDED and not node.is_gone and node.has_failed_elements:
                tally.gaps.append(f"{node.id}: {node.reason}")
        return tally

    def _is_in_doubt(self, node: Node) -> bool:
        """Whether a step that left the plan has an unresolved effect; an element is reported for its for_each."""
        if node.state is not State.UNKNOWN or (node.parent is not None and node.parent.state is State.UNKNOWN):
            return False
        return leaves_effect_unresolved(self.graph, node)

    # Attempts ---------------------------------------------------------------------------------------------

    def start_attempt(self, node: Node, tool: str) -> None:
        """Record that a call of *tool* begins."""
        self._seq = seq = self._seq + 1
        number = 1 if node.latest is None else len(node.attempts) + 1
        self._take(AttemptStarted(seq, self._now() - self.zero, node.id, number, tool), node)

    def end_attempt(self, node: Node, state: State, outcome: Outcome, decision: Decision) -> None:
        """Record the end of the last attempt of *node*, the decision about it, and the new state of the step."""
        self._seq = seq = self._seq + 1
        at, number = self._now() - self.zero, len(node.earlier) + 1
        event = AttemptEnded(seq, at, node.id, number, state, outcome, decision)
        if outcome.failure is None and not outcome.surprise:
            self._take(event, node)
        else:
            self.emit(event, node)

    def note_confidence(self, node: Node, confidence: float) -> None:
        """Record how sure the tool of *node* is of the output of this attempt."""
        attempt = len(node.attempts)
        self._take(events.ConfidenceReported(self.next_seq(), self.at(), node.id, attempt, confidence))

    # Steps ------------------------------------------------------------------------------------------------

    def reopen(self, steps: Iterable[str], reason: str) -> None:
        """Record that settled steps are open again."""
        self.emit(events.RunReopened(self.next_seq(), self.at(), tuple(steps), reason))

    def settle(self, node: Node, state: State, reason: str, **facts: Any) -> None:
        """End a step that is not running; *facts* are further fields of the event."""
        if state is not _SUCCEEDED and node.is_in_doubt:
            state = State.UNKNOWN  # it was about to repeat a call that may have gone through
        self.emit(StepSettled(self.next_seq(), self.at(), node.id, state, reason, **facts), node)
        self.after_end(node)
        if state is _SUCCEEDED and node.pauses_after:
            self._up.hold_at_pause(node)

    def fail_unstarted(self, node: Node, failure: Failure, state: State = State.FAILED) -> None:
        """End a step that will not be called again: by its on_failure, else in *state*."""
        outcome = Outcome(state, None, failure)
        situation = Situation(
            effect=node.tool.effect,
            attempt=max(1, len(node.attempts)),
            rule=_NO_RETRY,
            on_failure=node.plan.step.on_failure,
            replan_on=() if node.is_gone else self.replan_on,
            last_resort="skip" if node.plan.step.optional else self.graph.plan.policy.last_resort,
            in_doubt=node.is_in_doubt,
        )
        decision = decide(outcome, situation)
        match decision.recovery:
            case Recovery.DEFAULT:
                value = encode(node.plan.step.default, self.graph.plan.policy.max_argument_bytes)
                self.settle(node, _SUCCEEDED, failure.message, value=value, is_default=True, failure=failure)
            case Recovery.REPLAN:
                self.settle(node, state, failure.message, failure=failure, asks_planner=True)
                self.request_replan(node, decision, failure)
            case recovery:
                tolerated = recovery is Recovery.SKIP
                self.settle(node, state, failure.message, is_tolerated=tolerated, failure=failure)
                self.follow(node, decision)

    def follow(self, node: Node, decision: Decision) -> None:
        """End the run, if that was decided about a step."""
        if decision.recovery is Recovery.STOP:
            self._up.stop(Status.FAILED, f"{node.id} failed, and its on_failure is stop")
        elif decision.recovery is Recovery.ESCALATE:
            self._up.stop(Status.ESCALATED, f"{node.id} {node.state}: {node.reason}")

    def after_end(self, node: Node) -> None:
        """Skip the steps that can no longer run, and settle a for_each after its last element *node*."""
        if self.graph.questions:
            self.void(node)
        if node.id in self.graph.kept:
            return  # what follows from its end is decided later
        if node.state is not _SUCCEEDED and self.graph.behind(node):
            self.backlog.take(self.skipping(node))
        self._join(node.parent)

    def skipping(self, cause: Node) -> Iterator[None]:
        """Skip all steps that can no longer run because of how *cause* has ended; yield after each one."""
        behind = [cause]
        while behind:
            before = behind.pop()
            for node in self.graph.behind(before):
                if node.state is State.BLOCKED and self.graph.blocks(before, node):
                    reason = f"{cause.id} {cause.state}" + ("" if before is cause else f", so {before.id} was skipped")
                    facts = (node.id, State.SKIPPED, reason, cause.id, before.is_tolerated)
                    self.emit(StepSettled(self.next_seq(), self.at(), *facts), node)
                    behind.append(node)
                    self._join(node.parent)  # a substitute for an element may wait for other steps
                yield

    # Changes of the plan ----------------------------------------------------------------------------------

    @cached_property
    def splicer(self) -> Splicer:
        """Checks patches; made when the first patch comes."""
        from dagrun.kernel.graph.patches.check_patch import Splicer  # here: few runs are spliced

        return Splicer(self.graph)

    def splice(
        self,
        checked: CheckedPatch,
        origin: Origin,
        reason: str,
        guards: Mapping[str, str],
        request: int = 0,
        *,
        refused: tuple[Problem, ...] = (),
    ) -> None:
        """Apply a patch; the caller stops the running steps that it takes out."""
        graph = self.graph
        number = graph.revision + 1
        facts = (number, origin, reason, checked.edits, checked.consequence)
        output = (checked.changes_output, checked.written_output if checked.changes_output else None)
        emit = self.emit if reason or refused else self._take  # without them there is no text to be redacted
        emit(events.Spliced(self.next_seq(), self.at(), *facts, *output, checked, guards, request, refused))
        for id_ in (*checked.leaving, *checked.consequence.rewired):
            for part in (graph.nodes[id_], *(graph.nodes[id_].children or ())) if graph.questions else ():
                self.void(part)
        for id_ in checked.leaving:
            self._join(graph.nodes[id_].parent)
        for node in {id_: graph.nodes[id_] for new in checked.steps.values() for id_ in new.depends_on}.values():
            if node.extra is not None and node.extra.is_closed:
                self.deny_dependents(node, CLOSED.format(node.id))

    def refuse_patch(self, origin: Origin, problems: tuple[Problem, ...]) -> None:
        """Record that a patch was refused."""
        self.emit(events.PatchRefused(self.next_seq(), self.at(), origin, problems))

    def change_goal(self, goal: str) -> None:
        """Record a new goal; nothing starts until there is a plan for it."""
        self.backlog.finish()
        self.emit(events.GoalChanged(self.next_seq(), self.at(), goal))
        self._trigger(Trigger(TriggerKind.GOAL_CHANGED, GOAL, f"the goal is now: {goal}"))

    def request_replan(self, node: Node, decision: Decision, failure: Failure | None, call: bytes = b"") -> None:
        """Record a reason to ask the planner: how *node* ended."""
        assert decision.trigger is not None
        kind, error = (failure.kind, failure.error) if failure is not None else (None, "")
        reason = failure.message if failure is not None else decision.reason
        # Once or twice makes no difference. Without a call, the step as it was written is compared.
        why = TriggerKind.FAILED if decision.trigger is TriggerKind.FAILED_TWICE else decision.trigger
        step = node.plan.step
        what = call or (step.args, step.for_each, step.when)
        print_ = fingerprint_of(why, node.root, node.tool.name, what, kind, error)
        self._trigger(Trigger(decision.trigger, node.id, reason, error, kind, print_))

    def _trigger(self, trigger: Trigger) -> None:
        self.backlog.finish()
        self.emit(events.ReplanRequested(self.next_seq(), self.at(), trigger))
        self._up.wake_planner()

    def start_draft(self, *, is_held: bool) -> None:
        """Record that the planner writes the first plan."""
        self.emit(events.DraftStarted(self.next_seq(), self.at(), self.graph.goal, is_held))

    def end_draft(self, result: str, reason: str, **facts: Any) -> None:
        """Record that the planner has finished the first plan."""
        self.emit(events.DraftEnded(self.next_seq(), self.at(), result, reason, **facts))

    def want_plan(self, kind: TriggerKind, reason: str) -> None:
        """Record that the run needs a plan, or more of one."""
        self._trigger(Trigger(kind, GOAL, reason))

    def start_stopping(self, status: Status, reason: str) -> None:
        """Record that the run is being ended early."""
        self.emit(events.RunStopping(self.next_seq(), self.at(), status, reason))

    def start_replan(self, steps: tuple[str, ...]) -> None:
        """Record that a request to the planner begins."""
        self.emit(events.ReplanStarted(self.next_seq(), self.at(), self.graph.replans + 1, steps))

    def end_replan(self, number: int, result: str, reason: str, steps: Iterable[str], **facts: Any) -> None:
        """Record that a request is over: the steps that it was about are released, or skipped."""
        over = tuple(steps)
        if GOAL in over and result not in ("applied", "unchanged"):
            self._skip_unstarted(f"there is no plan for the goal: {reason}")
        self.emit(events.ReplanEnded(self.next_seq(), self.at(), number, result, reason, over, **facts))
        for id_ in over:
            if id_ != GOAL:
                self.after_end(self.graph.nodes[id_])

    def end_replans(self, result: str, reason: str) -> None:
        """Record that all requests are over, and that no other one will be made."""
        triggers = self.graph.triggers
        for number, about in list(self.graph.asking.items()):
            self.end_replan(number, result, reason, [step for step in about if step in triggers])
        if triggers:
            self.end_replan(0, result, reason, tuple(triggers))

    def _skip_unstarted(self, reason: str) -> None:
        for node in list(self.graph.nodes.values()):
            if not node.state.is_settled and not node.has_started:
                self.settle(node, State.SKIPPED, reason)

    # Planners and models ----------------------------------------------------------------------------------

    def ask_planner(self, name: str = "") -> int:
        """Record that the planner is called; return the number of the call."""
        number = self.graph.planner_calls + 1
        self.emit(PlannerAsked(self.next_seq(), self.at(), number, name))
        return number

    def reserve_model(self, who: str, tokens: int | None, cost: float | None) -> int:
        """Record that a model is about to be called; return the number of the call."""
        number = len(self.graph.model_calls) + 1
        self.emit(ModelReserved(self.next_seq(), self.at(), number, who, tokens, cost))
        self.deliver()
        return number

    def charge_model(self, number: int, tokens: int | None, cost: float | None) -> None:
        """Record the usage of the model call *number*, unless the run has ended."""
        if self.ended_at is None and self.graph.model_calls[number][1] is None:
            self.emit(ModelCharged(self.next_seq(), self.at(), number, tokens, cost))

    # People -----------------------------------------------------------------------------------------------

    def ask(self, question: Question) -> None:
        """Open a question."""
        self.backlog.finish()
        self.emit(events.QuestionAsked(self.next_seq(), self.at(), question))

    def answer(self, question: Question, answer: Answer | None, state: State | None = None, reason: str = "") -> None:
        """Close a question; *state* is the new state of its step."""
        facts = (question.id, question.step, answer, state, reason)
        self.emit(events.QuestionAnswered(self.next_seq(), self.at(), *facts))

    def deny_dependents(self, node: Node, reason: str) -> None:
        """Skip the dependents of a step that has succeeded, because a person denied them."""
        for after in list(node.successors):
            if after.state is State.BLOCKED and self.graph.blocks(node, after):
                self.settle(after, State.SKIPPED, reason, cause=node.id)

    def void(self, node: Node) -> None:
        """Close the questions about a step that has ended, or that a patch has changed.

        The question whether the dependents of the step may run stays open: it is not about the step itself, and a patch
        of a planner does not answer it.
        """
        pauses = PAUSE in self.graph.kept.get(node.id, ())
        about = [q for q in self.graph.questions.values() if q.step == node.id]
        for question in [q for q in about if not (pauses and q.kind is Asked.PAUSE)]:
            self.answer(question, None, reason="no answer is needed now")
            self._up.forget(question.id)

    # for_each ---------------------------------------------------------------------------------------------

    def expand(self, node: Node, items: list[Stored]) -> None:
        """Record the elements of a for_each."""
        self.emit(StepExpanded(self.next_seq(), self.at(), node.id, tuple(items)))
        self.take_over(node)
        if not items:
            self.join_elements(node)

    def expand_over(self, node: Node, fan: Node) -> None:
        """Record that a for_each gets an element for each of *fan*, another one, as soon as that is there."""
        children = fan.children or []
        self.emit(StepExpanded(self.next_seq(), self.at(), node.id, (None,) * len(children), over=fan.id))
        self.take_over(node)
        if not children:
            self.join_elements(node)
        for child in children:  # earlier failures
            if child.state.is_settled and child.state is not _SUCCEEDED and child.id not in self.graph.kept:
                self.backlog.take(self.skipping(child))

    def take_over(self, fan: Node) -> None:
        """Settle the elements of a for_each that has its list, which the run that this one retries has done."""
        done = self.graph.elements
        for child in fan.children or () if done else ():
            if child.id not in done or child.state.is_settled or child.latest is not None or child.is_gone:
                continue
            value = done[child.id]
            if not isinstance(value, Unavailable) or not child.tool.effect.may_repeat:
                self.settle(child, _SUCCEEDED, TAKEN_OVER.format(self.graph.parent), value=value)

    def _join(self, parent: Node | None) -> None:
        """End a for_each whose last element has ended."""
        if parent is None or parent.missing or parent.state.is_settled:
            return
        if not any(child.id in self.graph.kept for child in parent.children or ()):
            self.join_elements(parent)

    def join_elements(self, parent: Node) -> None:
        """End a for_each whose elements have all settled."""
        children = parent.children or []
        bad = [child for child in children if child.state is not _SUCCEEDED]
        if parent.is_gone:
            state = State.UNKNOWN if any(child.state is State.UNKNOWN for child in bad) else State.SUPERSEDED
            self.settle(parent, state, "a later revision of the plan does without it", is_tolerated=True)
            return
        worst = next((child for child in bad if not child.is_tolerated), None)
        errors = tuple((child.index, f"{child.state}: {child.reason}") for child in bad)
        if worst is None:
            self._join_values(parent, children, errors)
            return
        state = State.UNKNOWN if any(child.state is State.UNKNOWN for child in bad) else worst.state
        count = f"{len(bad)} of {len(children)} elements did not succeed"
        reason = f"{count}; [{worst.index}] {worst.state}: {worst.reason}"
        self.settle(parent, state, reason, cause=worst.id, errors=errors)

    def _join_values(self, parent: Node, children: list[Node], errors: tuple[tuple[int, str], ...]) -> None:
        try:
            values = [child.value if child.state is _SUCCEEDED else None for child in children]
            value = join_stored(values, self.graph.plan.policy.max_argument_bytes)
        except ValueTooLarge as error:
            text = f"the outputs of its elements together: {error} (max_argument_bytes of the policy), or raise it"
            self.fail_unstarted(parent, Failure(ErrorKind.BAD_OUTPUT, text))
            return
        except ValueRefused as error:
            self.fail_unstarted(parent, Failure(ErrorKind.BAD_OUTPUT, str(error)))
            return
        states = Counter(child.state for child in children if child.state is not _SUCCEEDED)
        counts = ", ".join(f"{count} of {len(children)} elements {state}" for state, count in states.items())
        self.settle(parent, _SUCCEEDED, counts, value=value, errors=errors)


class Backlog:
    """Settles steps, and leaves those that are too many for one turn of the loop to a task of its own.

    Args:
        graph: The state; read here.
        up: Is told after each turn: the run may have ended with it.

    Attributes:
        portion: The most steps that are looked at in one turn.
    """

    portion: ClassVar[int] = 200

    def __init__(self, graph: LiveGraph, up: RunCallbacks) -> None:
        self._graph = graph
        self._up = up
        self._left: list[Iterator[None]] = []  # the last is worked on; what follows from one of its steps comes on top
        self._is_settling = False
        self._is_at_work = False
        self._tasks: TaskGroup | None = None

    def open(self, tasks: TaskGroup) -> None:
        """Leave steps to later turns from now on."""
        self._tasks = tasks

    def close(self) -> None:
        """Settle all that is left, and from now on everything at once: soon there is no task that could do it."""
        self._tasks = None
        self.finish()

    @property
    def is_pending(self) -> bool:
        """Whether steps are left to be settled, or the run may end in the next turn, as they all are."""
        return bool(self._left) or (self._is_at_work and self._tasks is not None)

    def take(self, work: Iterator[None]) -> None:
        """Settle steps, after those that are left.

        Args:
            work: Settles them, and yields after each. What follows from a step is done before the next one.
        """
        if self._is_settling:
            self._left.append(work)
            return
        is_first = not self._left
        self._left.insert(0, work)
        if is_first or self._may_not_wait:
            self._settle(self.portion)
        if self._left and not self._is_at_work and self._tasks is not None:
            self._is_at_work = True
            self._tasks.start_soon(self._work, name="dagrun backlog")

    def finish(self) -> None:
        """Settle all that is left."""
        if self._left and not self._is_settling:
            self._settle(None)

    @property
    def _may_not_wait(self) -> bool:
        """Whether a planner or a person may change the run at any time; or there is no task."""
        graph = self._graph
        return self._tasks is None or bool(graph.is_drafting or graph.triggers or graph.questions)

    def _settle(self, most: int | None) -> None:
        """Settle so many steps; all, if *most* is `None`, or if they may not wait."""
        self._is_settling, count = True, 0
        try:
            while self._left and (most is None or count < most or self._may_not_wait):
                work, count = self._left[-1], count + 1
                if next(work, self) is self:
                    self._left.remove(work)
        finally:
            self._is_settling = False

    async def _work(self) -> None:
        try:
            while self._left:
                self._settle(self.portion)
                self._up.on_external_change()  # shows what is done; the run ends in a turn of its own
                await checkpoint()
        finally:
            self._is_at_work = False
        self._up.on_external_change()  # also if other code has settled the rest
