"""What a tool, a planner or a critic leaves behind keeps its context variables alive, but nothing of the run."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import Context, copy_context
from typing import Any, Final, cast
from weakref import ref

import anyio
import pytest
import sniffio
import trio
from opentelemetry.sdk.trace import TracerProvider

import dagrun
from agents import answer, call
from dagrun import Answer, Brief, Budget, MemoryJournal, Plan, Step, ToolContext, ToolError, agent_tool
from dagrun.errors import ContractError, OverCeiling
from dagrun.extend import SOURCES
from dagrun.kernel.model.question import ASK_PERSON
from dagrun.kernel.model.tool import make_tool
from dagrun.kernel.model.tracing import TRACER
from dagrun.kernel.model.usage import METER
from hedge_tools import Act, Looker
from hedge_tools import play as play_hedged
from hedge_tools import step as slow_step
from judges import Judge
from persons import Person
from persons import pay as pay_tool
from persons import run as ask_about
from persons import step as paying
from replans import Thinker, fails, instead, nap, run
from scripted_model import ScriptedModel
from shared_tools import Counted, Prices, look, price
from shared_tools import play as play_counted
from small_tools import AT_ONCE, toolset

pytestmark = [pytest.mark.anyio, pytest.mark.both_backends]

# What a run consists of. The rest of its modules may live on: values of a few fields, without a way to a run.
PARTS: Final = (
    *("dagrun.kernel.runtime.", "dagrun.kernel.graph.", "dagrun.features.", "dagrun.api.", "dagrun.observe."),
    "dagrun.workers.",
)
SMALL: Final = frozenset(
    (
        "dagrun.kernel.runtime.artifacts.ArtifactFolder",
        "dagrun.features.composing._AnswerMeter",
        "dagrun.kernel.runtime.run_callbacks.RunMeter",
        "dagrun.kernel.runtime.plugin_calls.CallClock",
        "dagrun.features.provider_limits.model_concurrency.ModelConcurrency",
        "dagrun.kernel.runtime.run_callbacks.RunCallbacks",
        "dagrun.features.provider_limits.adaptive_limit.ProviderWindow",
    )
)

Leave = Callable[[], object]


class Output:
    """An output in memory, as large as one likes."""


def _name(each: object) -> str:
    return f"{type(each).__module__}.{type(each).__qualname__}"


@contextmanager
def _nothing_stays() -> Iterator[None]:
    """Of all that the body makes for its runs, nothing is alive at its end."""
    gc.collect()
    gc.freeze()  # what is there already does not count, as in conftest.py
    yield
    gc.collect()
    made = {_name(each) for each in gc.get_objects()}
    assert sorted(name for name in made - SMALL if name.startswith(PARTS)) == []


# Where it is left -----------------------------------------------------------------------------------------------------


async def _tool(leave: Leave) -> None:
    made: list[ref[Output]] = []

    async def work() -> dagrun.Object[Output]:
        leave()
        output = Output()
        made.append(ref(output))
        return output

    tool = make_tool(work, effect="pure")
    async with dagrun.Engine(max_running=2, budget=Budget(max_attempts=9)) as engine:
        await engine.run(Plan(steps=[Step(id="a", tool="work")]), tools=[tool])
    gc.collect()
    assert made[0]() is None


async def _tool_with_context(leave: Leave) -> None:
    async def work(context: ToolContext) -> int:
        leave()
        context.progress(0.5)
        context.report_usage(tokens=3)
        LEFT.append((context, context.report, context.ask_person, context.logger))
        return 1

    tool = make_tool(work, effect="pure")
    async with dagrun.Engine(max_running=2) as engine:
        await engine.run(Plan(steps=[Step(id="a", tool="work")]), tools=[tool])


async def _function(leave: Leave) -> None:
    def work(context: ToolContext) -> int:
        LEFT.append((copy_context(), context))
        return 1

    await dagrun.run(Plan(steps=[Step(id="a", tool="work")]), tools=[make_tool(work, effect="pure")])


async def _retried(leave: Leave) -> None:
    async def work() -> int:
        leave()
        raise ToolError("no", retryable=True)

    await dagrun.run(Plan(steps=[Step(id="a", tool="work", retry=AT_ONCE)]), tools=[make_tool(work, effect="pure")])


async def _hedged(leave: Leave) -> None:
    async def work(context: ToolContext) -> int:
        leave()
        LEFT.append(context)
        return 1

    await play_hedged(slow_step(), tools=[Looker(Act(50.0, "slow"), Act(0.5, work))])


async def _shared(leave: Leave) -> None:
    def work(context: ToolContext) -> int:
        leave()
        LEFT.append(context)
        return 1

    counted = Counted(acts={1: work})
    async with dagrun.Engine(max_running=5) as engine:
        await play_counted(counted, look("a"), look("b"), engine=engine)


async def _batched(leave: Leave) -> None:
    def work(calls: list[dict[str, Any]]) -> list[int]:
        leave()
        return [1 for _ in calls]

    await Prices(work).play(price("a", "x"), price("b", "y"))


async def _planner(leave: Leave) -> None:
    def think(brief: Brief) -> Any:
        leave()
        METER.get().reserve("model", 10, 0.1).settle(5, 0.1)
        return instead("a", nap("a2", 1.0))

    await run([fails("a"), nap("b", 5.0)], Thinker(think), max_tokens=1000)


async def _critic(leave: Leave) -> None:
    async def judge() -> dagrun.Verdict:
        leave()
        dagrun.extend.SOURCES.get()
        return dagrun.Verdict("pass")

    await run([nap("a", 1.0), nap("b", 2.0, "a")], None, critics=[Judge(judge, step="b")])


async def _approver(leave: Leave) -> None:
    async def approve(_: Any) -> bool:
        leave()
        return True

    await ask_about(paying(), tools=(pay_tool(),), approver=approve)


async def _asking(leave: Leave) -> None:
    async def work(context: ToolContext) -> Any:
        leave()
        answer = await context.ask("which?")
        LEFT.append(context)
        return answer

    plan = Plan(steps=[Step(id="a", tool="work")])
    await dagrun.run(plan, tools=[make_tool(work, effect="read")], approver=Person(Answer("approve", value=1)))


async def _composing(leave: Leave) -> None:
    class Model(ScriptedModel):
        def stream(self, request: Any) -> Any:
            leave()
            return super().stream(request)

    await dagrun.run(Plan(steps=[nap("a", 1.0)]), tools=toolset(), compose=Model("the answer"))


async def _agent(leave: Leave) -> None:
    async def find(value: str, context: ToolContext) -> str:
        leave()
        LEFT.append(context)
        return value

    class Model(ScriptedModel):
        def stream(self, request: Any) -> Any:
            leave()
            return super().stream(request)

    model = Model(call("find", value="a"), answer("Bonn"))
    plan = Plan(steps=[Step(id="work", tool="agent", args={"task": "Find it."})])
    await dagrun.run(plan, tools=[agent_tool(model, [make_tool(find, effect="read")], name="agent")])


async def _traced(leave: Leave) -> None:
    async def work() -> int:
        leave()
        assert TRACER.get()() is not None
        return 1

    tracing = dagrun.Tracing(tracer_provider=TracerProvider())
    await dagrun.run(Plan(steps=[Step(id="a", tool="work")]), tools=[make_tool(work, effect="read")], tracing=tracing)


async def _written(leave: Leave) -> None:
    async def work() -> int:
        leave()
        return 1

    plan, tools = Plan(steps=[Step(id="a", tool="work"), nap("b", 1.0)]), [make_tool(work, effect="effectful")]
    journal = MemoryJournal()
    await dagrun.run(Plan(steps=plan.steps[:1]), tools=tools, journal=journal)
    await journal.aclose()


async def _nested(leave: Leave) -> None:
    async def inner() -> int:
        leave()
        return 1

    async def outer() -> int:
        leave()
        await dagrun.run(Plan(steps=[Step(id="a", tool="inner")]), tools=[make_tool(inner, effect="pure")])
        return 1

    async with dagrun.Engine(max_running=1) as engine:
        await engine.run(Plan(steps=[Step(id="a", tool="outer")]), tools=[make_tool(outer, effect="pure")])


async def _watched(leave: Leave) -> None:
    await run([nap("a", 1.0)], None, on_event=lambda _: leave())


PLACES: Final[dict[str, Callable[[Leave], Awaitable[None]]]] = {
    function.__name__.strip("_"): function
    for function in (
        _tool, _tool_with_context, _function, _retried, _hedged, _shared, _batched, _planner, _critic, _approver,
        _asking, _composing, _agent, _traced, _written, _nested, _watched,
    )
}  # fmt: skip

LEFT: Final[list[Any]] = []


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """Records of the log have exceptions, which lead to what they met."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)
    LEFT.clear()


@pytest.mark.parametrize("place", PLACES)
async def test_context_variables_that_outlive_a_run_keep_no_part_of_it(place: str) -> None:
    """A timer, a task and a thread that are left behind hold a copy of them."""
    await PLACES[place](lambda: None)  # what is made once, on first use
    LEFT.clear()
    with _nothing_stays():
        await PLACES[place](lambda: LEFT.append(copy_context()))
        assert LEFT


# What is left ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _timers() -> AsyncIterator[Leave]:
    timers: list[asyncio.TimerHandle] = []
    try:
        yield lambda: timers.append(asyncio.get_running_loop().call_later(3600, print))
    finally:
        for timer in timers:
            timer.cancel()
    assert timers


@asynccontextmanager
async def _tasks() -> AsyncIterator[Leave]:
    """As a client leaves one that reads from its connection."""
    end, tasks = anyio.Event(), list[asyncio.Task[object]]()
    try:
        yield lambda: tasks.append(asyncio.create_task(end.wait()))
    finally:
        end.set()
        await asyncio.gather(*tasks)
    assert tasks


@asynccontextmanager
async def _system_tasks() -> AsyncIterator[Leave]:
    end, contexts = trio.Event(), list[Context]()

    def leave() -> None:
        contexts.append(copy_context())
        trio.lowlevel.spawn_system_task(end.wait, context=contexts[-1])

    try:
        yield leave
    finally:
        end.set()
        await anyio.sleep(1)
    assert contexts


@asynccontextmanager
async def _threads() -> AsyncIterator[Leave]:
    end, threads = threading.Event(), list[threading.Thread]()

    def leave() -> None:
        threads.append(threading.Thread(target=copy_context().run, args=(end.wait,)))
        threads[-1].start()

    try:
        yield leave
    finally:
        end.set()
        for thread in threads:
            thread.join()
    assert threads


KINDS: Final = {
    "timers": ("asyncio", _timers),
    "tasks": ("asyncio", _tasks),
    "system tasks": ("trio", _system_tasks),
    "threads": ("", _threads),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_tool_leaves_behind_keeps_no_engine(kind: str) -> None:
    backend, left = KINDS[kind]
    if backend not in ("", sniffio.current_async_library()):
        pytest.skip(f"only {backend} has them")
    await _tool(lambda: None)
    async with left() as leave:
        with _nothing_stays():
            for _ in range(3):
                await _tool(leave)


# What it can still do -------------------------------------------------------------------------------------------------


async def test_who_is_left_behind_is_refused_models_and_gets_no_answers() -> None:
    """The parts that would charge, ask and trace are gone."""
    for place in (_planner, _critic, _traced, _asking):
        await PLACES[place.__name__.strip("_")](lambda: LEFT.append(copy_context()))
    *variables, context = LEFT
    gc.collect()

    with pytest.raises(OverCeiling, match="the run has ended"):
        variables[0][METER].reserve("model", 1, None)
    assert await variables[0][ASK_PERSON]("which plan?", "none fits", {}) is None
    assert variables[1][SOURCES]() == {}
    assert variables[2][TRACER]() is None
    context.progress(1.0)
    context.report_usage(tokens=1)
    with pytest.raises(ToolError, match="nobody has answered"):
        await context.ask("which?")


async def test_a_charge_that_comes_after_the_end_of_the_run_changes_nothing() -> None:
    """It was charged at its worst when the run ended."""
    charges: list[Any] = []

    def think(brief: Brief) -> Any:
        charges.append(METER.get().reserve("model", 10, None))
        return instead("a", nap("a2", 1.0))

    async with dagrun.Engine(budget=Budget(max_tokens=100)) as engine:
        plan = Plan(steps=[fails("a")])
        await engine.run(plan, tools=toolset(), planner=Thinker(think))
        gc.collect()
        charges[0].settle(3, None)
        used = engine._shared.budget

    assert used is not None
    assert [account.spent for account in used.ceilings.accounts] == [10]


PLAN: Final = Plan(steps=[Step(id="a", tool="work")])


async def _from_inside(engine: dagrun.Engine) -> tuple[Context, str]:
    """Let a tool start a run in its engine; return its context variables, and why it was refused."""
    left: list[Any] = []

    async def work() -> None:
        try:
            await engine.run(PLAN, tools=[])
        except ContractError as error:
            left.append((copy_context(), str(error)))

    async with engine:
        await engine.run(PLAN, tools=[make_tool(work, effect="pure")])
    return cast("tuple[Context, str]", left[0])


async def test_what_is_left_of_an_engine_that_is_gone_may_start_runs_in_others() -> None:
    """The tools of those may still not."""
    left, why = await _from_inside(dagrun.Engine(max_running=2))
    gc.collect()
    async with anyio.create_task_group() as tasks:
        _, again = await tasks.create_task(_from_inside(dagrun.Engine(max_running=2)), context=left)

    assert why == again
    assert why.startswith("a tool cannot start a run in the engine that it runs in")
