"""`Cassette`: a recorded run is executed again, and every outcome from outside is looked up in its record.

1. Tools are found by step and attempt, the planner by request, people by the id of the question. What is not found is a
   `Miss`; nothing is inferred.
2. A run that was resumed is played from its last resumption on: it resumes from the record before that.
   A retry is played from behind the outputs that it took over.
3. What the host did has no key: it is done at its place in the record.
4. Outcomes take as long as they took. That does not say which of two things at one instant came first, so each waits
   for the events that came before it, but only for a moment: under another policy, say, they may not come at all.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup
from pydantic_core import from_json

from dagrun import (
    Add,
    Applied,
    Asked,
    Brief,
    DagrunError,
    Engine,
    Event,
    FallbackPlanner,
    MemoryJournal,
    Patch,
    PlanRefused,
    Problem,
    Question,
    Run,
    RunResult,
    State,
    Status,
    Step,
    Toolbox,
    ToolContext,
    ToolError,
    Unavailable,
    Verdict,
    events,
)
from dagrun.errors import CannotPlan, ModelError, OverCeiling, QuestionNotFound
from dagrun.evaluate.cases.stand_in_world import CONTEXT, composing_tool, stub_of
from dagrun.extend import (
    ANSWERS,
    METER,
    AnyTool,
    CallFailed,
    CoroutineExecutor,
    ErrorKind,
    HandOn,
    Journal,
    KeptResult,
    Outcome,
    RevisedBy,
    toolbox_of,
)
from dagrun.records import (
    COMPOSE,
    NO_APPROVER,
    NO_PLAN_NOR_PLANNER,
    NO_PLANNER,
    Line,
    Opening,
    Recovery,
    Sealer,
    decode,
    encode,
    events_of,
    recorded_toolbox,
)

LATE: Final = ("it took longer", "it was told to stop")  # of a planner, which gave no answer
_FAILED: Final = "the critic failed: "
_KEPT_AS_IT_IS: Final = "the planner keeps the plan as it is: "
_RECONCILED: Final = "reconcile of "
_TAKEN_OVER: Final = "taken over from run "
_BROKEN_OFF: Final = "its record ends here"
_TRIES: Final = 2  # of a planner of a fallback chain, by default
_PATIENCE: Final = 1e6  # seconds, after which a run waits for what never comes
_MOMENT: Final = 0.001  # seconds for which an outcome waits for the events before it
_GRACE_PERIODS: Final = 100.0  # grace periods for which a call that would not stop goes on
_CLOSE: Final = 1e-9  # seconds, for sums of floats
_ENDS: Final = {Status.ESCALATED: "person", Status.OVER_BUDGET: "ceiling"}
# Not followed: what changes no step, or is told together with the event that comes next.
_NOT_FOLLOWED: Final = (
    events.Progress,
    events.Gap,
    events.ConfidenceReported,
    events.ModelReserved,
    events.ModelCharged,
    events.PlannerCalled,
    events.RunResumed,
    events.RunReopened,
)


@dataclass(frozen=True, slots=True)
class Miss:
    """Something that the run asked for, and that was not recorded.

    Attributes:
        step: The step that asked; empty for the planner, and for the run as a whole.
        text: The missing record, in a sentence.
    """

    step: str
    text: str

    def __str__(self) -> str:
        return self.text


# The record by key ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class PlayedCall:
    """A recorded call of a tool.

    Attributes:
        began: Its begin.
        ended: Its end; `None` if that is not on record.
        confidence: How sure it was of its output; `None` if it did not say.
        questions: Its questions to people during the call.
        hedge: The end of its hedged call, if there was one.
    """

    began: events.AttemptStarted
    ended: events.AttemptEnded | None = None
    confidence: float | None = None
    questions: list[events.QuestionAsked] = field(default_factory=list)
    hedge: events.HedgeEnded | None = None


@dataclass(slots=True)
class PlayedReply:
    """A recorded call of the planner, and its answer.

    Attributes:
        asked: Its begin.
        called: Its end; `None` if that is not on record.
        splices: The applied part of the answer.
        problems: Why the answer was refused.
        charges: The reservations for its models, by number, and their usage.
        handed_on: Set if the next planner of a fallback chain was asked then.
        end: The end of the request; `None` if the planner was asked again, or there is none.
        is_asked_again: Whether the planner was asked the same again.
        kind: Who goes on if the planner cannot, as in `CannotPlan`.
    """

    asked: events.PlannerAsked
    called: events.PlannerCalled | None = None
    splices: list[events.Spliced] = field(default_factory=list)
    problems: tuple[Problem, ...] = ()
    charges: dict[int, list[events.ModelReserved | events.ModelCharged]] = field(default_factory=dict)
    handed_on: events.HandedOn | None = None
    end: events.DraftEnded | events.ReplanEnded | None = None
    is_asked_again: bool = False
    kind: str = "cannot"


class RecordedOutcomes:
    """The outcomes from outside in the last session of a run.

    Args:
        recorded: All events of the run.

    Attributes:
        first: What the run was opened with.
        opening: The opening of its last session.
        before: The events before the session.
        events: The events of the session.
        calls: The calls of tools, by step and attempt.
        replies: The answers of the planner, in order, by request; 0 for the first plan, or more of one.
        requests: The steps that each request is about.
        cut: The answers that had not ended when the record did.
        tries: The planners of a fallback chain, by name: how many of the answers of each were refused before the next.
        to_review: The values that were to be reviewed, by step and attempt.
        reviews: The reviews of outputs.
        questions: The questions, by id; also those that were open when the session began.
        answers: The ends of questions, by id.
        host_actions: The events that came of what the host did.
        has_planner: Whether there was a planner.
        composes: Whether the run composed its answer.
    """

    def __init__(self, recorded: Sequence[Event]) -> None:
        started = (event for event in recorded if isinstance(event, events.RunStarted | events.RunResumed))
        openings: list[Opening] = [event.opening for event in started if event.opening is not None]
        self.first, self.opening = openings[0], openings[-1]
        start = _start(recorded, self.first)
        self.before, self.events = recorded[:start], recorded[start:]
        self.calls: dict[tuple[str, int], PlayedCall] = {}
        self.requests: dict[int, frozenset[str]] = {0: frozenset(("",))}
        self.tries: dict[str, int] = {}
        self.questions: dict[str, Question] = {}
        self.answers: dict[str, list[events.QuestionAnswered]] = {}
        self.has_planner = not self.first.plan.steps
        self.composes = False
        self.to_review: dict[tuple[str, int], Any] = {}
        self._not_cancelled: set[str] = set()  # steps that end because of a splice, or with their elements
        self._is_over = False  # the run is being stopped: what ends now, ends because of that
        self._begin()
        for place, event in enumerate(recorded):
            if place == start:
                self._begin()
            self._note(event)

    def _begin(self) -> None:
        """Begin a session, without outcomes yet."""
        self.replies: dict[int, list[PlayedReply]] = defaultdict(list)
        self.cut: list[PlayedReply] = []
        self.reviews: list[events.Reviewed] = []
        self.questions = {id_: question for id_, question in self.questions.items() if id_ not in self.answers}
        self.answers = defaultdict(list)
        self.host_actions: list[Event] = []
        self._running: dict[str, PlayedCall] = {}
        self._last: PlayedReply | None = None

    @property
    def has_people(self) -> bool:
        """Whether a person could be asked: a question was open, and neither left open nor closed for lack of one."""
        ends = [end for told in self.answers.values() for end in told]
        last = self.events[-1] if self.events else None
        waits = isinstance(last, events.RunSuspended) and last.status is Status.WAITING
        return bool(self.questions) and not waits and not any(end.reason.startswith(NO_APPROVER) for end in ends)

    def _note(self, event: Event) -> None:
        match event:
            case events.AttemptStarted():
                self._running[event.step] = self.calls[event.step, event.attempt] = PlayedCall(event)
            case events.ConfidenceReported():
                self._running[event.step].confidence = event.confidence
            case events.HedgeEnded() if event.step in self._running:
                self._running[event.step].hedge = event
            case events.AttemptEnded():
                call = self._running.pop(event.step, None)
                if call is not None:  # else it was cut off before the session, and its end was made up for
                    call.ended = event
                    if event.decision.recovery is Recovery.REVIEW:
                        self.to_review[event.step, event.attempt] = event.outcome.value
                    self._note_cancelled(event, event.step, event.outcome)
            case events.Reviewed():
                self.reviews.append(event)
                if not event.verdicts:
                    self._note_cancelled(event, event.step, event.outcome)
            case _:
                self._note_people(event)
                self._note_planner(event)
                self._note_host(event)

    def _note_cancelled(self, event: Event, step: str, outcome: Outcome) -> None:
        kind = None if outcome.failure is None else outcome.failure.kind
        is_cancelled = outcome.state is State.CANCELLED or kind is ErrorKind.CANCELLED
        if is_cancelled and not self._is_over and step not in self._not_cancelled:
            self.host_actions.append(event)

    def _note_people(self, event: Event) -> None:
        match event:
            case events.QuestionAsked(question=question):
                self.questions[question.id] = question
                if question.kind is Asked.INPUT and (call := self._running.get(question.step)) is not None:
                    call.questions.append(event)
            case events.QuestionAnswered():
                self.answers[event.question].append(event)

    def _note_host(self, event: Event) -> None:
        match event:
            case events.Spliced():
                self._not_cancelled.update(event.consequence.dropped, event.consequence.replaced)
                is_composed = any(isinstance(edit, Add) and edit.step.tool == COMPOSE for edit in event.edits)
                self.composes = self.composes or is_composed
                if event.origin == "host" and not is_composed:  # which the run adds by itself
                    self.host_actions.append(event)
            case events.StepExpanded():
                self._not_cancelled.add(event.step)
            case events.StepSettled() if not event.cause:
                self._note_cancelled(event, event.step, Outcome(event.state, None, None))
            case events.GoalChanged():
                self.host_actions.append(event)
            case events.RunSuspended() | events.RunStopping():
                if event.status is Status.CANCELLED:
                    self.host_actions.append(event)
                self._is_over = isinstance(event, events.RunStopping)
            case events.RunReopened():
                self._is_over = False

    def _latest(self, request: int) -> PlayedReply | None:
        return self.replies[request][-1] if self.replies[request] else None

    def _note_planner(self, event: Event) -> None:
        match event:
            case events.ReplanRequested():
                self.has_planner = True
            case events.ReplanStarted():
                self.requests[event.number] = frozenset(event.steps)
            case events.PlannerAsked():
                self.cut.append(PlayedReply(event))
                if event.planner:
                    self.tries.setdefault(event.planner, _TRIES)
            case events.ModelReserved() | events.ModelCharged() if self.cut:
                self.cut[-1].charges.setdefault(event.number, []).append(event)
            case events.PlannerCalled():
                self._end_reply(event)
            case events.Spliced() if event.origin == "planner":
                reply = self.cut[-1] if self.cut and not event.request else self._latest(event.request)
                if reply is not None:
                    reply.splices.append(event)
            case _:
                self._note_end_of_reply(event)

    def _note_end_of_reply(self, event: Event) -> None:
        match event:
            case events.PatchRefused() if event.origin == "planner" and self._last is not None:
                self._last.problems = self._last.problems or event.problems
            case events.HandedOn():
                self._hand_on(event)
            case events.DraftEnded() | events.ReplanEnded():
                reply = self._latest(event.number if isinstance(event, events.ReplanEnded) else 0)
                if reply is not None and reply.end is None:
                    reply.end = event
                    reply.problems = event.problems if isinstance(event, events.DraftEnded) else reply.problems
                self.has_planner = self.has_planner and event.reason != NO_PLANNER
            case events.RunStopping():
                for reply in (told[-1] for told in self.replies.values() if told):
                    reply.kind = _ENDS.get(event.status, reply.kind)
                self.has_planner = self.has_planner and event.reason != NO_PLAN_NOR_PLANNER

    def _end_reply(self, event: events.PlannerCalled) -> None:
        before = self._latest(event.request)
        if before is not None and not before.problems and before.end is None and before.handed_on is None:
            before.is_asked_again = True
        self._last = reply = next(one for one in self.cut if one.asked.number == event.number)
        self.cut.remove(reply)
        reply.called = event
        self.replies[event.request].append(reply)

    def _hand_on(self, event: events.HandedOn) -> None:
        self.tries.setdefault(event.next_planner, _TRIES)
        told = self.replies[event.request]
        if event.why is HandOn.INVALID:
            own = [one for one in told if one.called is not None and one.called.planner == event.planner]
            self.tries[event.planner] = sum(bool(one.problems) for one in own)
        elif told:
            told[-1].handed_on = event


def _start(recorded: Sequence[Event], first: Opening) -> int:
    """Return the place of the first event of the last session."""
    resumed = [place for place, event in enumerate(recorded) if isinstance(event, events.RunResumed)]
    if resumed or not first.parent:
        return resumed[-1] if resumed else 0
    begun = next((place for place, event in enumerate(recorded) if isinstance(event, events.AttemptStarted)), None)
    settled = ((place, event) for place, event in enumerate(recorded[:begun]) if isinstance(event, events.StepSettled))
    return 1 + max((place for place, event in settled if event.reason.startswith(_TAKEN_OVER)), default=0)


# The order of the record ----------------------------------------------------------------------------------------------


class Order:
    """The events of a session, in order.

    Args:
        recorded: The events on record.

    Attributes:
        difference: Where the run left its record, in a sentence; empty if it has followed it so far.
        last: The number of the event at which the run had come to the end of its record; 0 if it has not.
    """

    def __init__(self, recorded: Sequence[Event]) -> None:
        self._expected = [event for event in recorded if _is_followed(event)]
        self._places: dict[int, int] = {}  # by number of an event: how many others must have come before it
        place = 0
        for event in recorded:
            self._places[event.seq] = place
            place += _is_followed(event)
        self._seen = 0
        self._moved = anyio.Event()
        self.difference = ""
        self.last = 0

    def see(self, event: Event) -> None:
        """Note an event of the replayed run."""
        if not _is_followed(event):
            return
        if not self.difference and self._seen < len(self._expected):
            recorded = self._expected[self._seen]
            if _facts(recorded) != _facts(event):
                self.difference = f"{_named(event)} came in place of {_named(recorded)} (event {recorded.seq})"
        self._seen += 1
        if self._seen == len(self._expected) and not self.difference:
            self.last = event.seq
        self._wake()

    def _wake(self) -> None:
        self._moved.set()
        self._moved = anyio.Event()

    def is_next(self, event: Event) -> bool:
        """Whether all has come that comes before an event on record."""
        return self._seen >= self._places[event.seq]

    async def turn(self, at: float, event: Event, began: Event | None = None) -> None:
        """Wait until a time, and until all has come that came before an event.

        Args:
            at: The time on the clock of the loop.
            event: The event on record that comes of what waits.
            began: The event of its begin. If that comes last, nothing is waited for: the call did not wait, either.
        """
        if at > anyio.current_time():
            await anyio.sleep_until(at)
        before = self._places[event.seq]
        if began is not None and before == self._places[began.seq] + 1:
            before -= 1
        with anyio.move_on_after(_MOMENT):
            while self._seen < before and not self.difference:
                await self._moved.wait()
        self._wake()


def _is_followed(event: Event) -> bool:
    return event.origin == "planner" if isinstance(event, events.PatchRefused) else not isinstance(event, _NOT_FOLLOWED)


def _facts(event: Event) -> tuple[object, ...]:
    decision = event.decision.recovery if isinstance(event, events.AttemptEnded) else None
    return (type(event), *(getattr(event, name, None) for name in ("step", "attempt", "state")), decision)


def _named(event: Event) -> str:
    step, state = getattr(event, "step", ""), getattr(event, "state", None)
    attempt = f" attempt {event.attempt}" if isinstance(event, events.AttemptStarted | events.AttemptEnded) else ""
    of_step = f" of step {step}{attempt}" if step else ""
    return f"{type(event).__name__}{of_step}{'' if state is None else f' ({state})'}"


# The replay -----------------------------------------------------------------------------------------------------------


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
        record_key: The key that opens the sealed parts of the record; `None` without one.

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
        self._begun: dict[tuple[str, int], float] = {}  # when the first call of an attempt began
        self._closed: Counter[str] = Counter()  # by question: how often it was closed
        self._host_actions = deque(outcomes.host_actions)
        self._run: Run | None = None
        self._tasks: TaskGroup | None = None
        self._claimed: dict[str, Question] = {}  # by idempotency key: the question that a tool answers
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
        planner = _RecordedChain if outcomes.tries else _RecordedPlanner
        secrets = {name for line in self._lines for name in secrets_in(from_json(line.text))}
        given: dict[str, Any] = {
            "tools": Toolbox(list(map(self._stub, self._tools.values())), allow=self._tools.allowed),
            "policy": outcomes.opening.policy,
            "critics": [_RecordedCritic(name, self, outcomes) for name in outcomes.opening.critics],
            "planner": planner(self, outcomes) if outcomes.has_planner else None,
            "compose": self._stub(composing_tool()) if outcomes.composes else None,
            "attended": outcomes.has_people,
            "executors": dict.fromkeys(outcomes.opening.executors, CoroutineExecutor()),
            "secrets": {name: f"the made-up secret {name}" for name in secrets} or None,
            **options,
            "on_event": partial(self._see, options.get("on_event")),
            "journal": self.journal,
        }
        async with Engine() as engine, await self._opened(engine, given) as self._run:
            while self._is_due():
                await self._do(self._run, self._host_actions.popleft())  # before anything goes on
            async with anyio.create_task_group() as self._tasks:
                for question in self._run.pending:
                    self._tasks.start_soon(self._answer, question)
                self._tasks.start_soon(self._act, self._run)
                result = await self._run.result()
                self._tasks.cancel_scope.cancel()
        return result

    async def _opened(self, engine: Engine, given: dict[str, Any]) -> AbstractAsyncContextManager[Run]:
        """Open the run: a new one, or one that is resumed from the records before the session."""
        outcomes, first = self._outcomes, self._outcomes.first
        if not outcomes.before:
            goal = None if first.plan.steps else first.plan.goal
            facts = {"goal": goal, "run_id": self._run_id, "seed": first.seed, "inputs": decode(first.inputs)}
            return engine.start(first.plan if first.plan.steps else None, **facts, **given)
        run_log = await self.journal.create(self._run_id)
        for line in self._lines[: len(outcomes.before)]:
            run_log.append(line.text)
        await run_log.durable()
        await run_log.aclose()
        return engine.resume(self._run_id, allow_differences=True, **given)

    def miss(self, step: str, text: str) -> str:
        """Add a miss, and return it."""
        self.misses.append(Miss(step, text))
        return text

    def _see(self, on_event: Any, event: Event) -> None:
        if self._zero is None:
            self._zero = anyio.current_time() - event.at
        self._order.see(event)
        if isinstance(event, events.QuestionAsked) and self._tasks is not None:
            self._tasks.start_soon(self._answer, event.question)
        if isinstance(event, events.QuestionAnswered):
            self._closed[event.question] += 1
        if on_event is not None:
            on_event(event)
        if self._run is not None and self.last == event.seq:
            self._run.suspend(_BROKEN_OFF)  # if it goes on

    async def turn(self, event: Event, at: float | None = None, began: Event | None = None) -> None:
        """Wait for the turn of an event, which came at *at* on the clock of the loop."""
        assert self._zero is not None
        await self._order.turn(self._zero + event.at if at is None else at, event, began)

    # Tools ------------------------------------------------------------------------------------------------

    def _stub(self, tool: AnyTool) -> AnyTool:
        stub = stub_of(tool, partial(self._call, tool), self._stub)
        reconcile = None if tool.reconcile is None else partial(self._reconcile, tool.name)
        return replace(stub, reconcile=reconcile, cache=None)

    async def _call(self, tool: AnyTool, **arguments: Any) -> Any:
        context: ToolContext = arguments[tool.arguments.context or CONTEXT]
        key, now = (context.step, context.attempt), anyio.current_time()
        name, call = f"step {context.step} attempt {context.attempt}", self._outcomes.calls.get(key)
        if call is None or call.began.tool != tool.name:
            why = f"{name} was not recorded{'' if call is None else f' as a call of {tool.name}'}"
            raise ToolError(self.miss(context.step, why))
        is_hedge, begun = key in self._begun, self._begun.setdefault(key, now)
        if not is_hedge:
            await _ask_inside(call, now, context)
        if (stream := tool.arguments.stream) and hasattr(arguments.get(stream), "__aiter__"):
            async for _ in arguments[stream]:
                pass
        has_lost = call.hedge is not None and call.hedge.has_won is not is_hedge
        if call.ended is None or (is_hedge and has_lost):
            await anyio.sleep_forever()
        assert call.ended is not None
        outcome = call.ended.outcome
        _report(call, outcome, context)
        if was_stopped(outcome):
            await _until_stopped(outcome, self._outcomes.opening.policy.grace)
        at = begun + call.ended.at - call.began.at
        end = call.hedge if call.hedge is not None and is_hedge else call.ended
        await self.turn(end, at + (_MOMENT if has_lost else 0.0), call.began)
        if isinstance(outcome.value, Unavailable):
            raise ToolError(self.miss(context.step, f"what {name} gave was not recorded: {outcome.value.reason}"))
        if outcome.failure is None:
            return KeptResult(outcome.value)
        is_known = outcome.state is State.FAILED or outcome.failure.nothing_happened
        raise CallFailed(replace(outcome.failure, nothing_happened=is_known))

    async def _reconcile(self, tool: str, key: str) -> Any:
        """Return the recorded `reconcile` result of a call: keys are not recorded, so questions match in order."""
        if key not in self._claimed:
            asked = [one for one in self._outcomes.questions.values() if one.kind is Asked.EFFECT and one.tool == tool]
            question = next((one for one in asked if one not in self._claimed.values()), None)
            if question is None:
                return None
            self._claimed[key] = question
        told = self._outcomes.answers.get(self._claimed[key].id, ())
        if not told or (answer := told[0].answer) is None or not answer.by.startswith(_RECONCILED):
            return None
        if answer.choice not in ("took_effect", "approve"):
            return False
        await self.turn(told[0])
        return Applied(answer.value)

    # People and the host ----------------------------------------------------------------------------------

    async def _answer(self, question: Question) -> None:
        """Answer as the person did, after as long."""
        outcomes, number = self._outcomes, self._closed[question.id]
        if question.id not in outcomes.questions:
            self.miss(question.step, f"the question about {question.step or 'the run'} was not recorded")
            return
        told = outcomes.answers.get(question.id, ())
        if number >= len(told) or (answer := told[number].answer) is None or not is_of_person(told[number]):
            return
        since = max(outcomes.questions[question.id].asked_at, outcomes.events[0].at)
        await self.turn(told[number], anyio.current_time() + told[number].at - since)
        assert self._run is not None
        try:
            await self._run.answer(question, answer)
        except QuestionNotFound:
            pass  # nobody needs to know any more
        except DagrunError as error:
            self.miss(question.step, f"a person cannot answer as they did: {error}")

    def _is_due(self) -> bool:
        """Whether the next recorded action of the host was at the begin of the run."""
        if not self._host_actions or self._zero is None:
            return False
        event = self._host_actions[0]
        return self._order.is_next(event) and anyio.current_time() >= self._zero + event.at - _CLOSE

    async def _act(self, run: Run) -> None:
        """Repeat the actions of the host; at the end, suspend a run that waits for an event that never comes."""
        grace = self._outcomes.opening.policy.grace
        while self._host_actions:
            event = self._host_actions[0]
            is_after_grace = isinstance(event, events.AttemptEnded) and event.outcome.state is State.ABANDONED
            assert self._zero is not None
            await self.turn(event, self._zero + event.at - grace if is_after_grace else None)
            await self._do(run, self._host_actions.popleft())
        await anyio.sleep(_PATIENCE + self._outcomes.events[-1].at)
        self.miss("", "what the run waits for was not recorded")
        run.suspend(_BROKEN_OFF)

    async def _do(self, run: Run, event: Event) -> None:
        try:
            match event:
                case events.Spliced():
                    await run.splice(_patch_of([event]))
                case events.GoalChanged():
                    await run.change_goal(event.goal)
                case _:
                    self._stop(run, event)
        except DagrunError as error:
            self.miss(getattr(event, "step", ""), f"the host cannot do what it did: {error}")

    @staticmethod
    def _stop(run: Run, event: Event) -> None:
        match event:
            case events.RunSuspended():
                run.suspend(event.reason)
            case events.RunStopping():
                run.cancel(None, event.reason)
            case events.StepSettled():
                run.cancel(event.step, event.reason)
            case events.AttemptEnded() | events.Reviewed():
                reason = "" if event.outcome.failure is None else event.outcome.failure.message
                run.cancel(event.step, reason.partition("; it would not stop")[0])  # what the run has added since


class _RecordedPlanner:
    """Answers requests as the planner of the record did; of a fallback chain, each of its planners does."""

    def __init__(self, cassette: Cassette, outcomes: RecordedOutcomes) -> None:
        self._cassette, self._outcomes = cassette, outcomes

    def revise(self, brief: Brief) -> RevisedBy:
        """Answer a request; see `Planner`."""
        about = {trigger.step for trigger in brief.triggers}
        found = (self._outcomes.replies[number] for number, steps in self._outcomes.requests.items() if about <= steps)
        left = next(filter(None, found), self._outcomes.cut)
        if not left:
            named = ", ".join(sorted(filter(None, about))) or "the goal"
            text = f"the answer of the planner about {named} was not recorded"
            return _raised(CannotPlan(self._cassette.miss(next(iter(about)), text)))
        reply = left.pop(0)
        if reply.called is not None and (answers := ANSWERS.get()) is not None:
            for text in reply.called.answers:
                answers.add(text)
        for reserved, *charged in reply.charges.values():
            charge = METER.get().reserve("the planner", reserved.tokens, reserved.cost)
            if charged:
                charge.settle(charged[0].tokens, charged[0].cost)
        early = [one for one in reply.splices if reply.called is None or one.seq < reply.called.seq]
        if early:
            return self._streamed(reply, early)
        return self._whole(reply, anyio.current_time(), is_first=brief.is_first)

    async def _streamed(self, reply: PlayedReply, early: Sequence[events.Spliced]) -> AsyncIterator[Patch]:
        now = anyio.current_time()
        for event in early:
            await self._cassette.turn(event, now + event.at - reply.asked.at)
            yield _patch_of([event])
        reply.splices = reply.splices[len(early) :]
        rest = await self._whole(reply, now, is_rest=True)
        if rest is not None:
            yield rest

    async def _whole(
        self, reply: PlayedReply, began: float, *, is_first: bool = False, is_rest: bool = False
    ) -> Patch | None:
        called, end = reply.called, reply.end
        if called is None or called.fault.startswith(LATE):
            await anyio.sleep_forever()
        assert called is not None
        await self._cassette.turn(called, began + called.seconds, reply.asked)
        if reply.problems:
            raise PlanRefused(reply.problems)
        if reply.handed_on is not None:
            raise CannotPlan(reply.handed_on.reason)
        if called.fault:
            raise _error_of(called.fault, reply)
        if reply.splices or is_rest:
            more = {"more": True} if end is not None and end.more else {}
            return _patch_of(reply.splices, confidence=called.confidence, **more)
        if end is not None and end.result == "denied":
            text = f"the answer to request {called.request} was not recorded: it was denied"
            raise CannotPlan(self._cassette.miss("", text))
        reason = "" if end is None else end.reason
        # A first plan that was refused before may be good as it stood, and no answer would be none.
        is_kept = reason.startswith(_KEPT_AS_IT_IS) or (is_first and end is not None and end.result == "unchanged")
        return Patch(edits=(), reason=reason.removeprefix(_KEPT_AS_IT_IS)) if is_kept else None


class _RecordedChain(_RecordedPlanner):
    """A fallback chain on record; see `FallbackChain`."""

    @property
    def rungs(self) -> tuple[FallbackPlanner, ...]:
        """The planners of the chain."""
        inner = _RecordedPlanner(self._cassette, self._outcomes)
        tries = self._outcomes.tries.items()
        return tuple(FallbackPlanner(inner, name, min_confidence=0.0, tries=most) for name, most in tries)


class _RecordedCritic:
    """Judges outputs as a critic of the record did, by step and value: critics do not get the attempt."""

    def __init__(self, name: str, cassette: Cassette, outcomes: RecordedOutcomes) -> None:
        self.name = name
        self._cassette, self._outcomes = cassette, outcomes
        self._told: set[int] = set()

    def _of(self, step: Step) -> Iterator[events.Reviewed]:
        yield from (one for one in self._outcomes.reviews if one.step.partition("[")[0] == step.id)

    def _values_of(self, step: Step) -> Iterator[tuple[bool, Any]]:
        """Yield whether the review of each value of a step came to its end, and the value."""
        ended = {(one.step, one.attempt) for one in self._of(step)}
        for key, value in self._outcomes.to_review.items():
            if key[0].partition("[")[0] == step.id:
                yield key in ended, value

    def applies_to(self, step: Step) -> bool:
        """Whether the critic has judged outputs of a step, or was cut off when it judged the only one."""
        judged = {verdict.critic for one in self._of(step) for verdict in one.verdicts}
        return self.name in judged or (not judged and any(self._values_of(step)))

    async def review(self, step: Step, outcome: Outcome) -> Verdict:
        """Return the verdict on an output."""
        for review in self._of(step):
            call = self._outcomes.calls.get((review.step, review.attempt))
            ended = None if call is None else call.ended
            if review.seq in self._told or (ended is not None and ended.outcome.value != outcome.value):
                continue
            self._told.add(review.seq)
            verdict = next((one for one in review.verdicts if one.critic == self.name), None)
            if verdict is None:
                await anyio.sleep_forever()
            assert verdict is not None
            if verdict.reason.startswith(_FAILED):
                text = f"the error of critic {self.name} about step {review.step} was not recorded"
                self._cassette.miss(review.step, text)
            seconds = 0.0 if ended is None else review.at - ended.at
            await self._cassette.turn(review, anyio.current_time() + seconds)
            return verdict
        if (False, outcome.value) in self._values_of(step):
            await anyio.sleep_forever()  # the review began and was cut off
        return Verdict("fail", reason=self._cassette.miss(step.id, f"the review of step {step.id} was not recorded"))


async def _ask_inside(call: PlayedCall, now: float, context: ToolContext) -> None:
    for asked in call.questions:
        await anyio.sleep_until(now + asked.at - call.began.at)
        assert context.ask_person is not None
        await context.ask_person(asked.question.text, asked.question.schema, decode(asked.question.arguments or None))


def _report(call: PlayedCall, outcome: Outcome, context: ToolContext) -> None:
    if outcome.tokens or outcome.cost is not None or outcome.shared is not None:
        context.report_usage(tokens=outcome.tokens, cost=outcome.cost)
    if call.confidence is not None:
        context.report_confidence(call.confidence)
    if outcome.surprise:
        context.surprise(outcome.surprise)


async def _until_stopped(outcome: Outcome, grace: float) -> None:
    """Wait until the run cancels the call, as on record; how long a call that would not stop went on is unknown."""
    failure = outcome.failure
    is_late = failure is not None and failure.kind is ErrorKind.TIMEOUT and not failure.is_transient
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        if outcome.state is State.ABANDONED or is_late:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(_GRACE_PERIODS * grace)
        if failure is not None and failure.nothing_happened:
            raise ToolError("nothing has happened") from None
        raise


async def _raised(error: Exception) -> None:
    raise error


def is_change(event: Event) -> bool:
    """Whether the host changed the plan or the goal."""
    return isinstance(event, events.Spliced | events.GoalChanged)


def was_stopped(outcome: Outcome) -> bool:
    """Whether the run cancelled a call, so that its result is unknown."""
    failure = outcome.failure
    if outcome.state in (State.CANCELLED, State.SUPERSEDED, State.ABANDONED, State.TIMED_OUT):
        return True
    is_late = failure is not None and failure.kind is ErrorKind.TIMEOUT and not failure.error
    return is_late or (failure is not None and failure.kind is ErrorKind.CANCELLED)


def is_of_person(end: events.QuestionAnswered) -> bool:
    """Whether a person closed a question, and not a tool, a deadline, or the lack of a person."""
    return end.answer is not None and not end.reason and not end.answer.by.startswith(_RECONCILED)


def _patch_of(splices: Sequence[events.Spliced], **facts: Any) -> Patch:
    for event in splices:
        facts |= {"output": event.output} if event.changes_output else {}
        facts |= {"reason": event.reason} if event.reason else {}
    return Patch(edits=[edit for event in splices for edit in event.edits], **facts)


def _error_of(fault: str, reply: PlayedReply) -> DagrunError:
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
        if isinstance(part.get("$secret"), str):
            yield part["$secret"]
        for inner in part.values():
            yield from secrets_in(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from secrets_in(inner)
