"""Calls of the planner, each counted, charged and recorded; a call whose model failed is made again.

Of a fallback chain of planners, one is asked at a time. It is known from the record which one that is: each that hands
on makes an event. So a run that is resumed in the middle of a request asks none of them twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled

from dagrun.errors import CannotPlan, ModelError, NoRoute, OverCeiling, PlanRefused, Problem, first_lines, shorten
from dagrun.kernel.decide.recovery import UNKNOWN_TOOL, retry_delay
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.patches.plan_to_patch import patch_of
from dagrun.kernel.model.event import HandedOn, PlannerCalled
from dagrun.kernel.model.outcome import ErrorKind, Status, TriggerKind
from dagrun.kernel.model.patch import Add, Drop, Patch, Replace, Rewire
from dagrun.kernel.model.plan import Plan
from dagrun.kernel.model.planner import (
    NOTES,
    Brief,
    FallbackPlanner,
    HandOn,
    Notes,
    Planner,
    Refusal,
    Trigger,
    low_confidence_of,
    rungs_of,
)
from dagrun.kernel.model.question import ASK_PERSON, Answer
from dagrun.kernel.model.usage import ANSWERS, METER, PLACES, PROMPTS, Answers
from dagrun.kernel.runtime.plugin_calls import CallClock, PluginFailed, call_plugin
from dagrun.kernel.runtime.run_callbacks import RunCallbacks, RunMeter
from dagrun.kernel.runtime.run_features import PlacesOfCall
from dagrun.kernel.runtime.run_parts import RunParts

_UNKNOWN_TOOL: Final = frozenset(("DR201", "DR202", "DR221"))
_EDITS: Final = (Add, Drop, Replace, Rewire)
_ENDS: Final = {"person": Status.ESCALATED, "ceiling": Status.OVER_BUDGET}
_WHY: Final[Mapping[str, HandOn]] = {"person": HandOn.PERSON, "ceiling": HandOn.LIMIT}

_MAX_VERSION: Final = 80  # characters

AnyEdit = Add | Drop | Replace | Rewire
TakeEdit = Callable[[AnyEdit], None]


class Over(Exception):
    """A request is over without a patch.

    Attributes:
        result: One of the results of `ReplanEnded`.
        reason: The reason, in a sentence.
        status: How the run ends, if it cannot go on without a patch.
    """

    def __init__(self, result: str, reason: str, status: Status = Status.FAILED) -> None:
        super().__init__(result, reason)
        self.result = result
        self.reason = reason
        self.status = status


class Refused(Exception):
    """An answer is refused before it has become a patch.

    Attributes:
        problems: Its problems.
        is_half: Whether the planner has failed in the middle of it.
    """

    def __init__(self, *problems: Problem, is_half: bool = False) -> None:
        super().__init__(*problems)
        self.problems = problems
        self.is_half = is_half


@dataclass(slots=True)
class PlannerRequest:
    """One request to the planner.

    Attributes:
        number: 1 for the first replan of the run; 0 for a request for the first plan, or for more of it.
        triggers: The reasons for it.
        calls: The calls of the planner so far.
        refusals: The answers of the planner that is asked now that were refused.
        leaves: Why that planner is not asked again, though its answer was refused; `None` if it may be.
        refused: Patches of this request that were refused.
        signature: The signature of the last patch.
        is_alone: Whether no other patch is applied until this request has ended.
    """

    number: int
    triggers: tuple[Trigger, ...]
    calls: int = 0
    refusals: int = 0
    leaves: HandOn | None = None
    refused: list[Refusal] = field(default_factory=list)
    signature: str = ""
    is_alone: bool = False

    @property
    def steps(self) -> tuple[str, ...]:
        """The ids of its steps."""
        return tuple(trigger.step for trigger in self.triggers)

    @property
    def is_first(self) -> bool:
        """Whether it asks for the first plan."""
        return self.triggers[0].kind is TriggerKind.GOAL_GIVEN


class PlannerCalls:
    """Calls the planner of one run, or the planners of its fallback chain.

    Args:
        parts: What the parts of the run share.
        planner: The planner.
    """

    def __init__(self, parts: RunParts, planner: Planner) -> None:
        self._rungs = rungs_of(planner)
        self._record = parts.record
        self._ledger = parts.ledger
        self._policy = parts.policy
        self._context = parts.context
        self._random = parts.random
        self._now = parts.now
        self._make_places = parts.make_places
        self._up = parts.up
        self._tracer = parts.tracer
        self._tasks: TaskGroup

    def open(self, tasks: TaskGroup) -> None:
        """Set the task group of the run."""
        self._tasks = tasks

    async def ask(self, request: PlannerRequest, tell: Callable[[], Brief], take: TakeEdit | None = None) -> object:
        """Ask the planner, and wait for the whole answer; in a fallback chain, ask one planner after another.

        Args:
            request: The request.
            tell: Makes the brief, separately for each call.
            take: Called with each edit of a streamed answer as it comes.

        Raises:
            Over: There is no answer.
            Refused: There is an answer, and it cannot be a patch, or it is not good enough.
        """
        attempt = 0
        while True:
            if not self._ledger.take_planner_call():
                raise Over("stopped", self._ledger.why_no_planner(), Status.OVER_BUDGET)
            attempt += 1
            rung, brief = self._rung_of(request), tell()
            gathered = _Gathered(self._policy.planning.max_edits, take, self._now)
            try:
                await checkpoint_if_cancelled()  # a call that begins after the end of the record would be on no record
                answer = await self._call(request, rung, brief, gathered)
            except PluginFailed as error:
                attempt -= gathered.is_crowded
                delay = self._delay_after(error, request, gathered, attempt)
            else:
                if self._is_good(answer, request, brief, gathered):
                    return answer
                delay = None
            if delay is None:
                attempt = 0
            else:
                await anyio.sleep(delay)

    # The chain -------------------------------------------------------------------------------------------

    def _place(self, request: PlannerRequest) -> int:
        passed = self._record.graph.handed_on.get(request.number, ())
        return min(passed[-1].rung, len(self._rungs) - 1) if passed else 0  # a resumed run may have a shorter chain

    def _rung_of(self, request: PlannerRequest) -> FallbackPlanner:
        return self._rungs[self._place(request)]

    @property
    def asks_models(self) -> bool:
        """Whether any of the planners must report its confidence in proposals with effects."""
        return any(_must_say(rung) for rung in self._rungs)

    def must_say(self, request: PlannerRequest) -> bool:
        """Whether the answering planner asks a model, and so must report its confidence in proposals with effects."""
        return _must_say(self._rung_of(request))

    def _may_hand_on(self, request: PlannerRequest) -> bool:
        return self._place(request) + 1 < len(self._rungs)

    def _hand_on(self, request: PlannerRequest, why: HandOn, reason: str) -> None:
        """Record that the next planner is asked from now on."""
        place, record = self._place(request), self._record
        names = (self._rungs[place].name, self._rungs[place + 1].name)
        request.refusals, request.leaves = 0, None
        record.emit(HandedOn(record.next_seq(), record.at(), request.number, place + 1, *names, why, reason))
        record.deliver()

    def must_escalate(self, problems: Sequence[Problem]) -> str:
        """Return why the run is handed to people after these problems of an answer; empty if it is not."""
        if self._policy.planning.unknown_tools != "escalate":
            return ""
        wanted = [problem.sentence for problem in problems if problem.code in _UNKNOWN_TOOL]
        return f"{UNKNOWN_TOOL}: {wanted[0]}" if wanted else ""

    def may_try_again(self, request: PlannerRequest, problems: Sequence[Problem]) -> bool:
        """Record a refused answer; return whether a planner may be asked again, this one or the next."""
        request.refusals += 1
        is_over = request.refusals >= self._rung_of(request).tries
        why = request.leaves or (HandOn.INVALID if is_over else None)
        if why is None:
            return True
        if not self._may_hand_on(request):
            return not is_over
        self._hand_on(request, why, shorten("; ".join(map(str, problems)), 500))
        return True

    def _is_good(self, answer: object, request: PlannerRequest, brief: Brief, gathered: _Gathered) -> bool:
        """Whether an answer is used; else the next planner is asked.

        Raises:
            Refused: It is not good enough, and some of its steps are in the graph already.
        """
        if not self._may_hand_on(request):
            return True
        doubt = low_confidence_of(answer, brief, self._rung_of(request).min_confidence)
        if doubt is None:
            return True
        if doubt.problem is not None and gathered.has_taken:
            request.leaves = doubt.why
            raise Refused(doubt.problem)
        self._hand_on(request, doubt.why, "" if doubt.problem is None else doubt.problem.sentence)
        return False

    def _delay_after(
        self, error: PluginFailed, request: PlannerRequest, gathered: _Gathered, attempt: int
    ) -> float | None:
        """Return the seconds until the planner is asked again; `None` to ask the next one.

        Raises:
            Over: No planner is asked again.
            Refused: It has begun to stream an answer, and that is only half of one, or its answer is no plan.
        """
        try:
            return self._judge_safely(error, gathered, attempt)
        except (Over, Refused) as over:
            if not self._may_hand_on(request) or (isinstance(over, Refused) and not over.is_half):
                raise
            why = _why_no_answer(_meaning_of(error.__cause__), is_late=error.failure.kind is ErrorKind.TIMEOUT)
            if isinstance(over, Refused):
                request.leaves = why
                raise
            if gathered.has_taken:
                request.leaves = why
                raise Refused(Problem("DR421", "", {"reason": over.reason})) from over
            self._hand_on(request, why, over.reason)
            return None

    def _seconds(self, rung: FallbackPlanner) -> float:
        """Return the time limit of a call, without the time of people it asks."""
        return self._policy.planning.timeout if rung.timeout is None else rung.timeout

    async def _call(self, request: PlannerRequest, rung: FallbackPlanner, brief: Brief, gathered: _Gathered) -> object:
        meter = RunMeter(self._up)
        context = self._context.copy()
        answers, notes = Answers(), Notes()
        places = self._make_places(gathered.clock)
        context.run(_set_for_models, meter, answers, notes, places, gathered.prompts)
        began, fault, failure, confidence = self._now(), "it was told to stop", None, None
        name = rung.name if len(self._rungs) > 1 else ""
        number = self._record.ask_planner(name)
        self._record.deliver()
        context.run(ASK_PERSON.set, partial(_ask_person, self._up, gathered.clock))
        if self._tracer is not None:
            self._tracer.begin_plan(type(rung.planner).__name__, context, request.number)
        try:
            answer = await call_plugin(
                partial(_answer, rung.planner, brief, gathered),
                tasks=self._tasks,
                name="dagrun planner",
                context=context,
                seconds=self._seconds(rung),
                grace=self._policy.grace,
                now=self._now,
                is_alone=True,
                on_stop=gathered.close,
                on_begin=gathered.clock.begin,
            )
            fault, confidence = "", answer.confidence if isinstance(answer, Patch | Plan) else None
            return answer
        except PluginFailed as error:
            fault, failure = str(error), error.failure
            raise
        finally:
            gathered.close()  # later edits of a call that would not stop are ignored
            gathered.is_crowded = places.crowded
            if self._record.ended_at is None:
                seconds, record = self._now() - began, self._record
                facts = (number, seconds, meter.tokens, meter.cost, fault, tuple(answers.texts), failure, name)
                prompts = ", ".join(filter(None, (_text(gathered.prompt, _MAX_VERSION), *gathered.prompts)))
                last = (_text(notes.text, Notes.MAX_TEXT), request.number, prompts[:_MAX_VERSION], confidence)
                record.emit(PlannerCalled(record.next_seq(), record.at(), *facts, *last))
                record.deliver()

    def _judge_safely(self, error: PluginFailed, gathered: _Gathered, attempt: int) -> float:
        try:
            return self._judge(error, gathered, attempt)
        except (Over, Refused):
            raise
        except Exception as fault:  # what a planner raises is an object of its own making
            raise Over("failed", f"the planner gave no answer: {error}") from fault

    def _judge(self, error: PluginFailed, gathered: _Gathered, attempt: int) -> float:
        """Return the seconds until the planner is asked again.

        Raises:
            Over: It is not asked again.
            Refused: It has begun to stream an answer, and that is only half of one.
        """
        cause = _meaning_of(error.__cause__)
        match cause:
            case PlanRefused():
                problems = [p for p in cause.problems if not p.is_advice]
                raise Refused(*problems or [Problem("DR420", "", {"reason": shorten(str(error))})]) from cause
            case CannotPlan():
                reason = f"the planner cannot: {shorten(cause.reason, 500)}"
                raise Over("failed", reason, _ENDS.get(cause.kind, Status.FAILED)) from cause
            case OverCeiling():
                raise Over("stopped", shorten(str(cause), 500), Status.OVER_BUDGET) from cause
        if gathered.has_taken:
            raise Refused(Problem("DR421", "", {"reason": shorten(str(error))}), is_half=True) from error
        rule = self._policy.retry
        if isinstance(cause, ModelError) and cause.is_transient and attempt < rule.max_attempts:
            return retry_delay(rule, max(attempt, 1), self._random.random(), cause.retry_after)
        raise Over("failed", f"the planner gave no answer: {error}{answered(self._record.graph)}") from error


class _Gathered:
    """A streamed answer, as far as it has come.

    Args:
        max_edits: The most edits that are looked at; one more is refused by the check.
        take: Called with each edit.
        now: The clock of the loop.

    Attributes:
        has_taken: Whether an edit was passed to *take*.
        prompt: The version of the words of the planner's prompts, as the planner has it.
        prompts: Those of further prompts, as of the one that picks tools.
        clock: The time that the call may take.
        is_crowded: Whether its model refused the call for now, because of others beside it.
        is_closed: Whether later edits are ignored.
    """

    def __init__(self, max_edits: int, take: TakeEdit | None, now: Callable[[], float]) -> None:
        self.has_taken = False
        self.prompt: object = ""
        self.prompts: list[str] = []
        self.is_crowded = False
        self.is_closed = False
        self.clock = CallClock(now)
        self._max_edits = max_edits
        self._take = take
        self._edits: list[AnyEdit] = []
        self._facts: dict[str, Any] = {}

    def _is_late(self) -> bool:
        """Whether the call was cancelled because its time is over."""
        return self.clock.is_over

    def close(self) -> None:
        """Ignore everything from now on: a cancelled planner has the grace period to clean up, not to add edits."""
        self.is_closed = True

    def add(self, item: object) -> bool:
        """Take an item that the planner has yielded; return whether it may continue."""
        if self.is_closed or self._is_late():
            return False
        if isinstance(item, Patch):
            self._facts |= {name: getattr(item, name) for name in item.model_fields_set - {"edits"}}
            edits: tuple[AnyEdit, ...] = tuple(item.edits)
        elif isinstance(item, _EDITS):
            edits = (item,)
        else:
            raise TypeError(f"the planner streams edits, not a {type(item).__name__}")
        for edit in edits:
            self._edits.append(edit)
            if len(self._edits) > self._max_edits:
                return False
            if self._take is not None:
                self.has_taken = True
                self._take(edit)
        return True

    def patch(self) -> Patch:
        """Return the whole answer."""
        return Patch(edits=tuple(self._edits), **self._facts)


async def _ask_person(
    up: RunCallbacks, clock: CallClock, text: str, why: str, schema: Mapping[str, Any]
) -> Answer | None:
    """Ask a person on behalf of the planner, whose time does not run meanwhile."""
    with clock.stopped():
        return await up.ask_for_plan(text, why, schema)


def _set_for_models(meter: RunMeter, answers: Answers, notes: Notes, places: PlacesOfCall, prompts: list[str]) -> None:
    METER.set(meter)
    ANSWERS.set(answers)
    NOTES.set(notes)
    PLACES.set(places)
    PROMPTS.set(prompts)


async def _answer(planner: Planner, brief: Brief, gathered: _Gathered) -> object:
    gathered.prompt = getattr(getattr(planner, "wording", None), "version", "")
    answer: Any = planner.revise(brief)
    if not hasattr(answer, "__aiter__"):
        return await answer
    try:
        async for item in answer:
            if not gathered.add(item):
                break
            await checkpoint()  # new steps start now, whatever the planner does next
    finally:
        if hasattr(answer, "aclose"):
            await answer.aclose()  # nothing else would close a generator that is not at its end
    return gathered.patch()


def _meaning_of(error: BaseException | None) -> BaseException | None:
    """Return the error that decides, of several at once, for instance of models that were asked side by side."""
    leaves = list(_leaves(error))
    models = [leaf for leaf in leaves if isinstance(leaf, ModelError) and leaf.is_transient]
    if len(models) == len(leaves) and models:
        return max(models, key=lambda leaf: leaf.retry_after or 0.0)
    alone = leaves[0] if len(leaves) == 1 else error
    return next((leaf for leaf in leaves if isinstance(leaf, PlanRefused | CannotPlan | OverCeiling)), alone)


def _why_no_answer(error: BaseException | None, *, is_late: bool = False) -> HandOn:
    """Return the reason to hand on after a planner has raised *error*, or took too long."""
    match error:
        case _ if is_late:
            return HandOn.TIMEOUT
        case NoRoute():
            return HandOn.NO_ROUTE
        case CannotPlan():
            kind: object = error.kind  # of the planner's own making
            return _WHY.get(kind, HandOn.REFUSAL) if isinstance(kind, str) else HandOn.REFUSAL
        case OverCeiling():
            return HandOn.LIMIT
        case _:
            return HandOn.NO_ANSWER


def _text(value: object, limit: int) -> str:
    """Return a value from a planner if it is a text, else an empty text."""
    return value[:limit] if type(value) is str else ""


def _must_say(rung: FallbackPlanner) -> bool:
    return getattr(rung.planner, "must_say_confidence", False) is True


def _leaves(error: BaseException | None) -> Iterator[BaseException | None]:
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _leaves(one)
    else:
        yield error


def answered(graph: LiveGraph) -> str:
    """Return the first lines of the last answer of the planner's models, as the end of a sentence; empty without."""
    shown = first_lines(graph.planner_answers[-1]) if graph.planner_answers else ""
    return f"; its model answered: {shown}" if shown else ""


def _may_stay(brief: Brief) -> bool:
    """Whether "no change" is a valid answer: yes after a surprise or a new goal, no after a failure."""
    return all(
        trigger.kind.is_surprising_success or trigger.kind is TriggerKind.GOAL_CHANGED for trigger in brief.triggers
    )


def patch_from(answer: object, brief: Brief, known: frozenset[str], graph: LiveGraph) -> Patch:
    """Make a patch of the answer of a planner.

    Args:
        answer: The answer.
        brief: The brief that it answers.
        known: The ids of the steps that had succeeded when the brief was made.
        graph: The plan as it stands now.

    Raises:
        Over: Nothing is to be changed, or there is no plan.
        Refused: The answer cannot be a patch.
    """
    match answer:
        case None if brief.is_first:
            raise Over("failed", "the planner has none")
        case None:
            raise Over("unchanged", "the planner leaves the plan as it is")
        case Patch(edits=(), more=False) if brief.is_next and not answer.changes_output:
            raise Over("unchanged", answer.reason or "the planner has nothing to add")
        case Patch(edits=(), more=False) if not answer.changes_output and _may_stay(brief):
            raise Over("unchanged", f"the planner keeps the plan as it is{f': {r}' if (r := answer.reason) else ''}")
        case Plan():
            count, limit = len(answer.steps), graph.plan.policy.planning.max_edits
            if count > limit + len(graph.nodes):
                raise Refused(Problem("DR409", "steps", {"count": str(count), "limit": str(limit)}))
            if brief.is_first and not answer.steps:  # that changes nothing, and there still is no plan
                raise Refused(Problem("DR111", "steps"))
            patch = patch_of(graph, answer, brief.revision, known)
            if not patch.edits and not patch.changes_output and not brief.is_first:
                raise Over("unchanged", "the planner's plan is the one that is carried out already")
            return patch
        case Patch():
            return answer if answer.base is not None else answer.model_copy(update={"base": brief.revision})
        case _:
            raise Over("failed", f"the planner's answer is no patch but a {type(answer).__name__}")
