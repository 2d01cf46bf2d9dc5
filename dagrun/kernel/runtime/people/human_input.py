"""`HumanInput`: questions to people, and the consequences of their answers."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import Context
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled

from dagrun.errors import AnswerRefused, QuestionNotFound, shorten
from dagrun.kernel.checks.checked_plan import Ask
from dagrun.kernel.decide.questions import Questions, fault_of, kept, may_help, reasons_to_ask, refuse_batch
from dagrun.kernel.decide.recovery import NO_APPROVER, surely_nothing_happened
from dagrun.kernel.graph.live_graph import PAUSE
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.contracts.received import ReceivedArguments
from dagrun.kernel.model.contracts.schema_types import types_of
from dagrun.kernel.model.event import QuestionAnswered
from dagrun.kernel.model.outcome import ErrorKind, Failure, Outcome, State, Status
from dagrun.kernel.model.question import Answer, Approver, Asked, Question, answer_from, standing
from dagrun.kernel.model.redaction.redactor import RedactingLogger
from dagrun.kernel.model.value import encode
from dagrun.kernel.runtime.backend import Timers
from dagrun.kernel.runtime.people.approvers import ApproverCalls
from dagrun.kernel.runtime.plugin_calls import PluginFailed
from dagrun.kernel.runtime.record.record import CLOSED, Record
from dagrun.kernel.runtime.run_callbacks import RunCallbacks

if TYPE_CHECKING:
    from dagrun.kernel.graph.confidence import Said

_LOG: Final = logging.getLogger("dagrun.run")

T = TypeVar("T")

TOO_LATE: Final = "nobody has answered in time"


class _Waiter:
    """A task that cannot continue without an answer: of a tool, or of the planner's request."""

    __slots__ = ("answer", "is_gone", "over", "question", "step")

    def __init__(self, step: str = "") -> None:
        self.step = step  # whose call may be cut off when the run is suspended, and made again; or empty
        self.over = anyio.Event()
        self.question: Question | None = None
        self.answer: Answer | None = None
        self.is_gone = False


class HumanInput:
    """Asks people on behalf of one run.

    Args:
        record: Makes the changes.
        run_id: The id of the run.
        approver: Is asked each question; or none.
        is_attended: Whether the host answers by itself, through ``run.pending`` and ``run.answer``.
        context: The context variables that the approver starts from.
        now: The clock of the loop.
        up: Ends the run, and is told of each change.
        can_wait: Whether a question without an answer now can be answered later: there is a journal.

    Attributes:
        can_ask: Whether there is an approver or a host to ask.
        can_wait: Whether a question without an answer now can be answered later.
    """

    def __init__(
        self,
        record: Record,
        *,
        run_id: str,
        approver: Approver | None,
        is_attended: bool,
        context: Context,
        now: Callable[[], float],
        up: RunCallbacks,
        can_wait: bool = False,
    ) -> None:
        graph = record.graph
        policy = graph.plan.policy
        self.can_ask = approver is not None or is_attended
        self.can_wait = can_wait
        self._questions = Questions(run_id, policy, graph.plan.redactor)
        self._record = record
        self._replies = Replies(record)
        self._graph = graph
        self._policy = policy
        self._approver = approver
        self._is_attended = is_attended
        self._context = context
        self._now = now
        self._up = up
        self._scopes: dict[str, anyio.CancelScope] = {}
        self._waiters: dict[str, _Waiter] = {}
        self._queued: deque[Callable[[], object]] = deque()
        self._lined_up: list[_Waiter] = []  # those among the queued that cannot wait forever
        self._consulting: set[str] = set()
        self._tasks: TaskGroup
        self._alarms: Timers
        up.forget, up.hold_at_pause = self.forget, self.hold_at_pause

    def open(self, tasks: TaskGroup, alarms: Timers) -> None:
        """Set the task group of the run, and the timers."""
        self._tasks = tasks
        self._alarms = alarms

    @cached_property
    def _consultant(self) -> ApproverCalls:
        """Asks tools and the approver; made when the first question comes."""
        return ApproverCalls(
            graph=self._graph,
            approver=self._approver,
            grace=self._policy.grace,
            context=self._context,
            now=self._now,
            up=self._up,
            tasks=self._tasks,
            seconds_since=self._record.seconds_since,
        )

    @property
    def is_alone(self) -> bool:
        """Whether no open question is about to be answered, by a person or by its deadline."""
        open_ones = self._graph.questions.values()
        is_heard = self._is_attended or bool(self._consulting) or self._up.expects_answers()
        return not (is_heard or any(q.deadline is not None for q in open_ones))

    @property
    def asking(self) -> set[str]:
        """The steps that wait in the middle of a call for a person, and may be cut off there and called again."""
        return {waiter.step for waiter in (*self._waiters.values(), *self._lined_up) if waiter.step}

    @property
    def in_line(self) -> int:
        """How many questions wait until there is room to ask them."""
        return len(self._queued)

    # Questions --------------------------------------------------------------------------------------------

    def may_help(self, node: Node, outcome: Outcome) -> bool:
        """Whether a person, if there is one, could still repair the end of the last attempt of *node*."""
        rule = node.plan.step.retry or self._policy.retry
        return may_help(node, outcome, rule.max_attempts)

    def hold_for_call(self, node: Node, asks: Iterable[Ask], arguments: ReceivedArguments) -> bool:
        """Hold a step until a person agrees to this very call of it; return whether it has to wait."""
        reasons = reasons_to_ask(asks, arguments)
        if not reasons:
            return False
        question = self._questions.for_call(node, reasons, arguments, self._record.at())
        if node.extra is not None and node.extra.approved == question.id:
            return False
        if self._is_full:
            self._queued.append(partial(self._up.ask_again, node))  # the question may be another one then
        else:
            self._put(question)
        return True

    def hold_at_pause(self, node: Node) -> None:
        """Hold a step, or the steps that depend on it, until a person releases it."""
        if not self._is_full:
            self._put(self._questions.for_pause(node, self._record.at()))
        elif node.state.is_settled:
            self._queued.append(partial(self._hold_after_pause, node))
        else:
            self._queued.append(partial(self._up.ask_again, node))

    def _hold_after_pause(self, node: Node) -> None:
        if PAUSE in self._graph.kept.get(node.id, ()):
            self.hold_at_pause(node)

    def hold_after(self, node: Node, outcome: Outcome) -> None:
        """Hold a step whose attempt has failed in a way that only a person can help with."""

        def put() -> None:
            if node.state is State.HELD:  # and not cancelled or dropped meanwhile
                self._put(self._questions.for_failure(node, outcome, self._record.at()))

        self._when_there_is_room(put)

    async def ask_for_patch(self, text: str, diff: tuple[str, ...]) -> Answer | None:
        """Ask whether the plan may be changed, and wait for the answer; `None` if there is none."""
        return await self._wait_for(
            lambda: self._questions.for_patch(text, diff, self._graph.revision, self._record.at())
        )

    async def ask_for_plan(self, text: str, why: str, schema: Mapping[str, Any]) -> Answer | None:
        """Ask for a plan or a patch, on behalf of a planner, and wait for the answer; `None` if there is none."""
        return await self._wait_for(
            lambda: self._questions.for_plan(text, why, schema, self._graph.revision, self._record.at())
        )

    async def ask_inside(
        self,
        node: Node,
        text: str,
        schema: Mapping[str, Any] | None,
        about: bytes,
        *,
        told: list[tuple[str, Answer | None]],
        on_open: Callable[[], None],
        goes_on: Callable[[], bool],
        is_let_go: Callable[[], bool],
    ) -> Answer | None:
        """Ask on behalf of a tool in the middle of its work, and wait for the answer; `None` if there is none.

        Args:
            node: The step.
            text: The question.
            schema: The JSON Schema of the answer.
            about: JSON text that is shown with the question, or nothing.
            told: What people have answered before, as in `OptionalAttemptState`; the answer that fits is taken from it.
            on_open: Called when the question is asked: from then on the step is held.
            goes_on: Returns whether the step continues when its tool waits no longer; else it is being stopped.
            is_let_go: Returns whether its call was cut off because the run is suspended: the question stays open then.
        """

        def made() -> Question:
            answered = len(node.extra.told) if node.extra is not None else 0
            number = answered + sum(question.step == node.id for question in self._graph.questions.values())
            return self._questions.for_value(node, text, schema, about, at=self._record.at(), number=number)

        def make() -> Question:
            on_open()
            return made()

        content = made().content if told else ""
        if (before := next((one for one in told if one[0] == content), None)) is not None:
            told.remove(before)
            if before[1] is not None:
                return before[1]
        step = node.id if self.can_wait and node.tool.effect.may_repeat else ""
        return await self._wait_for(make, goes_on, is_let_go, step)

    def ask_for_output(self, arguments: bytes, doubts: Sequence[Said] = (), did: Sequence[str] = ()) -> None:
        """Ask whether the run may hand out its answer; see `Questions.for_output`."""
        self._put(self._questions.for_output(arguments, self._record.at(), doubts, did))

    # Asking -----------------------------------------------------------------------------------------------

    @property
    def _is_full(self) -> bool:
        return len(self._graph.questions) >= self._policy.questions.max_pending

    def _when_there_is_room(self, put: Callable[[], None]) -> None:
        if self._is_full:
            self._queued.append(put)
        else:
            put()

    def _ask_next(self) -> None:
        while self._queued and not self._is_full:
            self._queued.popleft()()
        self._up.on_external_change()

    def _is_open(self, question: Question) -> bool:
        """Whether this very question is open, not a later copy, and the run has not ended."""
        return self._graph.questions.get(question.id) is question and self._graph.status is None

    def _put(self, question: Question) -> None:
        self._record.ask(question)
        self._up.asked()
        self.request_answer(question)

    def request_answer(self, question: Question) -> None:
        """Have an open question answered: now, at its deadline, or not at all."""
        if question.deadline is not None:
            self._alarms.at(self._record.zero + question.deadline, partial(self._end_of_time, question))
        if self._consultant.can_say(question):
            self._consulting.add(question.id)
            self._tasks.start_soon(self._consult, question, name="dagrun question")
        else:
            self._leave_open(question, "")

    def _leave_open(self, question: Question, fault: str) -> None:
        """Close a question that has no answer now, unless it may be answered later."""
        if self._is_attended or question.deadline is not None:
            return
        waiter = self._waiters.get(question.id)
        if not self.can_wait or (waiter is not None and not waiter.step):  # a waiting task cannot wait for days
            self._conclude(question, None, f"{NO_APPROVER}: {fault}" if fault else NO_APPROVER)

    def turn_away(self) -> None:
        """Release the tasks in line without an answer, if no answer will make room for their questions."""
        if self._lined_up and self._is_full and self.is_alone:
            for waiter in self._lined_up:
                if not waiter.step:
                    waiter.is_gone = True
                    waiter.over.set()

    async def _wait_for(
        self,
        make: Callable[[], Question],
        goes_on: Callable[[], bool] = lambda: False,
        is_let_go: Callable[[], bool] = lambda: False,
        step: str = "",
    ) -> Answer | None:
        waiter = _Waiter(step)

        def put() -> None:
            if waiter.is_gone:
                return
            question = waiter.question = make()
            self._waiters[question.id] = waiter
            self._put(question)
            self._record.deliver()
            # Without an answer, the step can continue at once, or be cut off, as the run waits for people.
            if waiter.step or (question.step and not self._is_open(question)):
                self._up.on_external_change()

        try:
            if self._is_full:
                self._lined_up.append(waiter)
            self._when_there_is_room(put)
            self.turn_away()
            if waiter.step and waiter.question is None:  # it stands in line, perhaps as the last that could go on
                self._up.on_external_change()
            await waiter.over.wait()
            await checkpoint_if_cancelled()  # the answer may have ended the run
            if waiter.question is not None and waiter.question.step and not goes_on():
                await checkpoint()  # and so the step, whose tool is cancelled here
        finally:
            waiter.is_gone = True
            if waiter in self._lined_up:
                self._lined_up.remove(waiter)
            if waiter.step and is_let_go() and waiter.question is not None:
                self.forget(waiter.question.id)  # it stays open: the call is made again when it is answered
            else:
                self._close_unheard(waiter, goes_on)
        return waiter.answer

    def _close_unheard(self, waiter: _Waiter, goes_on: Callable[[], bool]) -> None:
        question = waiter.question
        if question is not None and self._is_open(question):
            state = State.READY if question.step and goes_on() else None
            self._record.answer(question, None, state, "no step waits for the answer")
            self.forget(question.id)
            self._up.on_external_change()

    async def _consult(self, question: Question) -> None:
        """Ask the tool or the approver, and take the answer."""
        if not self._is_open(question):
            return
        fault, reply, failure = "", cast("object", None), None
        with anyio.CancelScope() as scope:
            self._scopes[question.id] = scope
            try:
                reply = await self._consultant.ask(question)
            except PluginFailed as error:
                fault, failure = str(error), error.failure
        if self._scopes.get(question.id) is scope:
            del self._scopes[question.id]
            self._consulting.discard(question.id)
        if self._is_open(question):
            self._hear(question, reply, fault, failure)
            self._up.on_external_change()

    def _hear(self, question: Question, reply: object, fault: str, failure: Failure | None = None) -> None:
        """Take the reply of the approver; a reply that is no `Answer` counts as none.

        A plain yes or no does not say whether a call took effect: it may be meant for another question.
        """
        answer = reply if not isinstance(reply, bool) else None if question.kind is Asked.EFFECT else answer_from(reply)
        if isinstance(answer, Answer):
            fault = fault_of(question, answer)
            if not fault:
                self._conclude(question, kept(answer))
                return
        elif answer is not None:
            fault = f"it gave a {type(answer).__name__}, not an Answer"
        fault = self._record.graph.plan.redactor.text(fault)
        if fault:
            text = "question %s about step %s: the approver failed: %s"
            error = failure.exception if failure is not None else None
            log = RedactingLogger(_LOG, self._record.graph.plan.redactor)
            log.warning(text, question.id, question.step, fault, exc_info=error)
        self._leave_open(question, f"it failed: {fault}" if fault else "")

    def _end_of_time(self, question: Question) -> None:
        if self._is_open(question):
            self._conclude(question, question.default, TOO_LATE)
            self._up.on_external_change()

    # Answers ----------------------------------------------------------------------------------------------

    def answer(self, ids: Iterable[str], answer: Answer) -> None:
        """Take an answer to one question, or to several of one kind.

        Raises:
            QuestionNotFound: One of them is not open.
            AnswerRefused: The answer does not fit.
        """
        questions = []
        for id_ in dict.fromkeys(ids):
            if self._graph.status is not None:  # it may be suspended, with questions that are open
                raise QuestionNotFound("the run has ended, or is suspended: resume it, and answer then")
            if id_ not in self._graph.questions:
                closed = self.answered(id_)
                why = standing(closed) if closed is not None else "it was answered, or has become void"
                raise QuestionNotFound(f"there is no open question {shorten(str(id_), 60)!r}: {why}")
            questions.append(self._graph.questions[id_])
        faults = [refuse_batch(questions, answer), *(fault_of(question, answer) for question in questions)]
        if fault := next(filter(None, faults), ""):
            raise AnswerRefused(fault)
        for question in questions:
            if self._is_open(question):  # the answer to the question before may have made it void
                self._conclude(question, kept(answer))
        self._up.on_external_change()

    def answered(self, question: str) -> Answer | None:
        """Return the last answer to a question, or `None` if it has none."""
        closed = (event for event in reversed(self._graph.rare) if isinstance(event, QuestionAnswered))
        return next((event.answer for event in closed if event.question == question and event.answer is not None), None)

    def _conclude(self, question: Question, answer: Answer | None, reason: str = "") -> None:
        """Close *question*, and apply the consequences of the answer."""
        if answer is not None and answer.choice == "escalate":
            self._record.answer(question, answer, None, reason)
            self.forget(question.id)
            by = f" by {shorten(answer.by, 60)}" if answer.by else ""
            note = f" ({shorten(answer.note)})" if answer.note else ""
            self._up.stop(Status.ESCALATED, f"handed over{by}: {shorten(question.text)}{note}")
            return
        waiter = self._waiters.get(question.id)
        if waiter is None:
            self._replies.follow(question, answer, reason)
        else:
            waiter.answer = answer
            self._record.answer(question, answer, State.READY if question.step else None, reason)
        self.forget(question.id)

    def forget(self, question: str) -> None:
        """Stop asking *question*, which no longer needs an answer, and release the task that waits for it."""
        self._consulting.discard(question)
        scope = self._scopes.pop(question, None)
        if scope is not None:
            scope.cancel()
        waiter = self._waiters.pop(question, None)
        if waiter is not None:
            waiter.over.set()
        if self._queued:  # not at once, as this may be the middle of a change
            self._alarms.at(self._now(), self._ask_next)

    def close(self) -> None:
        """Stop asking: the run has ended."""
        self._queued.clear()
        for question in [*self._scopes, *self._waiters]:
            self.forget(question)


class Replies:
    """Applies the consequences of an answer to the step of the question.

    Args:
        record: Makes the changes.
    """

    def __init__(self, record: Record) -> None:
        self._record = record

    def follow(self, question: Question, answer: Answer | None, reason: str) -> None:
        """Close *question* with *answer*, or with `None` for *reason*, and apply the consequences."""
        record, yes = self._record, answer is not None and answer.choice == "approve"
        if not question.step:
            record.answer(question, answer, None, reason)
            return
        node = self._record.graph.nodes[question.step]
        if node.state.is_settled:  # its output is looked at before the steps that depend on it start
            if not yes:
                record.deny_dependents(node, reason or _no(answer, CLOSED.format(node.id)))
            record.answer(question, answer, None, reason)
        elif question.kind is Asked.EFFECT:
            self._settle_effect(question, answer, node, reason)
        elif yes or node.is_in_flight or (question.kind is Asked.PERMISSION and _may_fall_back(node)):
            # The call that asked has ended, because its run is being suspended: the next call gets the answer.
            record.answer(question, answer, State.READY, reason)
        else:
            record.answer(question, answer, None, reason)
            self._do_without(question, answer, node, reason)

    def _do_without(self, question: Question, answer: Answer | None, node: Node, reason: str) -> None:
        """End a step whose question was not answered as it needs."""
        if question.kind in (Asked.APPROVAL, Asked.PAUSE):
            self._refuse(node, answer, reason)
        else:
            self._give_up(node)

    def _refuse(self, node: Node, answer: Answer | None, reason: str) -> None:
        """End a step that was not approved."""
        if answer is None:
            self._record.settle(node, State.SKIPPED, reason)
            return
        failure = Failure(ErrorKind.DENIED, reason or _no(answer, "a person said no"), nothing_happened=True)
        self._record.fail_unstarted(node, failure)

    def _settle_effect(self, question: Question, answer: Answer | None, node: Node, reason: str) -> None:
        """Resolve the effect of a call by the answer; without one, it stays unresolved."""
        match answer.choice if answer is not None else None:
            case "took_effect":
                self._record.answer(question, answer, None, reason)
                self._settle_known(node, answer.value if answer is not None else None)
            case "did_not" if node.is_gone:
                self._record.answer(question, answer, None, reason)
                text = "a person knows that it did not take effect"
                self._record.settle(node, State.SUPERSEDED, text, is_tolerated=True)
            case "did_not":
                self._record.answer(question, answer, State.READY, reason)
            case _:
                self._record.answer(question, answer, None, reason)
                self._give_up(node)

    def _settle_known(self, node: Node, value: object) -> None:
        """End a step whose call took effect: with its output, or as failed if the output is unknown."""
        last = node.attempts[-1]
        types = types_of(schema := node.called(last.tool).output.schema, schema)
        if node.is_gone or value is not None or types is None or "null" in types:
            self._record.settle(node, State.SUCCEEDED, "a person knows that it took effect", value=encode(value))
            return
        failure = last.outcome.failure if last.outcome is not None else None
        why = f" ({failure.message})" if failure is not None else ""
        text = f"a person knows that it took effect, but not what {last.tool} returned{why}"
        self._record.fail_unstarted(node, Failure(ErrorKind.BAD_OUTPUT, shorten(text)))

    def _give_up(self, node: Node) -> None:
        """Fail a step as its last attempt did."""
        outcome = node.attempts[-1].outcome
        assert outcome is not None
        assert outcome.failure is not None
        if node.is_gone:  # the plan does without it, so its failure has no consequence but the doubt
            self._record.settle(node, State.UNKNOWN, outcome.failure.message)
            return
        self._record.fail_unstarted(node, outcome.failure, outcome.state)


def _no(answer: Answer | None, text: str) -> str:
    return f"{text}: {shorten(answer.note)}" if answer is not None and answer.note else text


def _may_fall_back(node: Node) -> bool:
    outcome = node.attempts[-1].outcome
    has_one = node.plan.fallback is not None and not node.on_fallback
    sure = outcome is not None and not node.is_in_doubt and surely_nothing_happened(outcome, node.tool.effect)
    return has_one and sure
