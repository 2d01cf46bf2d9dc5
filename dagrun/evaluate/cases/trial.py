"""One run of a case in its world, with its scripted planner and people, and what can be asked about it afterwards."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, TypeVar

import anyio
from pydantic import ValidationError

from dagrun import (
    Add,
    Answer,
    Brief,
    Budget,
    Critic,
    DagrunError,
    Engine,
    Event,
    Patch,
    Plan,
    Planner,
    PlanRefused,
    Policy,
    Question,
    RunResult,
    State,
    Status,
    TriggerKind,
)
from dagrun.errors import CannotPlan, CasesRefused
from dagrun.evaluate.cases.case_file import FOREVER, Case, PersonReply, PlannerReply
from dagrun.evaluate.cases.stand_in_world import CaseWorld
from dagrun.evaluate.plan_shape import first_plan
from dagrun.events import AttemptEnded, DraftEnded, QuestionAsked, ReplanEnded, ReplanRequested, Reviewed, Spliced
from dagrun.extend import METER, AnyPlan, Approver, RevisedBy
from dagrun.testing import VirtualClockLoop
from dagrun.texts import explain, join_lines


class PlayedPlanner:
    """Answers with the replies of a case, each used once: equal requests get them in order.

    Args:
        replies: The replies.
        strange: Is told of each request without a reply, in a sentence.

    Raises:
        CasesRefused: A plan or a patch among them cannot be read.
    """

    def __init__(self, replies: Sequence[PlannerReply], strange: list[str]) -> None:
        self._left = [(reply, _patch_of(number, reply)) for number, reply in enumerate(replies)]
        self._all = replies
        self._strange = strange

    def revise(self, brief: Brief) -> RevisedBy:
        """Answer with the first reply that is left for these steps; see `Planner`."""
        about = {trigger.step for trigger in brief.triggers} - {""}
        found = next((one for one in self._left if set(one[0].about) == about), None)
        if found is None:
            text = self._why_none(about)
            self._strange.append(text)
            return _answer(PlannerReply(fail=text), None)
        self._left.remove(found)
        return _answer(*found)

    def _why_none(self, about: set[str]) -> str:
        """Return the reason why no reply fits, with the nearest one: it shares the most steps."""
        asked = _named(about)
        if not self._all:
            return f"the planner is asked about {asked}, and has no reply"
        nearest = max(self._all, key=lambda reply: (len(about & set(reply.about)), -len(set(reply.about) - about)))
        used = " (which was used)" if all(reply is not nearest for reply, _ in self._left) else ""
        return f"the planner is asked about {asked}; the nearest reply is about {_named(set(nearest.about))}{used}"


async def _answer(reply: PlannerReply, patch: Patch | Plan | None) -> Patch | Plan | None:
    _charge(reply)
    if reply.takes == FOREVER:
        await anyio.sleep_forever()
    await anyio.sleep(float(reply.takes))
    if reply.fail is not None:
        raise CannotPlan(reply.fail, reply.kind)
    return patch


def _charge(reply: PlannerReply) -> None:
    """Charge the model usage of the planner."""
    if reply.tokens is not None or reply.cost is not None:
        METER.get().reserve("the planner of the case", reply.tokens, reply.cost).settle(reply.tokens, reply.cost)


def _named(steps: set[str]) -> str:
    return ", ".join(sorted(steps)) or "the goal"


def _patch_of(number: int, reply: PlannerReply) -> Patch | Plan | None:
    try:
        if reply.plan is not None:
            plan = Plan.model_validate(reply.plan)
            if not reply.more:
                return plan
            facts: dict[str, Any] = {} if plan.output is None else {"output": plan.output}
            edits = [Add(step=step) for step in plan.steps]
            return Patch(edits=edits, more=True, confidence=plan.confidence, **facts)
        if reply.patch is not None:
            return Patch.model_validate({**reply.patch, **({"more": True} if reply.more else {})})
    except ValidationError as error:
        part = "plan" if reply.plan is not None else "patch"
        raise CasesRefused([f"planner[{number}].{part}: {explain(error)}"]) from None
    return None


T = TypeVar("T")
TrialStatus: TypeAlias = Status | Literal["refused", "hung", "error"]

_NO_TROUBLE: Final = frozenset((TriggerKind.GOAL_GIVEN, TriggerKind.GOAL_CHANGED, TriggerKind.NEXT))
_MAX_VIRTUAL: Final = 1e7  # virtual seconds, after which a run has hung: nothing else is left that could wake it
# Of the loop at one virtual instant. Steps take few, but a tool that is called for real may pass on 100,000 items.
_MAX_TURNS: Final = 500_000


class Deadlocked(Exception):
    """An awaited event never comes; the text has the reason."""


@dataclass(slots=True, kw_only=True)
class CaseRun:
    """A run of a case.

    Attributes:
        seed: The seed of the run.
        status: How it ended: the status of the run; or ``refused`` (by the check), ``hung`` (it, or who judges its
            answer), ``error``.
        reason: Why, in a sentence.
        world: The world in which it ran, with the calls that were made.
        result: The result of the run; `None` if there was no run, or it never ended.
        events: The events of the run.
        misses: The missed expectations, a line each.
    """

    seed: int
    status: TrialStatus
    reason: str
    world: CaseWorld
    result: RunResult | None = None
    events: list[Event] = field(default_factory=list)
    misses: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether all was as expected."""
        return not self.misses

    @property
    def seconds(self) -> float:
        """The seconds from the start of the run to its end."""
        return 0.0 if self.result is None else self.result.makespan

    @property
    def steps(self) -> int:
        """How many steps ended, elements of for_each included."""
        return 0 if self.result is None else sum(step.state.is_settled for step in self.result.steps.values())

    @property
    def patches(self) -> int:
        """How often a planner changed the plan, without the first plan."""
        return sum(
            event.origin == "planner" and event.request > 0 for event in self.events if isinstance(event, Spliced)
        )

    @property
    def first_plan(self) -> Plan:
        """The plan that the planner wrote, before any change of it; without steps, if it wrote none."""
        begun = Plan(steps=()) if self.result is None else self.result.plan.at(0)
        return first_plan(begun, self.events)

    @property
    def planner_calls(self) -> int:
        """How often the planner was called."""
        return sum(event.calls for event in self.events if isinstance(event, DraftEnded | ReplanEnded))

    @property
    def escalates(self) -> bool:
        """Whether a person was needed: asked a question, or handed the run."""
        asked = any(isinstance(event, QuestionAsked) for event in self.events)
        return asked or self.status in (Status.ESCALATED, Status.WAITING)

    @property
    def had_trouble(self) -> bool:
        """Whether an attempt failed, a critic did not pass an output, or the planner was asked about something."""
        ends = (event for event in self.events if isinstance(event, AttemptEnded | Reviewed))
        has_failed = any(event.outcome.state is not State.SUCCEEDED for event in ends)
        triggers = (event.trigger.kind for event in self.events if isinstance(event, ReplanRequested))
        return has_failed or any(kind not in _NO_TROUBLE for kind in triggers)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSettings:
    """The configuration of a case's trials, except the stubs.

    Attributes:
        case: The case.
        plan: The plan; `None` if a planner writes it.
        policy: The limits.
        make_planner: Makes the planner of a trial in a world, or returns `None`.
        critics: The critics of the runs.
    """

    case: Case
    plan: AnyPlan | None
    policy: Policy
    make_planner: Callable[[CaseWorld], Planner | None]
    critics: Sequence[Critic] = ()

    def options(self, world: CaseWorld) -> dict[str, Any]:
        """Return the options of a trial in a world."""
        case = self.case
        found: dict[str, Any] = {
            "goal": case.goal,
            "policy": self.policy,
            "inputs": case.inputs,
            "critics": self.critics,
            "planner": self.make_planner(world),
            "compose": world.composer(),
        }
        if case.people is not None:
            found["approver"] = approver_of(case.people)
        if case.secrets:
            found["secrets"] = {name: f"the made-up secret {name}" for name in case.secrets}
        return {name: value for name, value in found.items() if value}


async def carry_out(
    means: TrialSettings, world: CaseWorld, seed: int, *, budget: Budget | None = None, **options: Any
) -> CaseRun:
    """Run a case once in its world; a run that never ends is noticed, if the clock is virtual.

    Args:
        means: The case.
        world: Its world, in which nothing has happened yet.
        seed: The seed of the run.
        budget: Ceilings that hold for this run and others together.
        options: More options of the run, that replace the case's.
    """
    events: list[Event] = []

    async def begin() -> RunResult:
        given: dict[str, Any] = {"tools": world.toolbox(), "seed": seed, **means.options(world), **options}
        async with Engine(budget=budget) as engine:
            return await engine.run(means.plan, on_event=events.append, **given)

    return await observed(begin, world, seed, events)


async def observed(
    begin: Callable[[], Awaitable[RunResult]], world: CaseWorld, seed: int, events: list[Event]
) -> CaseRun:
    """Wait for a run, and return it as a trial, however it ends.

    Args:
        begin: Runs the plan.
        world: The world of the run.
        seed: Its seed.
        events: Gets the events of the run while it goes on.
    """
    try:
        result = await end_of(begin, "the run", _MAX_VIRTUAL if world.is_virtual else None)
        return CaseRun(seed=seed, status=result.status, reason=result.reason, world=world, result=result, events=events)
    except Deadlocked as error:
        return CaseRun(seed=seed, status="hung", reason=str(error), world=world, events=events)
    except PlanRefused as error:
        text = "; ".join(map(str, error.problems[:3]))
        return CaseRun(seed=seed, status="refused", reason=text, world=world, events=events)
    except DagrunError as error:
        reason = join_lines([str(error)], more=0)
        return CaseRun(seed=seed, status="error", reason=reason, world=world, events=events)


async def end_of(call: Callable[[], Awaitable[T]], who: str, most: float | None = None) -> T:
    """Make a call, and return its value; that it spins is noticed, if the clock is virtual.

    Args:
        call: The call. If it is told to stop, it must end in some time.
        who: The called function, for the reason.
        most: Seconds after which it waits for what never comes; `None` for no limit. On a virtual clock, a call with a
            limit waits for no thread and no socket.

    Raises:
        Deadlocked: It has not ended.
    """
    why = f"{who} has not ended: it waits for what never comes"

    def end_spinning() -> None:
        nonlocal why
        why = f"{who} has not ended: something in it spins, {_MAX_TURNS} turns of the loop without a pause"
        scope.cancel()

    with anyio.move_on_after(most) as scope, _bounded(end_spinning):
        return await call()
    raise Deadlocked(why)


def _bounded(on_spin: Callable[[], object]) -> AbstractContextManager[None]:
    """Call a function if code spins on a virtual clock, where no time limit would end it."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # of trio
        return nullcontext()
    return loop.bounded(_MAX_TURNS, on_spin) if isinstance(loop, VirtualClockLoop) else nullcontext()


class _CasePeople:
    """Scripted people: they answer by step, then by tool, by kind of question, and by ``*``.

    Args:
        replies: Their answers, in order; the last one repeats.
    """

    def __init__(self, replies: Mapping[str, Sequence[PersonReply]]) -> None:
        self._replies = replies
        self._given: Counter[tuple[str, str]] = Counter()

    async def answer(self, question: Question) -> Answer | None:
        """Answer a question; see `Approver`."""
        reply = self._reply(question)
        if reply is None:
            return None
        if reply.takes == FOREVER:
            await anyio.sleep_forever()
        await anyio.sleep(float(reply.takes))
        return Answer(reply.choice, reply.value, "the people of the case", reply.note, question.checklist)

    def _reply(self, question: Question) -> PersonReply | None:
        step = question.step.partition("[")[0]
        names = (question.step, step, question.tool, str(question.kind), "*")
        name = next((name for name in names if name in self._replies), None)
        fitting = [one for one in self._replies.get(name or "", ()) if one.kind in (None, question.kind)]
        if name is None or not fitting:
            return None
        use = (name, str(question.kind))
        number = self._given[use]
        self._given[use] += 1
        return fitting[min(number, len(fitting) - 1)]


def approver_of(replies: Mapping[str, Sequence[PersonReply]]) -> Approver:
    """Return the approver that asks the people of a case."""
    return _CasePeople(replies).answer
