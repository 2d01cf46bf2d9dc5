"""Calls of the planner, each counted, charged and recorded; a call whose model failed is made again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from dagrun.decide.recovery import retry_delay
from dagrun.errors import CannotPlan, ModelError, OverCeiling, PlanRefused, Problem, first_lines, shorten
from dagrun.graph.live_graph import LiveGraph
from dagrun.graph.patches.plan_to_patch import patch_of
from dagrun.model.event import PlannerCalled
from dagrun.model.outcome import Status, TriggerKind
from dagrun.model.patch import Add, Drop, Patch, Replace, Rewire
from dagrun.model.plan import Plan
from dagrun.model.planner import Brief, Planner
from dagrun.model.usage import ANSWERS, METER, Answers
from dagrun.runtime.host_calls import PluginFailed, call_plugin
from dagrun.runtime.metering import RunMeter
from dagrun.runtime.run_parts import RunParts

_EDITS: Final = (Add, Drop, Replace, Rewire)
_ENDS: Final = {"person": Status.ESCALATED, "ceiling": Status.OVER_BUDGET}

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
    """An answer is refused before it has become a patch."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__(*problems)
        self.problems = problems


class PlannerCalls:
    """Calls the planner of one run.

    Args:
        parts: What the parts of the run share.
        planner: The planner.
    """

    def __init__(self, parts: RunParts, planner: Planner) -> None:
        self._planner = planner
        self._record = parts.record
        self._ledger = parts.ledger
        self._policy = parts.policy
        self._context = parts.context
        self._random = parts.random
        self._now = parts.now
        self._up = parts.up
        self._tracer = parts.tracer
        self._tasks: TaskGroup

    def open(self, tasks: TaskGroup) -> None:
        """Take what exists only inside the task group of the run."""
        self._tasks = tasks

    async def ask(self, tell: Callable[[], Brief], take: TakeEdit | None = None) -> object:
        """Ask the planner, and wait for the whole answer.

        Args:
            tell: Makes the brief, for each call anew.
            take: Called with each edit of a streamed answer as it comes.

        Raises:
            Over: There is no answer.
            Refused: There is an answer, and it cannot be a patch.
        """
        attempt = 0
        while True:
            if not self._ledger.take_planner_call():
                raise Over("stopped", self._ledger.why_no_planner(), Status.OVER_BUDGET)
            attempt += 1
            gathered = _Gathered(self._policy.max_edits, take, self._is_late())
            try:
                return await self._call(tell(), gathered)
            except PluginFailed as error:
                delay = self._judge_safely(error, gathered, attempt)
            await anyio.sleep(delay)

    def _is_late(self) -> Callable[[], bool]:
        """Return a function that tells whether the time of a call that begins now is over."""
        end = self._now() + self._policy.planner_timeout
        return lambda: self._now() >= end

    async def _call(self, brief: Brief, gathered: _Gathered) -> object:
        meter = RunMeter(self._ledger, self._record, self._up)
        context = self._context.copy()
        context.run(METER.set, meter)
        answers = Answers()
        context.run(ANSWERS.set, answers)
        began, fault, failure = self._now(), "it was told to stop", None
        number = self._record.ask_planner()
        self._record.deliver()
        if self._tracer is not None:
            self._tracer.begin_plan(type(self._planner).__name__, context)
        try:
            answer = await call_plugin(
                partial(_answer, self._planner, brief, gathered),
                tasks=self._tasks,
                name="dagrun planner",
                context=context,
                seconds=self._policy.planner_timeout,
                grace=self._policy.grace,
                now=self._now,
                is_alone=True,
                on_stop=gathered.close,
            )
            fault = ""
            return answer
        except PluginFailed as error:
            fault, failure = str(error), error.failure
            raise
        finally:
            gathered.close()  # later edits of a call that would not stop are ignored
            if self._record.ended_at is None:
                seconds, record = self._now() - began, self._record
                facts = (number, seconds, meter.tokens, meter.cost, fault, tuple(answers.texts), failure)
                record.emit(PlannerCalled(record.next_seq(), record.at(), *facts))
                record.deliver()

    def _judge_safely(self, error: PluginFailed, gathered: _Gathered, attempt: int) -> float:
        try:
            return self._judge(error, gathered, attempt)
        except (Over, Refused):
            raise
        except Exception as fault:  # what a planner raises is an object of its own making
            raise Over("failed", f"the planner gave no answer: {error}") from fault

    def _judge(self, error: PluginFailed, gathered: _Gathered, attempt: int) -> float:
        """Return the seconds after which the planner is asked the same again.

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
            raise Refused(Problem("DR421", "", {"reason": shorten(str(error))})) from error
        rule = self._policy.retry
        if isinstance(cause, ModelError) and cause.is_transient and attempt < rule.max_attempts:
            return retry_delay(rule, attempt, self._random.random(), cause.retry_after)
        raise Over("failed", f"the planner gave no answer: {error}{answered(self._record.graph)}") from error


class _Gathered:
    """A streamed answer, as far as it has come.

    Args:
        max_edits: The most edits that are looked at; one more is refused by the check.
        take: Called with each edit.
        is_late: Returns whether the call was told to stop, because its time is over.

    Attributes:
        has_taken: Whether an edit was passed to *take*.
        is_closed: Whether later edits are ignored.
    """

    def __init__(self, max_edits: int, take: TakeEdit | None, is_late: Callable[[], bool]) -> None:
        self.has_taken = False
        self.is_closed = False
        self._is_late = is_late
        self._max_edits = max_edits
        self._take = take
        self._edits: list[AnyEdit] = []
        self._facts: dict[str, Any] = {}

    def close(self) -> None:
        """Let nothing count from now on: who is told to stop has the grace period to clean up, not to add."""
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


async def _answer(planner: Planner, brief: Brief, gathered: _Gathered) -> object:
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
    """Whether a plan may stay as it is: what was surprising or has changed may fit it, what has failed does not."""
    return all(trigger.kind in (TriggerKind.SURPRISE, TriggerKind.GOAL_CHANGED) for trigger in brief.triggers)


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
            count, limit = len(answer.steps), graph.plan.policy.max_edits
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
