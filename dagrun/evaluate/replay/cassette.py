"""`Cassette`: a recorded run as the source of every outcome from outside in a replay."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup
from pydantic_core import from_json

from dagrun.api.checking import toolbox_of
from dagrun.api.engine import Engine
from dagrun.errors import CannotPlan, DagrunError, ModelError, OverCeiling, PlanRefused, QuestionNotFound, ToolError
from dagrun.evaluate.cases.stand_in_world import CONTEXT, composing_tool, stub_of
from dagrun.evaluate.replay.order import Order
from dagrun.evaluate.replay.recorded_outcomes import (
    RECONCILED,
    HostAction,
    PlayedCall,
    RecordedOutcomes,
    RecordedReply,
)
from dagrun.features.redacted_records.sealing import Sealer
from dagrun.journal.memory import MemoryJournal
from dagrun.kernel.checks.tool_contracts import recorded_toolbox
from dagrun.kernel.model import event as events
from dagrun.kernel.model.codec.event_codec import events_of
from dagrun.kernel.model.critic import Verdict
from dagrun.kernel.model.effect import Applied
from dagrun.kernel.model.event import Event, Opening
from dagrun.kernel.model.executor import CallFailed, KeptResult, ToolCall
from dagrun.kernel.model.journal import Journal, Line
from dagrun.kernel.model.outcome import ErrorKind, Outcome, State
from dagrun.kernel.model.patch import Patch
from dagrun.kernel.model.plan import Step
from dagrun.kernel.model.planner import Brief, FallbackPlanner, RevisedBy
from dagrun.kernel.model.question import AnswerMessage, Asked, Question
from dagrun.kernel.model.secrets.secret import KEY
from dagrun.kernel.model.tool_context import ToolContext
from dagrun.kernel.model.toolbox import AnyTool, Toolbox
from dagrun.kernel.model.usage import ANSWERS, METER
from dagrun.kernel.model.value import Unavailable, decode, encode
from dagrun.kernel.runtime.result import RunResult
from dagrun.kernel.runtime.run import Run

LATE: Final = ("it took longer", "it was told to stop")  # of a planner, which gave no answer
_FAILED: Final = "the critic failed: "
_KEPT_AS_IT_IS: Final = "the planner keeps the plan as it is: "
_PATIENCE: Final = 1e6  # seconds, after which a run waits for what never comes
_BROKEN_OFF: Final = "its record ends here"
_CLOSE: Final = 1e-9  # seconds, for sums of floats
_GRACE_PERIODS: Final = 100.0  # grace periods for which a call that would not stop goes on


@dataclass(frozen=True, slots=True)
class Miss:
    """Something that the run asked for, and that was not recorded.

    Attributes:
        step: The step that asked; empty for the planner, and for the run as a whole.
        text: What was not recorded, in a sentence.
    """

    step: str
    text: str

    def __str__(self) -> str:
        return self.text


class Cassette:
    """Plays a recorded run: no tool, planner, critic or person is asked, but the record.

    A call of a tool is found by its step and its attempt, an answer of the planner by its request, an answer of a
    person by the question. Each takes as long as on record, so use a virtual clock (`dagrun.testing.run_virtual`).
    What is not found fails, and is a miss. A run that was resumed is played from its last resumption on. A cassette is
    played once.

    Args:
        run_id: The run.
        lines: Its record.
        tools: The tools, whose contracts hold; `None` for the contracts on record. None of them is called.
        record_key: The key that opens what is sealed in the record; `None` without one.

    Attributes:
        misses: What the run asked for and was not recorded.
        journal: The journal with the record of the replayed run.

    Raises:
        JournalDamaged: The record is not what was written.

    Examples:
        What yesterday's run would have come to with today's limits::

            cassette = await dagrun.Cassette.from_journal("20261125-0915-ab12", journal=journal, tools=TOOLS)
            result = await cassette.run(policy=dagrun.Policy(last_resort="escalate"))
            assert cassette.misses == []
    """

    def __init__(
        self, run_id: str, lines: Sequence[Line], tools: Any = None, record_key: str | bytes | None = None
    ) -> None:
        self._run_id, self._lines = run_id, lines
        unseal = None if record_key is None else Sealer(record_key, run_id).open
        self._outcomes = outcomes = RecordedOutcomes(events_of(run_id, lines, unseal))
        self._order = Order(outcomes.events)
        self._tools = recorded_tools(outcomes.opening) if tools is None else toolbox_of(tools)
        self._zero: float | None = None  # the begin of the run, on the clock of the loop
        self._closed: Counter[str] = Counter()  # by question: how often it was closed
        self._new: list[Question] = []  # to which an answer may be on its way
        self._host_actions = deque(outcomes.host_actions)
        self._run: Run | None = None
        self._claimed: dict[str, Question] = {}  # by idempotency key: the question that a tool answers
        self._reviewed: set[tuple[int, str]] = set()
        self.misses: list[Miss] = []
        self.journal = MemoryJournal()

    def __repr__(self) -> str:
        return f"<Cassette {self._run_id}: {len(self._outcomes.calls)} calls>"

    @classmethod
    async def from_journal(
        cls, run_id: str, *, journal: Journal, tools: Any = None, record_key: str | bytes | None = None
    ) -> Cassette:
        """Make a cassette of a run in a journal; see `Cassette`.

        Raises:
            RunNotFound: The journal has no such run.
            JournalDamaged: The record is not what was written.
        """
        return cls(run_id, await journal.read(run_id), tools, record_key)

    @property
    def difference(self) -> str:
        """Where the run first left its record, in a sentence; empty if it followed it to its end."""
        return self._order.difference

    @property
    def last(self) -> int:
        """The number of the event at which the replay reached the end of the record; 0 if it did not."""
        return self._order.last

    async def run(self, **options: Any) -> RunResult:
        """Play the run. A run whose record breaks off is suspended there.

        Args:
            options: Options of `dagrun.run` in place of those on record, such as another *policy*.

        Raises:
            PlanRefused: The plan does not pass the check: of another policy, say.
            CannotResume: The same, of a run that was resumed.
        """
        outcomes = self._outcomes
        given: dict[str, Any] = {
            "tools": Toolbox(list(map(self._stub, self._tools.values())), allow=self._tools.allowed),
            "policy": outcomes.opening.policy,
            "critics": [_RecordedCritic(name, self) for name in outcomes.opening.critics],
            "planner": self if outcomes.has_planner else None,
            "compose": self._stub(composing_tool()) if outcomes.composes else None,
            "attended": outcomes.has_people,
            "executors": dict.fromkeys(outcomes.opening.executors, _InThisTask()),
            "secrets": {name: f"the made-up secret {name}" for name in self._secrets()} or None,
            **options,
            "on_event": partial(self._see, options.get("on_event")),
        }
        async with Engine() as engine, await self._opened(engine, given) as run:
            self._new += (one for one in run.pending if one.id in outcomes.questions and one not in self._new)
            self._run = run
            while self._due() is not None:
                await self._do(run, self._host_actions.popleft())  # before anything goes on
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._hear_people, run, tasks)
                tasks.start_soon(self._act, run)
                result = await run.result()
                tasks.cancel_scope.cancel()
        return result

    async def _opened(self, engine: Engine, given: dict[str, Any]) -> AbstractAsyncContextManager[Run]:
        """Open the run: a new one, or one that is resumed from the records before the session."""
        outcomes, given = self._outcomes, {**given, "journal": self.journal}
        if not outcomes.before:
            first = outcomes.first
            goal = None if first.plan.steps else first.plan.goal
            facts = {"goal": goal, "run_id": self._run_id, "seed": first.seed, "inputs": decode(first.inputs)}
            return engine.start(first.plan if first.plan.steps else None, **facts, **given)
        run_log = await self.journal.create(self._run_id)
        for line in self._lines[: len(outcomes.before)]:
            run_log.append(line.text)
        await run_log.durable()
        await run_log.aclose()
        key = await self.journal.answer_key(self._run_id)
        for end in (told[0] for told in outcomes.answers.values() if is_of_person(told[0])):
            is_there = isinstance(outcomes.events[0], events.RunResumed) and end.at <= outcomes.events[0].at
            if is_there and end.answer is not None:  # it lay in the inbox
                letter = AnswerMessage.of(end.question, end.answer, key)
                await self.journal.post(self._run_id, letter.model_dump_json().encode())
        return engine.resume(self._run_id, allow_differences=True, **given)

    def _secrets(self) -> set[str]:
        return {name for line in self._lines for name in secrets_in(from_json(line.text))}

    def _miss(self, step: str, text: str) -> str:
        self.misses.append(Miss(step, text))
        return text

    def _see(self, on_event: Any, event: Event) -> None:
        if self._zero is None:
            self._zero = anyio.current_time() - event.at
        if isinstance(event, events.QuestionAsked):
            self._new.append(event.question)
        if isinstance(event, events.QuestionAnswered):
            self._closed[event.question] += 1
        self._order.see(event)
        if on_event is not None:
            on_event(event)
        while self._run is not None and (action := self._due()) is not None and not action.is_change:
            self._stop(self._run, self._host_actions.popleft())
        if self._run is not None and self.last == event.seq:
            self._run.suspend(_BROKEN_OFF)  # if it goes on

    def _due(self) -> HostAction | None:
        """Return the next recorded action of the host, if it was at this instant."""
        if not self._host_actions or self._zero is None or not self._order.is_next(self._host_actions[0].event):
            return None
        is_now = anyio.current_time() >= self._zero + self._host_actions[0].event.at - _CLOSE
        return self._host_actions[0] if is_now else None

    async def _turn(self, event: Event, at: float | None = None, began: Event | None = None) -> None:
        """Wait for the turn of an event, which came at *at* seconds of the run."""
        assert self._zero is not None
        await self._order.turn(self._zero + event.at if at is None else at, event, began)

    # Tools ------------------------------------------------------------------------------------------------

    def _stub(self, tool: AnyTool) -> AnyTool:
        stub = stub_of(tool, partial(self._call, tool), self._stub)
        reconcile = None if tool.reconcile is None else partial(self._reconcile, tool.name)
        return replace(stub, reconcile=reconcile, cache=None)

    async def _call(self, tool: AnyTool, **arguments: Any) -> Any:
        context: ToolContext = arguments[tool.arguments.context or CONTEXT]
        now, call = anyio.current_time(), self._outcomes.calls.get((context.step, context.attempt))
        if call is None or call.began.tool != tool.name:
            text = f"step {context.step} attempt {context.attempt} was not recorded"
            raise ToolError(self._miss(context.step, text if call is None else f"{text} as a call of {tool.name}"))
        await self._ask_inside(call, now, context)
        if (name := tool.arguments.stream) and hasattr(arguments.get(name), "__aiter__"):
            async for _ in arguments[name]:
                pass
        if call.ended is None:
            await anyio.sleep_forever()
        assert call.ended is not None
        _report(call, call.ended.outcome, context)
        if was_stopped(call.ended.outcome):
            return await self._until_stopped(call.ended.outcome)
        await self._turn(call.ended, now + call.ended.at - call.began.at, call.began)
        return self._end(call.ended.outcome, context)

    async def _ask_inside(self, call: PlayedCall, now: float, context: ToolContext) -> None:
        for asked in call.questions:
            await anyio.sleep_until(now + asked.at - call.began.at)
            question = asked.question
            assert context.ask_person is not None
            await context.ask_person(question.text, question.schema, decode(question.arguments or None))

    async def _until_stopped(self, outcome: Outcome) -> Any:
        """Wait until the run cancels the call, as recorded; the real duration of the call is unknown."""
        failure = outcome.failure
        is_late = failure is not None and failure.kind is ErrorKind.TIMEOUT and not failure.is_transient
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            if outcome.state is State.ABANDONED or is_late:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(_GRACE_PERIODS * self._outcomes.opening.policy.grace)
            if failure is not None and failure.nothing_happened:
                raise ToolError("nothing has happened") from None
            raise

    def _end(self, outcome: Outcome, context: ToolContext) -> Any:
        if outcome.failure is not None:
            is_known = outcome.state is State.FAILED or outcome.failure.nothing_happened
            raise CallFailed(replace(outcome.failure, nothing_happened=is_known))
        if isinstance(outcome.value, Unavailable):
            text = f"what step {context.step} attempt {context.attempt} gave was not recorded: {outcome.value.reason}"
            raise ToolError(self._miss(context.step, text))
        return KeptResult(outcome.value)

    async def _reconcile(self, tool: str, key: str) -> Any:
        """Return the recorded `reconcile` result of a call: keys are not recorded, so questions match in order."""
        if key not in self._claimed:
            claimed = {question.id for question in self._claimed.values()}
            questions = (
                one for one in self._outcomes.questions.values() if one.kind is Asked.EFFECT and one.tool == tool
            )
            question = next((one for one in questions if one.id not in claimed), None)
            if question is None:
                return None
            self._claimed[key] = question
        told = self._outcomes.answers.get(self._claimed[key].id, ())
        if not told or (answer := told[0].answer) is None or not answer.by.startswith(RECONCILED):
            return None
        if answer.choice not in ("took_effect", "approve"):
            return False
        await self._turn(told[0])
        return Applied(answer.value)

    # People and the host ----------------------------------------------------------------------------------

    async def _hear_people(self, run: Run, tasks: TaskGroup) -> None:
        while True:
            while self._new:
                tasks.start_soon(self._answer, run, self._new.pop(0))
            await self._order.moved()

    async def _answer(self, run: Run, question: Question) -> None:
        """Answer as the person did, after as long."""
        outcomes, number = self._outcomes, self._closed[question.id]
        if question.id not in outcomes.questions:
            self._miss(question.step, f"the question about {question.step or 'the run'} was not recorded")
            return
        told = outcomes.answers.get(question.id, ())
        if number >= len(told) or (answer := told[number].answer) is None or not is_of_person(told[number]):
            return
        since = max(outcomes.questions[question.id].asked_at, outcomes.events[0].at)
        await self._turn(told[number], anyio.current_time() + told[number].at - since)
        try:
            await run.answer(question, answer)
        except QuestionNotFound:
            pass  # nobody needs to know any more
        except DagrunError as error:
            self._miss(question.step, f"a person cannot answer as they did: {error}")

    async def _act(self, run: Run) -> None:
        """Repeat the actions of the host; at the end, suspend a run that waits for an event that never comes."""
        grace = self._outcomes.opening.policy.grace
        while self._host_actions:
            action = self._host_actions[0]
            is_after_grace = (
                isinstance(action.event, events.AttemptEnded) and action.event.outcome.state is State.ABANDONED
            )
            assert self._zero is not None
            await self._turn(action.event, self._zero + action.event.at - (grace if is_after_grace else 0.0))
            if self._host_actions and self._host_actions[0] is action:  # else it was done meanwhile
                await self._do(run, self._host_actions.popleft())
        await anyio.sleep(_PATIENCE + self._outcomes.events[-1].at)
        self._miss("", "what the run waits for was not recorded")
        run.suspend(_BROKEN_OFF)

    async def _do(self, run: Run, action: HostAction) -> None:
        try:
            match action.event:
                case events.Spliced() as event:
                    facts = {"output": event.output} if event.changes_output else {}
                    await run.splice(Patch(edits=event.edits, reason=event.reason, **facts))
                case events.GoalChanged() as event:
                    await run.change_goal(event.goal)
                case _:
                    self._stop(run, action)
        except DagrunError as error:
            self._miss(action.step, f"the host cannot do what it did: {error}")

    @staticmethod
    def _stop(run: Run, action: HostAction) -> None:
        if isinstance(action.event, events.RunSuspended):
            run.suspend(action.reason)
        else:
            run.cancel(action.step or None, action.reason)

    # The planner ------------------------------------------------------------------------------------------

    @property
    def rungs(self) -> tuple[FallbackPlanner, ...]:
        """The planners of a fallback chain, if there was one; see `FallbackChain`."""
        return tuple(
            FallbackPlanner(_OneOfSeveral(self), name, min_confidence=0.0, tries=tries)
            for name, tries in self._outcomes.rungs.items()
        )

    def revise(self, brief: Brief) -> RevisedBy:
        """Answer a request as the planner did; see `Planner`."""
        about = {trigger.step for trigger in brief.triggers}
        numbers = [number for number, steps in self._outcomes.requests.items() if about <= steps]
        left = next(
            (self._outcomes.replies[number] for number in numbers if self._outcomes.replies[number]), self._outcomes.cut
        )
        if not left:
            named = ", ".join(sorted(filter(None, about))) or "the goal"
            text = f"the answer of the planner about {named} was not recorded"
            return self._fail(CannotPlan(self._miss(next(iter(about)), text)))
        reply = left.pop(0)
        self._charge(reply)
        return self._streamed(reply) if reply.early else self._whole(reply, is_first=brief.is_first)

    async def _fail(self, error: Exception) -> None:
        raise error

    @staticmethod
    def _charge(reply: RecordedReply) -> None:
        """Report the usage and the answers of the planner's models."""
        if (answers := ANSWERS.get()) is not None and reply.called is not None:
            for text in reply.called.answers:
                answers.add(text)
        for reserved, charged in reply.charges.values():
            charge = METER.get().reserve(reserved.who, reserved.tokens, reserved.cost)
            if charged is not None:
                charge.settle(charged.tokens, charged.cost)

    async def _streamed(self, reply: RecordedReply) -> AsyncIterator[Patch]:
        now = anyio.current_time()
        for event in reply.early:
            await self._turn(event, now + event.at - reply.asked.at)
            yield _patch_of([event])
        rest = await self._whole(reply, now)
        if rest is not None:
            yield rest

    async def _whole(self, reply: RecordedReply, began: float | None = None, *, is_first: bool = False) -> Patch | None:
        began, called = anyio.current_time() if began is None else began, reply.called
        if called is None or called.fault.startswith(LATE):
            await anyio.sleep_forever()
        assert called is not None
        await self._turn(called, began + called.seconds, reply.asked)
        if reply.problems:
            raise PlanRefused(reply.problems)
        if reply.handed_on is not None:
            raise CannotPlan(reply.handed_on.reason)
        if called.fault:
            raise _error_of(called.fault, reply)
        left = reply.splices[len(reply.early) :]
        if reply.early or left:
            is_open = reply.end is not None and reply.end.more
            return _patch_of(left, confidence=called.confidence, **({"more": True} if is_open else {}))
        if reply.end is not None and reply.end.result == "denied":
            raise CannotPlan(self._miss("", f"the answer to request {called.request} was not recorded: it was denied"))
        reason = "" if reply.end is None else reply.end.reason
        is_kept = reason.startswith(_KEPT_AS_IT_IS)
        if is_first and reply.end is not None and reply.end.result == "unchanged":
            is_kept = True  # what was refused before was good as it stood, and no answer would be none
        return Patch(edits=(), reason=reason.removeprefix(_KEPT_AS_IT_IS)) if is_kept else None

    # Critics ----------------------------------------------------------------------------------------------

    def judges(self, critic: str, step: Step) -> bool:
        """Whether a critic has judged outputs of a step."""
        told = [
            one.verdicts for one in self._outcomes.reviews if one.verdicts and one.step.partition("[")[0] == step.id
        ]
        if told:
            return any(verdict.critic == critic for verdicts in told for verdict in verdicts)
        return step.id in self._outcomes.reviewed

    async def judge(self, critic: str, step: Step, outcome: Outcome) -> Verdict:
        """Return a critic's verdict on an output, found by step and value: critics do not get the attempt."""
        for review in self._outcomes.reviews:
            call = self._outcomes.calls.get((review.step, review.attempt))
            ended = None if call is None else call.ended
            is_other = ended is not None and ended.outcome.value != outcome.value
            if review.step.partition("[")[0] != step.id or is_other or (review.seq, critic) in self._reviewed:
                continue
            self._reviewed.add((review.seq, critic))
            verdict = next((one for one in review.verdicts if one.critic == critic), None)
            if verdict is None:
                await anyio.sleep_forever()
            assert verdict is not None
            if verdict.reason.startswith(_FAILED):
                self._miss(review.step, f"the error of critic {critic} about step {review.step} was not recorded")
            seconds = 0.0 if ended is None else review.at - ended.at
            await self._turn(review, anyio.current_time() + seconds)
            return verdict
        return Verdict("fail", reason=self._miss(step.id, f"the review of step {step.id} was not recorded"))


class _RecordedCritic:
    def __init__(self, name: str, cassette: Cassette) -> None:
        self.name = name
        self._cassette = cassette

    def applies_to(self, step: Step) -> bool:
        return self._cassette.judges(self.name, step)

    async def review(self, step: Step, outcome: Outcome) -> Verdict:
        return await self._cassette.judge(self.name, step, outcome)


class _OneOfSeveral:
    """A planner of a fallback chain."""

    def __init__(self, cassette: Cassette) -> None:
        self.revise = cassette.revise


class _InThisTask:
    """Replaces an executor of the host."""

    def call(self, call: ToolCall) -> Coroutine[Any, Any, object]:
        coroutine: Coroutine[Any, Any, object] = call.tool.function(**call.arguments)
        return coroutine

    async def aclose(self) -> None:
        """Release nothing."""


def _report(call: PlayedCall, outcome: Outcome, context: ToolContext) -> None:
    if outcome.tokens or outcome.cost is not None or outcome.shared is not None:
        context.report_usage(tokens=outcome.tokens, cost=outcome.cost)
    if call.confidence is not None:
        context.report_confidence(call.confidence)
    if outcome.surprise:
        context.surprise(outcome.surprise)


def was_stopped(outcome: Outcome) -> bool:
    """Whether the run cancelled a call, so that its result is unknown."""
    failure = outcome.failure
    if outcome.state in (State.CANCELLED, State.SUPERSEDED, State.ABANDONED, State.TIMED_OUT):
        return True
    is_late = failure is not None and failure.kind is ErrorKind.TIMEOUT and not failure.error
    return is_late or (failure is not None and failure.kind is ErrorKind.CANCELLED)


def is_of_person(end: events.QuestionAnswered) -> bool:
    """Whether a person closed a question, and not a tool, a deadline, or the lack of a person."""
    return end.answer is not None and not end.reason and not end.answer.by.startswith(RECONCILED)


def _patch_of(splices: Sequence[events.Spliced], **facts: Any) -> Patch:
    for event in splices:
        facts |= {"output": event.output} if event.changes_output else {}
        facts |= {"reason": event.reason} if event.reason else {}
    return Patch(edits=[edit for event in splices for edit in event.edits], **facts)


def _error_of(fault: str, reply: RecordedReply) -> DagrunError:
    """Return an error that is decided about as the one on record was."""
    name, _, text = fault.removeprefix("it raised ").partition(": ")
    if name == "CannotPlan":
        return CannotPlan(text, reply.kind)
    return OverCeiling(text) if name == "OverCeiling" else ModelError(fault, is_transient=reply.is_asked_again)


def recorded_tools(opening: Opening) -> Toolbox:
    """Return tools of the contracts on record, that can return any plain JSON."""
    known = recorded_toolbox(opening)
    plain = [replace(tool, output=replace(tool.output, encode=encode)) for tool in known.values()]
    return Toolbox(plain, allow=known.allowed)


def secrets_in(part: Any) -> Iterator[str]:
    """Yield the name of each secret that plain JSON refers to."""
    if isinstance(part, Mapping):
        if isinstance(part.get(KEY), str):
            yield part[KEY]
        for inner in part.values():
            yield from secrets_in(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from secrets_in(inner)
