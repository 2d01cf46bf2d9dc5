"""What runs have learned of their tools decides what starts first, where something limits what runs at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import anyio
import pytest

import dagrun
from dagrun import (
    Add,
    Answer,
    CheckedPlan,
    Engine,
    Event,
    HedgeRule,
    Plan,
    Policy,
    PoolLimits,
    RetryRule,
    Step,
    Toolbox,
    ToolContext,
)
from dagrun.events import AttemptStarted
from dagrun.extend import Durations
from dagrun.kernel.checks.check_plan import check_plan
from dagrun.kernel.checks.checked_plan import empty_plan
from dagrun.kernel.graph.step_order import Expected, priorities
from dagrun.kernel.model.tool import AnyTool
from judges import Judge
from replans import patch

pytestmark = pytest.mark.anyio

ONE: Final = Policy(max_running=1)


@dagrun.tool(effect="read")
async def slow() -> int:
    """Take ten seconds."""
    await anyio.sleep(10)
    return 1


@dagrun.tool(effect="read")
async def fast() -> int:
    """Take one second."""
    await anyio.sleep(1)
    return 1


@dagrun.tool(effect="read")
async def other() -> int:
    """Take no time, and be called by nobody before."""
    return 1


TOOLS: Final[list[AnyTool]] = [slow, fast, other]

# Two fast ones after each other are the longer path as long as only steps are counted.
STEPS: Final = [
    Step(id="a", tool="fast"),
    Step(id="b", tool="fast", depends_on=["a"]),
    Step(id="c", tool="slow"),
]
BY_HOPS: Final = ["a", "b", "c"]  # of two paths of one step, that which stands first in the plan
BY_SECONDS: Final = ["c", "a", "b"]


def known(**seconds: float) -> Durations:
    made = Durations()
    for tool, took in seconds.items():
        made.add(tool, took)
    return made


async def order(engine: Engine, steps: Sequence[Step], policy: Policy = ONE, **options: Any) -> list[str]:
    """Run *steps* in *engine*, and say in which order they were started."""
    log: list[Event] = []
    options = {"tools": TOOLS, "policy": policy, "on_event": log.append, **options}
    result = await engine.run(Plan(steps=tuple(steps)), **options)
    result.raise_for_status()
    return [event.step for event in log if isinstance(event, AttemptStarted)]


# The order ------------------------------------------------------------------------------------------------------------


async def test_the_second_run_of_an_engine_knows_which_tool_is_slow() -> None:
    """The first one counts steps; the second one starts what takes longest."""
    async with Engine() as engine:
        assert await order(engine, STEPS) == BY_HOPS
        assert await order(engine, STEPS) == BY_SECONDS


async def test_a_run_does_not_reorder_itself() -> None:
    """In one order all paths are measured in the same way: steps that are counted do not stand beside seconds."""
    steps = [*STEPS, *(s.model_copy(update={"id": f"{s.id}2", "depends_on": ()}) for s in STEPS)]
    async with Engine() as engine:
        assert await order(engine, steps) == ["a", "b", "c", "a2", "b2", "c2"]
        assert await order(engine, steps) == ["c", "c2", "a", "b", "a2", "b2"]


async def test_what_a_step_says_itself_counts_more() -> None:
    """Its author knows of this call what the tool does not tell."""
    steps = [*STEPS[:2], STEPS[2].model_copy(update={"estimate": 0.5})]
    async with Engine(durations=known(slow=10.0, fast=1.0)) as engine:
        assert await order(engine, steps) == ["a", "b", "c"]


async def test_a_tool_that_nobody_knows_counts_as_the_mean_of_the_others() -> None:
    """Neither as nothing, nor as one second among ten-second steps."""
    steps = [Step(id="f", tool="fast"), Step(id="o", tool="other"), Step(id="s", tool="slow")]
    async with Engine(durations=known(slow=10.0, fast=1.0)) as engine:
        assert await order(engine, steps) == ["s", "o", "f"]


async def test_without_an_engine_each_run_begins_anew_unless_it_is_told() -> None:
    """There is nobody who could remember; what the caller brings learns on."""
    brought = Durations()
    for expected in (BY_HOPS, BY_SECONDS):
        log: list[Event] = []
        await dagrun.run(Plan(steps=STEPS), tools=TOOLS, policy=ONE, durations=brought, on_event=log.append)
        assert [event.step for event in log if isinstance(event, AttemptStarted)] == expected
    assert (brought.count("fast"), brought.count("slow")) == (4, 2)


async def test_a_splice_goes_by_what_was_learned() -> None:
    """A new step of a slow tool goes before what is shorter, and so does all that it waits for."""
    log: list[Event] = []
    steps = [Step(id="first", tool="fast", estimate=99.0), Step(id="f", tool="fast"), Step(id="o", tool="other")]
    options: dict[str, Any] = {"tools": TOOLS, "policy": ONE, "on_event": log.append}
    async with (
        Engine(durations=known(slow=10.0, fast=1.0, other=0.1)) as engine,
        engine.start(Plan(steps=steps), **options) as run,
    ):
        await run.splice(patch(Add(step=Step(id="s", tool="slow", depends_on=["o"]))))
        (await run.result()).raise_for_status()

    assert [event.step for event in log if isinstance(event, AttemptStarted)] == ["first", "o", "s", "f"]


async def test_the_limit_that_a_splice_brings_finds_what_was_learned() -> None:
    """Nothing was put in order before: it is now, by what was known when the run began."""
    log: list[Event] = []
    each = Step(id="each", tool="fast", for_each=[1], max_parallel=1)
    options: dict[str, Any] = {"tools": TOOLS, "on_event": log.append}
    async with (
        Engine(durations=known(slow=10.0, fast=1.0)) as engine,
        engine.start(Plan(steps=[Step(id="first", tool="slow")]), **options) as run,
    ):
        gated = [Step(id=s.id, tool=s.tool, depends_on=[*s.depends_on, "first"]) for s in STEPS]
        await run.splice(patch(*(Add(step=step) for step in (each, *gated))))
        await run.result()

    started = [event.step for event in log if isinstance(event, AttemptStarted)]
    assert started[-3:] == BY_SECONDS


def checked(*steps: Step) -> CheckedPlan:
    return check_plan(Plan(steps=steps), Toolbox(TOOLS), Policy())


def test_what_is_expected_does_not_change_during_a_run() -> None:
    """A splice would compare what was found out at different times."""
    plan, learned = checked(*STEPS), known(slow=10.0)
    expected = Expected(plan, lambda: learned.medians_of(plan.toolbox))
    before = priorities(plan, expected)
    learned.merge(known(fast=1000.0))

    assert priorities(plan, expected) == before
    assert before == pytest.approx({"a": 20.0, "b": 10.0, "c": 10.0}, rel=0.06)


def test_where_the_plan_tells_nothing_the_tools_do() -> None:
    """A plan that a planner still writes has no steps: those that come are not to count as a second each."""
    empty = empty_plan("a goal", Toolbox(TOOLS), Policy())
    expected, blind = Expected(empty, lambda: {"slow": 10.0, "fast": 2.0}), Expected(empty)

    assert expected.seconds(checked(Step(id="o", tool="other")).steps["o"]) == 6.0
    assert blind.seconds(checked(Step(id="o", tool="other")).steps["o"]) == 1.0


# What is learned ------------------------------------------------------------------------------------------------------


LIMITS: Final[dict[str, Policy]] = {
    "in all": ONE,
    "by tool": Policy(max_running_by_tool={"slow": 1}),
    "by pool": Policy(pools={"pool": PoolLimits(max_running=1)}),
    "hedging": Policy(hedge=HedgeRule()),
}


@pytest.mark.parametrize("policy", LIMITS.values(), ids=LIMITS)
async def test_a_run_learns_where_order_or_slowness_matter(policy: Policy) -> None:
    """And the engine that all of them share knows it."""
    async with Engine() as engine:
        await order(engine, STEPS, policy)

        assert (engine.durations.count("fast"), engine.durations.count("slow")) == (2, 1)
        assert engine.durations.median("slow") == pytest.approx(10, rel=0.06)


async def test_a_limit_of_the_engine_is_a_limit() -> None:
    """Its runs wait for each other."""
    async with Engine(max_running=1) as engine:
        assert await order(engine, STEPS, Policy()) == BY_HOPS
        assert await order(engine, STEPS, Policy()) == BY_SECONDS


async def test_a_run_that_has_no_use_for_it_learns_nothing() -> None:
    """It would pay for it at every step."""
    async with Engine() as engine, engine.start(Plan(steps=STEPS), tools=TOOLS) as run:
        await run.result()

        assert len(engine.durations) == 0
        assert run.learned is None


async def test_only_what_succeeded_counts() -> None:
    """A call that fails at once is no fast call, and one that is given up is no slow one."""
    fails = iter([True, False])

    @dagrun.tool(effect="read")
    async def flaky() -> int:
        if next(fails):
            await anyio.sleep(100)
            raise TimeoutError
        await anyio.sleep(2)
        return 1

    retry = RetryRule(max_attempts=2, first_delay=0)
    async with Engine() as engine:
        await order(engine, [Step(id="x", tool="flaky")], Policy(max_running=1, retry=retry), tools=[flaky])

        assert engine.durations.count("flaky") == 1
        assert engine.durations.median("flaky") == pytest.approx(2, rel=0.06)


async def test_the_time_of_a_fallback_is_its_own() -> None:
    """The tool that failed was not as fast as the one that stood in for it."""

    @dagrun.tool(effect="read")
    async def broken() -> int:
        raise ValueError("no")

    async with Engine() as engine:
        steps = [Step(id="x", tool="broken", fallback="fast")]
        await order(engine, steps, tools=[broken, fast])

        assert (engine.durations.count("broken"), engine.durations.count("fast")) == (0, 1)


async def test_a_call_that_waits_for_a_person_says_nothing_of_its_tool() -> None:
    """People take hours."""

    @dagrun.tool(effect="read")
    async def asks(context: ToolContext) -> Any:
        return await context.ask("What?")

    policy = Policy(max_running=1)
    steps = [Step(id="x", tool="asks"), Step(id="y", tool="fast")]
    async with (
        Engine() as engine,
        engine.start(Plan(steps=steps), tools=[asks, fast], policy=policy, attended=True) as run,
    ):
        await anyio.sleep(3600)
        await run.answer(run.pending[0], Answer("approve", value=1))
        (await run.result()).raise_for_status()

        assert (engine.durations.count("asks"), engine.durations.count("fast")) == (0, 1)


async def test_what_critics_take_is_not_the_tools_time() -> None:
    """The place is free again while they think."""
    async with Engine() as engine:
        steps = [Step(id="load", tool="fast")]
        await order(engine, steps, critics=[Judge(seconds=30.0)])

        assert engine.durations.median("fast") == pytest.approx(1, rel=0.06)
