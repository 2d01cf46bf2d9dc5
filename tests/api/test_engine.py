"""Engines: many runs that share one limit, fairly."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from dagrun import Engine, Plan, Policy, RetryRule, Status, Step
from dagrun.errors import ContractError
from dagrun.kernel.model.tool import make_tool
from small_tools import near, toolset

pytestmark = [pytest.mark.anyio, pytest.mark.both_backends]


class Gauge:
    """A tool that counts how many of its calls run at once, over all runs, and who starts when."""

    def __init__(self) -> None:
        self.now = self.peak = 0
        self.starts: list[str] = []
        self.tool = make_tool(self._make(), name="gauge", effect="read")

    def _make(self) -> Any:
        async def gauge(run: str) -> None:
            self.now += 1
            self.peak = max(self.peak, self.now)
            self.starts.append(run)
            await anyio.sleep(1)
            self.now -= 1

        return gauge

    def plan(self, run: str, steps: int) -> Plan:
        return Plan(steps=[Step(id=f"s{i}", tool="gauge", args={"run": run}) for i in range(steps)])


async def test_runs_of_one_engine_share_its_limit() -> None:
    """The peak over all runs is the limit exactly: never above, and no slot is left idle."""
    gauge = Gauge()
    zero = anyio.current_time()

    async with Engine(max_running=4) as engine, anyio.create_task_group() as tasks:
        for name in "abcde":
            tasks.start_soon(_run_in, engine, gauge, name, 8)

    assert gauge.peak == 4
    assert anyio.current_time() - zero == near(40 / 4)


async def _run_in(engine: Engine, gauge: Gauge, name: str, steps: int) -> None:
    result = await engine.run(gauge.plan(name, steps), tools=[gauge.tool])
    assert result.status is Status.SUCCEEDED


async def test_no_run_starves_behind_another() -> None:
    """A small run that comes second gets its turn while the large one still has work."""
    gauge = Gauge()

    async with Engine(max_running=2) as engine, anyio.create_task_group() as tasks:
        tasks.start_soon(_run_in, engine, gauge, "large", 40)
        await anyio.sleep(0.5)
        tasks.start_soon(_run_in, engine, gauge, "small", 4)

    last = max(index for index, name in enumerate(gauge.starts) if name == "small")
    assert last < 16


async def test_a_run_that_ends_gives_its_room_to_the_others() -> None:
    """Whether it ended well or was cancelled with steps in flight and waiting."""
    gauge = Gauge()

    async with (
        Engine(max_running=2) as engine,
        anyio.create_task_group() as tasks,
        engine.start(gauge.plan("first", 10), tools=[gauge.tool]) as first,
    ):
        await anyio.sleep(0.5)
        tasks.start_soon(_run_in, engine, gauge, "second", 4)
        await anyio.sleep(0.25)
        first.cancel()
        await first.result()

    assert gauge.starts.count("second") == 4
    assert anyio.current_time() == near(0.75 + 2)


async def test_the_limit_of_a_run_holds_within_the_engine() -> None:
    gauge = Gauge()

    async with Engine(max_running=8) as engine:
        await engine.run(gauge.plan("a", 6), tools=[gauge.tool], policy=Policy(max_running=2))

    assert gauge.peak == 2


async def test_an_engine_must_be_open_and_sane() -> None:
    with pytest.raises(ContractError, match="max_running must be at least 1"):
        Engine(max_running=0)
    with pytest.raises(ContractError, match="not open"):
        await Engine().run(Plan(steps=[Step(id="a", tool="fail")]), tools=toolset())


def _nesting(within: Engine) -> Any:
    """A tool that runs a plan of one step in the engine *within*, and waits for it."""

    async def inner() -> int:
        return 7

    async def outer() -> Any:
        plan = Plan(steps=[Step(id="inner", tool="inner")])
        return (await within.run(plan, tools=[make_tool(inner, effect="pure")])).output

    return make_tool(outer, effect="pure")


async def test_a_tool_cannot_start_a_run_in_the_limited_engine_that_runs_it() -> None:
    """With one place, the tool would wait for the run and the run for the tool; with more, once they are all taken."""
    plan = Plan(steps=[Step(id="a", tool="outer")])

    async with Engine(max_running=1) as limited, Engine(max_running=1) as other, Engine() as free:
        refused = await limited.run(plan, tools=[_nesting(limited)])
        elsewhere = await limited.run(plan, tools=[_nesting(other)])
        unlimited = await free.run(plan, tools=[_nesting(free)])

    failure = refused.steps["a"].failure
    assert failure is not None
    assert "max_running" in failure.message
    assert (elsewhere.output, unlimited.output) == (7, 7)


async def test_a_run_after_another_in_the_same_engine_is_no_nesting() -> None:
    """Only what a tool starts is inside; the host may start as many as it likes."""
    async with Engine(max_running=1) as engine:
        for _ in range(2):
            async with engine.start(Plan(steps=[Step(id="a", tool="outer")]), tools=[_nesting(Engine())]) as first:
                assert (
                    await engine.run(
                        Plan(steps=[Step(id="n", tool="nap", args={"seconds": 1.0, "gives": 1})]), tools=toolset()
                    )
                ).status is Status.SUCCEEDED
            assert (await first.result()).status is Status.FAILED  # that engine was never opened


async def test_a_call_that_timed_out_while_other_runs_waited_says_so() -> None:
    """A tool lets a task of the host start a run, and waits for it: each waits for what the other holds."""
    send, receive = anyio.create_memory_object_stream[anyio.Event](1)

    async def ask_host() -> None:
        answered = anyio.Event()
        await send.send(answered)
        await answered.wait()

    gauge, limits = Gauge(), Policy(timeout=5, retry=RetryRule(max_attempts=1))
    waiting = make_tool(ask_host, effect="read")
    async with Engine(max_running=1) as engine, anyio.create_task_group() as tasks:

        async def serve() -> None:
            answered = await receive.receive()
            await engine.run(gauge.plan("inner", 1), tools=[gauge.tool])
            answered.set()

        tasks.start_soon(serve)
        result = await engine.run(Plan(steps=[Step(id="a", tool="ask_host")]), tools=[waiting], policy=limits)

    assert result.steps["a"].reason == (
        "it took longer than 5 s (timeout of the policy), and another run of its engine waited for a place "
        "(max_running); if it waits for such a run, the two wait for each other"
    )
    assert gauge.starts == ["inner"]
    send.close()
    receive.close()
