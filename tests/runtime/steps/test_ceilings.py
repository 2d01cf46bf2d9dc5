"""Ceilings in real runs: never exceeded at any event, what does not fit waits, and the end names what is spent."""

from __future__ import annotations

import logging
from random import Random
from typing import Any

import anyio
import pytest

import dagrun
from ceilings import NONSENSE, NOTHING, TOOLS, Book, limits_of, random_plan, random_policy, step
from dagrun import (
    Condition,
    Drop,
    Event,
    Patch,
    Plan,
    Policy,
    Replace,
    RetryRule,
    RuleCritic,
    State,
    StaticPlanner,
    Status,
    Step,
    Verdict,
)
from dagrun.events import CeilingNear  # fmt: skip
from dagrun.testing import run_virtual
from persons import Person
from small_tools import near, states

pytestmark = pytest.mark.anyio


async def _run(*steps: Step, seen: list[Event] | None = None, **options: Any) -> tuple[dagrun.RunResult, Book]:
    known = {name: options.pop(name) for name in ("planner", "critics", "approver", "tools") if name in options}
    policy = Policy(**options)
    book = Book(limits_of(policy))
    read = book.reader()

    def on_event(event: Event) -> None:
        read(event)
        if seen is not None:
            seen.append(event)

    result = await dagrun.run(
        Plan(steps=steps), tools=known.pop("tools", TOOLS), policy=policy, on_event=on_event, **known
    )
    assert book.faults == []
    return result, book


def _many(count: int, tool: str = "think", **fields: Any) -> list[Step]:
    return [step(f"s{i}", tool, **fields) for i in range(count)]


# What fits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "part", "makespan"),
    [
        ({"max_tokens": 1000}, 1.0, 1),
        ({"max_tokens": 600}, 0.5, 3),  # six; what they give back lets three begin; and then the last
        ({"max_cost": 5.0}, 1.0, 1),
        ({"max_cost": 1.0}, 0.1, 9),
        ({"max_tokens": 100}, 0.0, 10),
    ],
)
async def test_what_does_not_fit_waits_until_something_is_given_back(
    limits: dict[str, Any], part: float, makespan: float
) -> None:
    """The worst case is reserved, what was used is charged, and all of it can be used in the end."""
    result, book = await _run(*_many(10, part=part), **limits)

    assert (result.status, book.spent["attempts"], result.makespan) == (Status.SUCCEEDED, 10, near(makespan))


@pytest.mark.parametrize(
    ("limits", "calls", "reason"),
    [
        ({"max_attempts": 20}, 20, "ceiling of 20 attempts is spent: 20 used, 3 still ready"),
        ({"max_calls_by_tool": {"think": 20}}, 20, "ceiling of 20 calls of think is spent: 20 used, 3 still ready"),
        ({"max_tokens": 2000}, 20, "ceiling of 2000 tokens is spent: 2000 used, 3 still ready"),
        (
            {"max_tokens": 2099},
            20,
            "ceiling of 2099 tokens has no room for think, which may use 100: 2000 used, 3 still ready",
        ),
        ({"max_cost": 10.0}, 20, "ceiling of 10 in cost is spent: 10 used, 3 still ready"),
        (
            {"max_tokens": 99},
            0,
            "ceiling of 99 tokens has no room for think, which may use 100: 0 used, 23 still ready",
        ),
    ],
)
async def test_the_end_names_the_ceiling_and_keeps_what_was_done(
    limits: dict[str, Any], calls: int, reason: str
) -> None:
    result, book = await _run(*_many(23), step("after", "add", *(f"s{i}" for i in range(23))), **limits)

    assert (result.status, result.status.exit_code, result.reason) == (Status.OVER_BUDGET, 4, reason)
    ended = list(states(result).values())
    assert (ended.count("succeeded"), ended.count("cancelled"), ended[-1]) == (calls, 23 - calls, "skipped")
    assert book.spent.get("attempts", 0) == calls


async def test_a_step_that_never_fits_does_not_stop_those_that_do() -> None:
    """Whichever comes first in the plan: the run ends when nothing can go on, not before."""
    for order in (1, -1):
        steps = [step("big", "think"), step("small", "ask"), step("after", "ask", "small")][::order]
        result, _ = await _run(*steps, max_tokens=50)
        assert result.status is Status.OVER_BUDGET
        assert states(result) == {"big": "cancelled", "small": "succeeded", "after": "succeeded"}


async def test_the_run_waits_for_a_back_off_that_can_still_go_on() -> None:
    """A step between two attempts is not at its end."""
    result, _ = await _run(
        step("big", "think"), step("small", "ask", fails="once"), max_tokens=50,
        retry=RetryRule(max_attempts=2, first_delay=60),
    )  # fmt: skip
    assert states(result) == {"big": "cancelled", "small": "succeeded"}


@pytest.mark.parametrize(("limits", "asked"), [({"max_tokens": 50}, 1), ({"max_attempts": 1}, 0)])
async def test_a_person_is_waited_for_only_if_that_helps(limits: dict[str, Any], asked: int) -> None:
    """With something left for the call that is asked about, the run waits for the answer; else it ends."""

    @dagrun.tool(effect="read", needs_approval=True, max_tokens=7)
    async def asks(seconds: float) -> None: ...

    first = step("first", "ask", seconds=0.0)
    careful = Step(id="careful", tool="asks", args={"seconds": 0.0}, depends_on=["first"] if asked else [])
    result, _ = await _run(
        step("big", "think", "first"), first, careful,
        tools=[*TOOLS, asks], approver=Person(True, seconds=600.0), **limits,
    )  # fmt: skip
    assert result.status is Status.OVER_BUDGET
    assert result.steps["careful"].state is (State.SUCCEEDED if asked else State.CANCELLED)
    assert result.makespan == near(600 if asked else 0)


async def test_what_needs_no_call_still_happens() -> None:
    """An empty list, or a condition that does not hold, needs nothing that could be spent."""
    no = Condition(ref="a", op="==", value="something else")
    result, _ = await _run(
        step("a"), step("b", "think", "a"), step("each", "think", "a", for_each=[]), step("no", "think", "a", when=no),
        max_attempts=1,
    )  # fmt: skip
    assert states(result) == {"a": "succeeded", "b": "cancelled", "each": "succeeded", "no": "skipped"}


class _Thinks:
    """A planner that takes its time, and then does without what cannot be paid for."""

    async def plan(self, goal: str = "", inputs: Any = None) -> Plan:
        raise NotImplementedError

    async def revise(self, brief: Any) -> Patch:
        await anyio.sleep(10)
        return Patch(edits=[Drop(id="big"), Replace(id="bad", step=step("good", "ask"))])


async def test_a_planner_is_waited_for() -> None:
    """It may find another way while nothing can go on."""
    result, _ = await _run(step("big"), step("bad", "ask", fails="always"), planner=_Thinks(), max_tokens=50)
    assert (result.status, result.makespan) == (Status.SUCCEEDED, near(12))


async def test_a_thousand_steps_wait_without_being_looked_at_each_time() -> None:
    """What a call gives back lets as many try again as there is room for, and no more."""
    result, book = await _run(*_many(1000, part=0.0, seconds=0.001), max_tokens=300)
    assert (result.status, book.spent["attempts"]) == (Status.SUCCEEDED, 1000)
    assert book.most["tokens"] == 300


# What is charged --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [NOTHING, NONSENSE])
async def test_who_reports_nothing_or_nonsense_is_charged_the_worst(part: float) -> None:
    """S88: -5 and NaN are refused, and win no room."""
    result, book = await _run(*_many(9, part=part), max_tokens=500)

    assert (result.status, book.spent["attempts"], book.spent["tokens"]) == (Status.OVER_BUDGET, 5, 500)
    assert result.tokens == 0  # what is told is what was reported


async def test_retries_are_charged() -> None:
    """Each is a call of its own."""
    result, book = await _run(step("a", fails="once"), max_tokens=200, max_attempts=2)
    assert (result.status, book.spent["tokens"], book.spent["attempts"]) == (Status.SUCCEEDED, 200, 2)

    result, _ = await _run(step("a", fails="once"), max_tokens=150)
    assert (result.status, len(result.steps["a"].attempts)) == (Status.OVER_BUDGET, 1)


async def test_fallbacks_are_charged_for_what_they_are() -> None:
    result, book = await _run(step("a", fails="always", fallback="ask"), max_tokens=110)
    assert [attempt.tool for attempt in result.steps["a"].attempts] == ["think", "ask"]
    assert book.spent["tokens"] == 107


async def test_elements_are_charged_one_by_one() -> None:
    result, book = await _run(step("each", for_each=[1, 2, 3, 4]), max_attempts=3)
    assert (result.status, book.spent["attempts"]) == (Status.OVER_BUDGET, 3)


async def test_reviews_are_not_charged_again() -> None:
    """The call is over before critics look at it: its room is free while they do, and settled once."""
    looked: list[float] = []

    class Slow:
        name = "slow"

        def applies_to(self, step: Step) -> bool:
            return True

        async def review(self, step: Step, outcome: Any) -> Verdict:
            looked.append(anyio.current_time())
            await anyio.sleep(10)
            return Verdict("pass")

    result, book = await _run(*_many(4), max_tokens=200, critics=[Slow()])
    assert (result.status, book.spent["tokens"], len(looked)) == (Status.OVER_BUDGET, 200, 2)
    assert list(states(result).values()).count("succeeded") == 2

    result, book = await _run(*_many(4, part=0.5), max_tokens=250, critics=[RuleCritic("fine", lambda output: True)])
    assert (result.status, book.spent["tokens"]) == (Status.SUCCEEDED, 200)


async def test_what_was_never_called_costs_nothing() -> None:
    """Its arguments are of the wrong type: an attempt, but no tokens."""
    give = Step(id="give", tool="give", args={"value": "soon"})
    bad = Step(id="bad", tool="think", args={"seconds": "${give}"})
    result, book = await _run(give, bad, step("good", "think", "give"), max_tokens=100)
    assert states(result) == {"give": "succeeded", "bad": "failed", "good": "succeeded"}
    assert (book.spent["attempts"], book.spent["tokens"]) == (3, 100)


async def test_what_is_stopped_is_charged_for_what_it_may_have_used() -> None:
    """A time limit gives back nothing that nobody has reported."""
    result, _ = await _run(
        step("late", seconds=9.0, timeout=1, retry=RetryRule(max_attempts=1)), step("next", "think", seconds=2.0),
        max_tokens=150,
    )  # fmt: skip
    assert (result.status, states(result)["next"]) == (Status.OVER_BUDGET, "cancelled")


async def test_a_tool_that_breaks_its_word_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    @dagrun.tool(effect="read", max_tokens=5)
    async def liar(context: dagrun.ToolContext) -> None:
        context.report_usage(tokens=50)

    with caplog.at_level(logging.WARNING, "dagrun.run"):
        await dagrun.run(Plan(steps=[Step(id="a", tool="liar")]), tools=[liar], policy=Policy(max_tokens=10))
    assert "step a: liar used 50 tokens, and its max_tokens is 5" in caplog.text


# Saving -----------------------------------------------------------------------------------------------------


def _nears(seen: list[Event]) -> list[tuple[str, float, float]]:
    return [(event.ceiling, event.used, event.limit) for event in seen if isinstance(event, CeilingNear)]


@pytest.mark.parametrize(
    ("limits", "near_by"),
    [
        ({"max_attempts": 4}, ("attempts", 2, 4)),
        ({"max_tokens": 500}, ("tokens", 300, 500)),
        ({"max_cost": 2.0}, ("cost", 1.0, 2.0)),
        ({"max_calls_by_tool": {"think": 3}}, ("calls of think", 2, 3)),
        ({"max_seconds": 4.0}, ("seconds", near(2.0), 4.0)),
    ],
)
async def test_optional_steps_are_dropped_when_a_ceiling_is_near(limits: dict[str, Any], near_by: Any) -> None:
    """Once; the others go on, and the run has not failed for it."""
    seen: list[Event] = []
    steps = [step(f"s{i}", "think", *([f"s{i - 1}"] if i else [])) for i in range(3)]
    extra = step("extra", "think", "s2", optional=True)
    uses = Step(id="uses", tool="think", args={"fails": "${extra}"}, optional=True)

    result, _ = await _run(*steps, extra, uses, seen=seen, warn_at=0.5, **limits)

    assert (result.status, _nears(seen)) == (Status.SUCCEEDED, [near_by])
    assert states(result) == {
        "s0": "succeeded",
        "s1": "succeeded",
        "s2": "succeeded",
        "extra": "skipped",
        "uses": "skipped",
    }
    assert result.steps["extra"].reason.startswith("optional, and ")


async def test_what_has_started_is_not_dropped() -> None:
    result, _ = await _run(step("a", seconds=1.0), step("b", seconds=5.0, optional=True), max_tokens=250, warn_at=0.4)
    assert states(result) == {"a": "succeeded", "b": "succeeded"}


@pytest.mark.parametrize("limits", [{"max_tokens": 300}, {"max_seconds": 2.5}])
async def test_near_a_ceiling_the_plan_is_not_changed_any_more(limits: dict[str, Any]) -> None:
    """What a planner adds would only be cut short."""
    patch = Patch(edits=[Replace(id="bad", step=step("good", "ask"))])
    seen: list[Event] = []

    result, _ = await _run(
        step("a"), step("bad", "think", "a", fails="always"),
        planner=StaticPlanner(patches=[patch]), seen=seen, warn_at=0.6, **limits,
    )  # fmt: skip

    assert (result.replans, states(result)["bad"], len(_nears(seen))) == (0, "failed", 1)
    assert "is nearly spent, so the plan is no longer changed" in result.reason


async def test_nothing_is_saved_once_the_run_is_being_stopped() -> None:
    """The warning would be about a run that nobody goes on with; at a part of 1 it would come with the end itself."""
    seen: list[Event] = []
    await _run(*_many(3, seconds=9.0), seen=seen, max_seconds=2.0, warn_at=1.0, max_tokens=1000)
    assert _nears(seen) == []


# Laws -------------------------------------------------------------------------------------------------------


async def _random(seed: int) -> tuple[str, dagrun.RunResult]:
    rng = Random(seed)
    plan, policy = random_plan(rng, rng.randint(1, 14)), random_policy(rng)
    book = Book(limits_of(policy))
    result = await dagrun.run(plan, tools=TOOLS, policy=policy, seed=seed, on_event=book.reader())
    return "; ".join(book.faults), result


@pytest.mark.rigs
def test_no_plan_gets_above_a_ceiling() -> None:
    """And every run ends: over budget only if a ceiling is named, with every step settled."""
    reached = 0
    for seed in range(200):
        faults, result = run_virtual(_random, seed, backend=("asyncio", "trio")[seed % 2])
        assert faults == "", seed
        assert all(found.state.is_settled for found in result.steps.values()), seed
        if result.status is Status.OVER_BUDGET:
            assert result.reason.startswith("ceiling of "), seed
            reached += 1
    assert reached >= 20
