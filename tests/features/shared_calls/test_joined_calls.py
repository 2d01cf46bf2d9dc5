"""Equal calls at the same time are one call: who waits for it, who stops it, who is charged, and how it fails."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import dagrun
from dagrun import Engine, HedgeRule, MemoryJournal, Plan, Policy, RetryRule, Step, ToolContext, ToolError
from dagrun.kernel.model.outcome import SharedCall
from dagrun.kernel.model.tool import make_tool
from hedge_tools import known
from shared_tools import Counted, look, nap, play, shared_of
from small_tools import near, states

pytestmark = [pytest.mark.anyio, pytest.mark.both_backends]


def names(count: int) -> list[str]:
    """So many ids."""
    return [f"s{number}" for number in range(count)]


async def test_equal_calls_at_the_same_time_are_one_call() -> None:
    """All get its result when it ends, and each has an output of its own."""
    counted = Counted(acts={1: {"rows": [1, 2]}})
    result = await play(counted, *(look(name) for name in names(20)))

    assert counted.calls == ["x"]
    assert result.makespan == near(1.0)
    assert all(result.steps[name].output == {"rows": [1, 2]} for name in names(20))
    assert shared_of(result, "s7") == SharedCall("joined", "s0", 1)


async def test_elements_share_calls() -> None:
    """A list with equal elements is the usual case."""
    counted = Counted()
    step = Step(id="each", tool="look", for_each=["x", "y", "x", "x"], args={"about": "${item}"})
    result = await play(counted, step)

    assert counted.calls == ["x", "y"]
    assert result.steps["each"].output == ["x 1", "y 2", "x 1", "x 1"]


async def test_who_joins_late_waits_for_the_rest_alone() -> None:
    """The call began before, and is not begun again."""
    counted = Counted(seconds=3.0)
    result = await play(counted, look("a"), nap("t", 2.0), look("b", "t"))

    assert (len(counted.calls), result.makespan) == (1, near(3.0))
    assert result.steps["b"].attempts[0].duration == near(1.0)


@pytest.mark.parametrize("leaver", ["a", "b"])
async def test_a_step_that_is_cancelled_does_not_cancel_the_call_of_others(leaver: str) -> None:
    """Also if it is the step that has made the call."""
    counted = Counted()
    steps = (look("a"), look("b"), look("c"))
    async with dagrun.start(Plan(steps=steps), tools=counted.tools) as run:
        await anyio.sleep(0.5)
        run.cancel(leaver)
        result = await run.result()

    assert (counted.calls, counted.ends) == (["x"], ["returned"])
    assert states(result) == {"a": "succeeded", "b": "succeeded", "c": "succeeded"} | {leaver: "cancelled"}
    assert result.makespan == near(1.0)


async def test_the_last_one_that_leaves_stops_the_call() -> None:
    """Nothing goes on for nobody, and the next step begins anew."""
    counted = Counted()
    async with dagrun.start(
        Plan(steps=(look("a"), look("b"), nap("t", 0.7), look("c", "t"))), tools=counted.tools
    ) as run:
        await anyio.sleep(0.5)
        run.cancel("a")
        run.cancel("b")
        await anyio.sleep(0.01)
        assert counted.ends == ["cancelled"]
        result = await run.result()

    assert states(result) == {"a": "cancelled", "b": "cancelled", "t": "succeeded", "c": "succeeded"}
    assert counted.ends == ["cancelled", "returned"]
    assert result.makespan == near(1.7)


async def test_a_call_that_would_not_stop_is_abandoned_by_its_last_step() -> None:
    """As a call that a step makes alone."""

    async def stubborn() -> None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(9.0)

    tool = make_tool(stubborn, effect="read", cache="run")
    steps = (Step(id="a", tool="stubborn", timeout=1.0), Step(id="b", tool="stubborn", timeout=2.0))
    result = await dagrun.run(
        Plan(steps=steps), tools=[tool], policy=Policy(grace=1.0, retry=RetryRule(max_attempts=1))
    )

    assert states(result) == {"a": "timed_out", "b": "abandoned"}
    assert result.makespan == near(3.0)


async def test_each_step_has_its_own_patience() -> None:
    """One that has run out of time leaves, and its next attempt is a new call; the other waits on."""
    counted = Counted(seconds=3.0)
    retry = RetryRule(max_attempts=2, first_delay=0)
    result = await play(counted, look("a", timeout=1.0, retry=retry), look("b", timeout=10.0))

    assert states(result) == {"a": "timed_out", "b": "succeeded"}
    assert counted.ends == ["cancelled", "returned"]  # the second attempt of a, and the call that b waits for
    assert result.steps["b"].output == "x 1"
    assert result.makespan == near(3.0)


async def test_a_failure_is_shared_and_each_decides() -> None:
    """One step may try again and the other not; the second attempts are one call again."""
    counted = Counted(acts={1: ToolError("busy", retryable=True)})
    twice, once = RetryRule(max_attempts=2, first_delay=0), RetryRule(max_attempts=1)
    result = await play(counted, look("a", retry=once), look("b", retry=twice), look("c", retry=twice))

    assert len(counted.calls) == 2
    assert states(result) == {"a": "failed", "b": "succeeded", "c": "succeeded"}
    failed = result.steps["c"].attempts[0].outcome
    assert failed is not None
    assert (failed.failure.message, failed.shared) == ("busy", SharedCall("joined", "a", 1))  # type: ignore[union-attr]
    shared = {step: shared_of(result, step) for step in "bc"}  # either may be the first
    assert shared in (
        {"b": None, "c": SharedCall("joined", "b", 2)},
        {"b": SharedCall("joined", "c", 2), "c": None},
    )


async def test_an_exception_explains_itself_to_all() -> None:
    """Type, message and place of the code; the traceback as well."""
    counted = Counted(acts={1: KeyError("column")})
    result = await play(counted, look("a"), look("b"))

    for step in "ab":
        failure = result.steps[step].failure
        assert failure is not None
        assert (failure.error, "shared_tools.py" in failure.where) == ("KeyError", True)
        assert "raise act" in failure.traceback


async def test_a_call_is_charged_once() -> None:
    """As it reports it, to the step that waits longest by then: the first is cancelled in the middle."""

    async def look(about: str, context: ToolContext) -> str:
        context.report_usage(tokens=60, cost=0.25)
        await anyio.sleep(0.8)
        context.report_usage(tokens=11, cost=0.5)
        return about

    tool = make_tool(look, effect="read", cache="run", max_tokens=100)
    plan = Plan(steps=tuple(Step(id=id_, tool="look", args={"about": "x"}) for id_ in "abc"))
    async with dagrun.start(plan, tools=[tool], policy=Policy(max_tokens=300)) as run:
        await anyio.sleep(0.5)
        run.cancel("a")
        result = await run.result()

    outcomes = {step: result.steps[step].attempts[0].outcome for step in "abc"}
    assert {step: outcome.tokens for step, outcome in outcomes.items() if outcome} == {"a": 60, "b": 11, "c": 0}
    assert {step: outcome.cost for step, outcome in outcomes.items() if outcome} == {"a": 0.25, "b": 0.5, "c": None}
    assert (result.tokens, result.cost) == (71, near(0.75))


async def test_a_call_that_reports_nothing_is_charged_once_at_its_worst() -> None:
    """The others have used nothing, and are not charged as if each had made the call."""
    counted = Counted(max_tokens=100)
    result = await play(counted, *(look(name) for name in names(3)), look("late", *names(3)), max_tokens=300)

    assert set(states(result).values()) == {"succeeded"}  # with 100 for each, nothing would be left for the last
    budgeted = await play(Counted(max_tokens=100), look("a"), look("b"), look("c", "a", about="y"), max_tokens=200)
    assert set(states(budgeted).values()) == {"succeeded"}


async def test_runs_of_an_engine_share_a_call() -> None:
    """Both get the result of the one that was first."""
    counted, results = Counted(cache="engine"), dict[str, dagrun.RunResult]()

    async def go(name: str) -> None:
        results[name] = await play(counted, look(name), engine=engine)

    async with Engine() as engine, anyio.create_task_group() as group:
        group.start_soon(go, "a")
        await anyio.sleep(0.5)
        group.start_soon(go, "b")

    assert (len(counted.calls), results["b"].output, results["b"].makespan) == (1, "x 1", near(0.5))
    assert shared_of(results["b"], "b") == SharedCall("joined", "a", 1, run=results["a"].run_id)


async def test_a_run_makes_the_call_itself_if_the_run_that_made_it_is_cancelled() -> None:
    """A call lives in the run that began it, and a run that ends leaves nothing behind."""
    counted, results = Counted(seconds=2.0, cache="engine"), dict[str, dagrun.RunResult]()

    async def go() -> None:
        results["b"] = await play(counted, look("b"), engine=engine)

    async with (
        Engine() as engine,
        anyio.create_task_group() as group,
        engine.start(Plan(steps=(look("a"),)), tools=counted.tools) as run,
    ):
        await anyio.sleep(0.5)
        group.start_soon(go)
        await anyio.sleep(0.5)
        run.cancel()
        assert str((await run.result()).status) == "cancelled"

    assert (results["b"].output, counted.ends) == ("x 2", ["cancelled", "returned"])
    assert shared_of(results["b"], "b") is None
    assert engine._features.results is not None
    assert not engine._features.results.under_way


async def test_code_around_a_run_that_is_cancelled_takes_the_call_with_it() -> None:
    """Nothing is left behind, and no entry of it."""
    counted = Counted(seconds=9.0, cache="engine")
    async with Engine() as engine:
        with anyio.move_on_after(1.0):
            await play(counted, look("a"), look("b"), engine=engine)
        assert counted.ends == ["cancelled"]
        assert engine._features.results is not None
        assert not engine._features.results.under_way


async def test_a_suspended_run_makes_the_call_again() -> None:
    """A call without an effect is dropped when the run is suspended, for all who wait for it."""
    counted, journal = Counted(seconds=2.0), MemoryJournal()
    plan = Plan(steps=(look("a"), look("b")))
    async with dagrun.start(plan, tools=counted.tools, journal=journal) as run:
        await anyio.sleep(1.0)
        run.suspend()
        run_id = (await run.result()).run_id
    async with dagrun.resume(run_id, tools=counted.tools, journal=journal) as again:
        result = await again.result()

    assert states(result) == {"a": "succeeded", "b": "succeeded"}
    assert counted.ends == ["cancelled", "returned"]


async def test_second_calls_are_second_calls() -> None:
    """Joining the slow call would be no second call; two second calls are one, and stop the slow one if they win."""
    counted = Counted(seconds=100.0)

    async def faster() -> None:
        await anyio.sleep(0.9)
        counted.seconds = 0.5  # of the calls from now on

    async with Engine(durations=known("look", seconds=1.0)) as engine, anyio.create_task_group() as group:
        group.start_soon(faster)
        result = await play(counted, look("a"), look("b"), engine=engine, hedge=HedgeRule(max_share=1.0), grace=0.1)

    assert states(result) == {"a": "succeeded", "b": "succeeded"}
    assert (len(counted.calls), result.steps["a"].output) == (2, "x 2")
    assert sorted(counted.ends) == ["cancelled", "returned"]
    assert result.makespan < 3.0


async def test_waiting_for_a_call_teaches_nothing_about_durations() -> None:
    """Else calls would look quick, and every honest one slow."""
    counted = Counted(seconds=3.0)
    async with Engine(max_running=9) as engine:
        await play(counted, look("a"), nap("t", 2.9), look("b", "t"), look("c", "b"), engine=engine)
        assert engine.durations.count("look") == 1


async def test_a_shared_call_asks_nobody() -> None:
    """Whose question would it be? The step fails, and its failure says what to do."""

    async def ask(context: ToolContext) -> Any:
        return await context.ask("May I?")

    tool = make_tool(ask, effect="read", cache="run")
    result = await dagrun.run(Plan(steps=(Step(id="a", tool="ask"),)), tools=[tool])

    assert result.steps["a"].failure is not None
    assert "cannot ask a person; declare neither cache nor batch" in result.steps["a"].failure.message


async def test_progress_and_surprise_reach_who_waits() -> None:
    """A surprise is part of the result."""

    def odd(context: ToolContext) -> str:
        context.surprise("ten times as many")
        return "odd"

    counted = Counted(acts={1: odd})
    result = await play(counted, look("a"), look("b"))

    for step in "ab":
        outcome = result.steps[step].attempts[0].outcome
        assert outcome is not None
        assert outcome.surprise == "ten times as many"


async def test_what_an_executor_prepares_is_on_no_clock() -> None:
    """A process that has to start first takes nobody's time: of none that waits for the call."""

    class Slow:
        async def call(self, call: dagrun.extend.ToolCall) -> object:
            with call.clock_stopped():
                await anyio.sleep(5.0)
            await anyio.sleep(0.5)
            return await call.tool.function(**call.arguments)

        async def aclose(self) -> None:
            pass

    counted = Counted(seconds=0.2)
    steps = (look("a", executor="slow", timeout=1.0), look("b", executor="slow", timeout=1.0))
    result = await play(counted, *steps, executors={"slow": Slow()}, retry=RetryRule(max_attempts=1))

    assert states(result) == {"a": "succeeded", "b": "succeeded"}
    assert (len(counted.calls), result.makespan) == (1, near(5.7))


@pytest.mark.real_time
async def test_plain_functions_share_calls() -> None:
    """In a thread as well."""
    calls: list[str] = []

    def read(path: str) -> str:
        calls.append(path)
        return path.upper()

    tool = make_tool(read, effect="read", cache="run")
    plan = Plan(steps=tuple(Step(id=name, tool="read", args={"path": "x"}) for name in names(5)))
    result = await dagrun.run(plan, tools=[tool])

    assert (calls, result.steps["s4"].output) == (["x"], "X")
