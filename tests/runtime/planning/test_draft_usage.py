"""Calls of a planner that writes the first plan, and what its models use: tried again, charged, and never too much."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

import dagrun
from dagrun import Add, Brief, Budget, Engine, Event, Plan, RetryRule, RunResult, Status, Step
from dagrun.errors import ModelError, OverCeiling
from dagrun.events import CeilingNear, PlannerCalled, RunEnded
from dagrun.kernel.model.usage import METER, UNMETERED
from dagrun.kernel.runtime.stop_scope import LAST_SECONDS
from draft_steps import NO_TOOL, nap
from drafts import GOAL, Writer, run, started, whole
from small_tools import near, scripted, states, toolset

pytestmark = pytest.mark.anyio

# Calls and what they use ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("retry_after", "at"), [(7.0, 7.0), (None, 0.0), (500.0, 120.0), (0.25, 0.25)])
async def test_a_busy_model_is_asked_again_exactly_when_it_said(retry_after: float | None, at: float) -> None:
    """Up to two minutes: a server may not park a run for a day."""
    events: list[Event] = []
    busy = ModelError("busy", is_transient=True, retry_after=retry_after)
    retry = RetryRule(max_attempts=3, first_delay=0)

    result = await run(Writer([busy], [busy], [nap("a")]), events=events, retry=retry)

    assert started(result) == {"a": near(2 * at)}
    calls = [(event.number, event.at) for event in events if isinstance(event, PlannerCalled)]
    assert calls == [(1, near(0)), (2, near(at)), (3, near(2 * at))]


async def test_each_try_counts_as_a_call() -> None:
    busy = ModelError("busy", is_transient=True, retry_after=1)
    planner = Writer([busy], [busy], [nap("a")])

    result = await run(
        planner, retry=RetryRule(max_attempts=9, first_delay=0), planning=dagrun.PlanningRule(max_calls=2)
    )

    assert (len(planner.briefs), result.status) == (2, Status.OVER_BUDGET)
    assert result.reason == "there is no plan: ceiling of 2 planner calls is spent: 2 used"


async def test_a_better_plan_is_asked_for_again_when_its_model_is_busy() -> None:
    """That is another try of the same request, and not another request."""
    busy = ModelError("busy", is_transient=True, retry_after=2)
    planner = Writer([nap("a"), NO_TOOL], [busy], [nap("b")])

    result = await run(planner, retry=RetryRule(first_delay=0))

    assert started(result) == {"a": near(0), "b": near(2)}
    assert len(planner.briefs) == 3


class Metered:
    """Writes with a model that is charged: reserves *most*, thinks, uses *used*; and so again for each call."""

    def __init__(self, most: int, used: int | None, *rounds: list[Any], cost: float | None = None) -> None:
        self._most, self._used, self._cost = most, used, cost
        self._rounds = iter(rounds)

    async def revise(self, brief: Brief) -> Any:
        charge = METER.get().reserve("a-model", self._most, self._cost)
        try:
            for item in next(self._rounds):
                if isinstance(item, int | float):
                    await anyio.sleep(item)
                else:
                    yield Add(step=item) if isinstance(item, Step) else item
        finally:
            charge.settle(self._used, self._cost)


async def test_what_nobody_knows_is_charged_at_its_worst() -> None:
    """The first call may have used all that there is: there is nothing left for a better plan."""
    planner = Metered(60, None, [nap("a", 9), 1, NO_TOOL], [nap("b")])

    result = await run(planner, max_tokens=100)

    assert result.status is Status.OVER_BUDGET
    assert "ceiling of 100 tokens has no room for a-model, which may use 60: 60 used" in result.reason


async def test_a_call_that_knows_what_it_used_leaves_the_rest() -> None:
    planner = Metered(60, 30, [nap("a"), 1, NO_TOOL], [nap("b")])

    result = await run(planner, max_tokens=100)

    assert (result.status, result.tokens) == (Status.SUCCEEDED, 60)


async def test_a_model_and_steps_share_one_ceiling() -> None:
    """While the model may still use 60 of 100, a step that may use 60 waits; and not for the next word."""
    think = scripted("think", "thought", max_tokens=60)

    class Pauses:
        async def revise(self, brief: Brief) -> Any:
            charge = METER.get().reserve("a-model", 60, None)
            yield Add(step=Step(id="a", tool="think"))
            await anyio.sleep(3)
            charge.settle(10, None)
            await anyio.sleep(20)

    assert started(await run(Pauses(), think, max_tokens=100)) == {"a": near(3)}


async def test_tools_do_not_see_the_meter_of_the_planner() -> None:
    """Steps that come of its words are no calls of its model."""
    seen: list[bool] = []

    @dagrun.tool(effect="pure")
    async def look() -> None:
        seen.append(METER.get() is UNMETERED)
        await anyio.sleep(1)
        seen.append(METER.get() is UNMETERED)

    await run(Writer([Step(id="a", tool="look"), Step(id="b", tool="look", depends_on=["a"]), 0, whole()]), look)

    assert seen == [True] * 4


class Undead:
    """Is told to stop, goes on for a while, and then does something with its meter; that is about *plan*, if any."""

    def __init__(self, then: Callable[[Any], Any], seconds: float, plan: Plan | None = None) -> None:
        self._then, self._seconds, self._plan = then, seconds, plan

    async def revise(self, brief: Brief) -> Plan | None:
        if brief.is_first and self._plan is not None:
            return self._plan
        meter = METER.get()
        charge = meter.reserve("a-model", 50, None)
        try:
            try:
                await anyio.sleep(1_000)
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(self._seconds)
        finally:
            self._then((meter, charge))
        return None


async def test_a_model_that_ends_after_the_run_changes_nothing_any_more(anyio_backend: tuple[str, Any]) -> None:
    """It was told to stop; the run has ended before it is charged. On asyncio it is dropped right after that."""
    events: list[Event] = []
    plan = Plan(steps=[Step(id="fails", tool="fail"), nap("a")])
    planner = Undead(lambda held: held[1].settle(50, None), 5, plan)

    result = await run(planner, planning=dagrun.PlanningRule(timeout=5), max_tokens=100, warn_at=0.5, events=events)

    assert (states(result), result.makespan) == ({"fails": "failed", "a": "succeeded"}, near(6))
    assert anyio.current_time() == near(10 if anyio_backend[0] == "trio" else 6 + LAST_SECONDS)
    assert isinstance(events[-1], RunEnded)
    assert not [event for event in events if isinstance(event, CeilingNear)]


async def test_a_call_that_begins_after_the_run_is_not_made_and_keeps_nothing_of_a_shared_budget() -> None:
    """Nobody would ever give back what it reserves, and other runs would wait for it."""
    refusals: list[str] = []

    def reserve(held: Any) -> None:
        try:
            held[0].reserve("late-model", 10, None)
        except OverCeiling as error:
            refusals.append(str(error))

    budget = Budget(max_tokens=100)
    async with (
        Engine(budget=budget) as engine,
        engine.start(goal=GOAL, planner=Undead(reserve, 0.5), tools=toolset()) as r,
    ):
        await anyio.sleep(1)
        r.cancel()
        result = await r.result()

    assert (result.status, refusals) == (Status.CANCELLED, ["the run has ended"])
    assert (budget.open, budget.used()) == (0, {"tokens of all runs": 50})


async def test_a_shared_budget_that_is_spent_is_named() -> None:
    async with Engine(budget=Budget(max_tokens=100)) as engine:
        first = await _run_in(engine, Metered(80, 80, [nap("a")]))
        second = await _run_in(engine, Metered(80, 80, [nap("a")]))

    assert (first.status, second.status) == (Status.SUCCEEDED, Status.OVER_BUDGET)
    assert second.reason.startswith("there is no plan: ceiling of 100 tokens of all runs has no room for a-model")


async def _run_in(engine: Engine, planner: Any) -> RunResult:
    return await engine.run(goal=GOAL, planner=planner, tools=toolset())


async def test_the_record_tells_what_each_call_has_used() -> None:
    events: list[Event] = []
    planner = Metered(60, 30, [nap("a"), 2, NO_TOOL], [3, nap("b")], cost=0.25)

    result = await run(planner, events=events, max_cost=1.0)

    calls = [event for event in events if isinstance(event, PlannerCalled)]
    assert [(e.number, e.seconds, e.tokens, e.cost, e.fault) for e in calls] == [
        (1, near(2), 30, near(0.25), ""),
        (2, near(3), 30, near(0.25), ""),
    ]
    assert (result.tokens, result.cost) == (60, near(0.5))
