"""Ceilings that runs of one engine share: no overspending, no waiting for ever, nothing kept by one that ended."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

import anyio
import pytest

import dagrun
from ceilings import TOOLS, Book, random_plan, random_policy, step
from dagrun import Budget, Drop, Engine, Patch, Plan, Policy, Replace, RetryRule, RunResult, Status
from dagrun.testing import run_virtual
from persons import Person
from seeds import choose_seeds
from small_tools import near, states

pytestmark = pytest.mark.anyio


class Shop:
    """Runs that share a budget, each of which begins when it is told; and the book of all of them."""

    def __init__(self, **limits: Any) -> None:
        by_tool = limits.get("max_calls_by_tool", {})
        self.budget = Budget(**limits)
        self.book = Book(
            {name.removeprefix("max_"): n for name, n in limits.items() if name != "max_calls_by_tool"} | by_tool
        )
        self.results: dict[int, RunResult] = {}
        self.engine = Engine(budget=self.budget)

    async def run(self, number: int, plan: Plan, policy: Policy | None = None, **options: Any) -> None:
        """One run, to its end or until it is cancelled."""
        seconds, after = options.pop("cancel_after", None), options.pop("after", 0.0)
        await anyio.sleep(after)
        async with self.engine.start(
            plan, tools=TOOLS, policy=policy or Policy(), on_event=self.book.reader(number), seed=number, **options
        ) as handle:
            if seconds is not None:
                await anyio.sleep(seconds)
                handle.cancel()
        self.results[number] = await handle.result()

    async def run_all(self, *runs: dict[str, Any]) -> None:
        """All of them beside each other."""
        async with self.engine, anyio.create_task_group() as tasks:
            for number, options in enumerate(runs):
                tasks.start_soon(partial(self.run, number, **options))
        assert self.book.faults == []
        assert not self.budget.open
        assert not self.budget.waiting

    @property
    def statuses(self) -> list[str]:
        return [str(self.results[number].status) for number in sorted(self.results)]


def _plan(count: int, tool: str = "think", **fields: Any) -> Plan:
    return Plan(steps=[step(f"s{i}", tool, **fields) for i in range(count)])


@pytest.mark.parametrize(
    ("limits", "part"),
    [
        ({"max_attempts": 12}, 1.0),
        ({"max_tokens": 1200}, 1.0),
        ({"max_cost": 6.0}, 1.0),
        ({"max_calls_by_tool": {"think": 12}}, 1.0),
        ({"max_tokens": 350}, 0.2),
    ],
)
async def test_runs_together_stay_below_and_use_all_there_is(limits: dict[str, Any], part: float) -> None:
    """Three runs of four steps fit exactly, or one after the other in what the others give back."""
    shop = Shop(**limits)
    await shop.run_all(*({"plan": _plan(4, part=part)} for _ in range(3)))
    assert shop.statuses == ["succeeded"] * 3


async def test_what_is_spent_is_spent_for_all() -> None:
    """Each run that does not get what it needs says so, with what it has got."""
    shop = Shop(max_tokens=1000)
    await shop.run_all(*({"plan": _plan(4)} for _ in range(3)))

    assert sorted(shop.statuses) == ["over_budget", "over_budget", "succeeded"] or "over_budget" in shop.statuses
    reasons = {r.reason for r in shop.results.values() if r.status is Status.OVER_BUDGET}
    assert all(reason.startswith("ceiling of 1000 tokens of all runs is spent: 1000 used, ") for reason in reasons)
    assert shop.budget.used() == {"tokens of all runs": 1000}


async def test_a_run_waits_for_what_another_gives_back() -> None:
    """It is told when the other call has ended, and goes on by itself."""
    shop = Shop(max_tokens=120)
    await shop.run_all(
        {"plan": _plan(1, seconds=50.0, part=0.1)}, {"plan": _plan(1, seconds=1.0, part=0.1), "after": 1.0}
    )
    assert (shop.statuses, shop.results[1].makespan) == (["succeeded"] * 2, near(50))


async def test_runs_that_all_wait_are_told_that_there_is_nothing_to_wait_for() -> None:
    """The last call of any of them has ended, and none fits any more: every run ends."""
    shop = Shop(max_tokens=199)
    await shop.run_all(*({"plan": _plan(3, seconds=float(i + 1))} for i in range(4)))

    assert shop.statuses == ["over_budget"] * 4
    assert shop.book.spent["attempts"] == 1


@pytest.mark.parametrize("part", [0.1, 1.0])
async def test_a_cancelled_run_gives_back_what_it_has_not_used(part: float) -> None:
    """Its calls have reported what they have used so far, or are charged at their worst."""
    shop = Shop(max_tokens=250)
    await shop.run_all(
        {"plan": _plan(2, seconds=60.0, part=part), "cancel_after": 5.0},
        {"plan": _plan(1, seconds=1.0, part=part), "after": 1.0},
    )
    # Nothing was reported yet: both calls are charged at their worst, and what is left is too little.
    assert shop.statuses == ["cancelled", "over_budget"]

    shop = Shop(max_tokens=250)
    await shop.run_all(
        {"plan": _plan(3, seconds=60.0), "cancel_after": 5.0, "policy": Policy(max_running=1)},
        {"plan": _plan(1, seconds=1.0), "after": 1.0},
        {"plan": _plan(1, "ask", seconds=1.0), "after": 6.0},
    )
    assert shop.statuses == ["cancelled", "succeeded", "succeeded"]


async def test_a_run_that_waits_can_be_cancelled_and_is_told_no_more() -> None:
    shop = Shop(max_tokens=100)
    await shop.run_all({"plan": _plan(1, seconds=50.0)}, {"plan": _plan(1), "after": 1.0, "cancel_after": 5.0})
    assert (shop.statuses, shop.results[1].makespan) == (["succeeded", "cancelled"], near(5))


async def test_the_own_ceilings_of_a_run_hold_as_well() -> None:
    """The tighter one counts, and is the one that is named."""
    shop = Shop(max_tokens=1000)
    await shop.run_all({"plan": _plan(3), "policy": Policy(max_tokens=150)}, {"plan": _plan(3)})
    assert shop.statuses == ["over_budget", "succeeded"]
    assert "ceiling of 150 tokens has no room" in shop.results[0].reason


async def test_what_ends_without_ceilings_of_its_own_is_warned_by_the_shared_ones() -> None:
    """Optional steps of a run are dropped when what all of them share is nearly spent."""
    shop = Shop(max_tokens=400)
    plan = Plan(steps=[step("a", seconds=2.0), step("extra", "think", "a", optional=True)])
    await shop.run_all({"plan": _plan(2)}, {"plan": plan, "policy": Policy(warn_at=0.7)})
    assert (shop.statuses, states(shop.results[1])["extra"]) == (["succeeded"] * 2, "skipped")


async def test_a_run_is_not_ended_amid_a_change_of_another() -> None:
    """A call of one run has ended, is about to be tried again, and the other hears that nothing is left."""
    for fails, approver in (("once", None), ("doubt", Person(None)), ("always", Person(None))):
        shop = Shop(max_tokens=100)
        await shop.run_all(
            {
                "plan": _plan(2, "send", fails=fails),
                "approver": approver,
                "policy": Policy(retry=RetryRule(first_delay=1)),
            },
            {"plan": _plan(2, "think"), "after": 0.5},
        )
        for result in shop.results.values():
            assert all(found.state.is_settled for found in result.steps.values())


async def test_a_run_that_is_about_to_ask_its_planner_is_not_at_its_end() -> None:
    """Its last call ends, the runs that wait are told so, itself among them, and only then it asks."""

    class Thinks:
        async def revise(self, brief: Any) -> Patch:
            return Patch(edits=[Drop(id="big"), Replace(id="bad", step=step("good", "ask"))])

    shop = Shop(max_tokens=199)
    plan = Plan(steps=[step("bad", fails="always"), step("big", seconds=2.0)])
    await shop.run_all({"plan": plan, "planner": Thinks(), "policy": Policy(max_running=2)})

    assert (shop.statuses, states(shop.results[0])["good"]) == (["succeeded"], "succeeded")


async def _random(seed: int) -> tuple[list[str], list[RunResult]]:
    rng = Random(seed)
    limits: dict[str, Any] = {
        "max_attempts": rng.randint(1, 30),
        "max_tokens": rng.choice((5, 100, 300, 900)),
        "max_cost": rng.choice((0.3, 1.1, 5.0)),
        "max_calls_by_tool": {"think": rng.randint(1, 6)},
    }
    kept = {name: limit for name, limit in limits.items() if rng.random() < 0.6} or {"max_tokens": 300}
    shop, runs = Shop(**kept), []
    for _ in range(rng.randint(2, 4)):
        options: dict[str, Any] = {"plan": random_plan(rng, rng.randint(1, 5)), "policy": random_policy(rng)}
        options["after"] = rng.choice((0.0, 0.0, 1.5))
        if rng.random() < 0.2:
            options["cancel_after"] = rng.choice((0.0, 1.0, 2.5))
        runs.append(options)
    await shop.run_all(*runs)
    return shop.book.faults, list(shop.results.values())


@pytest.mark.rigs
def test_no_runs_together_get_above_a_shared_ceiling() -> None:
    """Random plans, usage, ceilings, moments and cancellations; and every run ends, with every step settled."""
    reached = 0
    for seed in choose_seeds(70, 4_000):
        faults, results = run_virtual(_random, seed, backend=("asyncio", "trio")[seed % 2])
        assert faults == [], seed
        for result in results:
            assert all(found.state.is_settled for found in result.steps.values()), seed
            reached += "of all runs" in result.reason
    assert reached >= 7


async def test_a_budget_is_given_to_an_engine() -> None:
    """One that is used up stays so for the runs that come later."""
    async with Engine(budget=Budget(max_attempts=1)) as engine:
        first = await engine.run(_plan(1), tools=TOOLS)
        second = await engine.run(_plan(1), tools=TOOLS)
    assert [first.status, second.status] == [Status.SUCCEEDED, Status.OVER_BUDGET]
    assert second.reason == "ceiling of 1 attempts of all runs is spent: 1 used, 1 still ready"
    assert dagrun.Budget is Budget
