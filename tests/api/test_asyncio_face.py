"""The public names as a program on plain asyncio meets them, without anyio in sight."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import pytest

import dagrun
from dagrun import Plan, State, Status, Step
from dagrun.kernel.model.tool import AnyTool

pytestmark = pytest.mark.asyncio

LONG = 3_600.0


@dagrun.tool(effect="read")
async def pause(seconds: float = LONG) -> str:
    """Sleep with asyncio's own sleep."""
    await asyncio.sleep(seconds)
    return "well"


@dagrun.tool(effect="read")
async def tidy(log: list[Any]) -> None:
    """Hang, and clean up when cancelled."""
    try:
        await asyncio.sleep(LONG)
    finally:
        CLEANED.extend(log)


CLEANED: list[Any] = []

PLAN = Plan(
    steps=[
        Step(id="quick", tool="pause", args={"seconds": 0.0}),
        Step(id="hangs", tool="tidy", args={"log": ["${quick}"]}),
        Step(id="never", tool="pause", depends_on=("hangs",)),
    ]
)
TOOLS: list[AnyTool] = [pause, tidy]


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    CLEANED.clear()
    yield
    gc.collect()


async def _is_under_way(run: Any) -> None:
    """Wait until the step that hangs is running."""
    while run.states["hangs"] is not State.RUNNING:
        await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_a_run_is_awaited_like_any_coroutine() -> None:
    result = await dagrun.run(Plan(steps=[Step(id="a", tool="pause", args={"seconds": 0.0})]), tools=TOOLS)

    assert (result.status, result.output) == (Status.SUCCEEDED, "well")


async def test_runs_are_gathered_and_grouped() -> None:
    """Inside gather and asyncio.TaskGroup, each in a task of its own."""
    plan = Plan(steps=[Step(id="a", tool="pause", args={"seconds": 0.0})])
    gathered = await asyncio.gather(*(dagrun.run(plan, tools=TOOLS) for _ in range(5)))
    async with asyncio.TaskGroup() as tasks:
        grouped = [tasks.create_task(dagrun.run(plan, tools=TOOLS)) for _ in range(5)]

    assert {r.status for r in (*gathered, *(task.result() for task in grouped))} == {Status.SUCCEEDED}


async def test_wait_for_ends_a_run_and_leaves_no_task() -> None:
    before = asyncio.all_tasks()

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(dagrun.run(PLAN, tools=TOOLS), 0.05)

    assert CLEANED == ["well"]
    assert asyncio.all_tasks() == before


async def test_asyncio_timeout_around_a_run_settles_it() -> None:
    before = asyncio.all_tasks()
    run: Any = None

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05), dagrun.start(PLAN, tools=TOOLS) as run:
            await run.result()

    result = await run.result()
    states = {id_: str(step.state) for id_, step in result.steps.items()}
    assert states == {"quick": "succeeded", "hangs": "cancelled", "never": "cancelled"}
    assert result.status is Status.CANCELLED
    assert asyncio.all_tasks() == before


async def test_cancelling_the_host_task_cancels_the_run() -> None:
    """As a web server does when the client has gone; the task ends as cancelled, and not before all is tidy."""
    before = asyncio.all_tasks()
    runs: list[Any] = []

    async def host() -> None:
        async with dagrun.start(PLAN, tools=TOOLS) as run:
            runs.append(run)
            await run.result()

    task = asyncio.create_task(host())
    while not runs:
        await asyncio.sleep(0)
    await _is_under_way(runs[0])
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert CLEANED == ["well"]
    assert task.cancelled()
    assert {str(state) for state in runs[0].states.values()} == {"succeeded", "cancelled"}
    assert asyncio.all_tasks() == before


async def test_a_host_that_catches_its_cancellation_still_gets_every_state() -> None:
    async def host() -> dict[str, str]:
        run: Any = None
        try:
            async with dagrun.start(PLAN, tools=TOOLS) as run:
                await asyncio.sleep(LONG)
        except asyncio.CancelledError:
            result = await run.result()
            return {id_: str(step.state) for id_, step in result.steps.items()}
        raise AssertionError

    task = asyncio.create_task(host())
    await asyncio.sleep(0.05)
    task.cancel()

    assert await task == {"quick": "succeeded", "hangs": "cancelled", "never": "cancelled"}


async def test_a_failing_run_does_not_raise() -> None:
    @dagrun.tool(effect="pure")
    async def bad() -> None:
        raise asyncio.CancelledError

    result = await dagrun.run(Plan(steps=[Step(id="bad", tool="bad")]), tools=[bad])

    assert (result.status, result.steps["bad"].state) == (Status.FAILED, State.FAILED)


async def test_tools_may_use_asyncio_freely() -> None:
    """Task groups, locks, timeouts and child tasks of asyncio itself work inside a tool."""

    @dagrun.tool(effect="pure")
    async def busy() -> list[int]:
        lock = asyncio.Lock()

        async def part(n: int) -> int:
            async with lock:
                await asyncio.sleep(0)
                return n

        async with asyncio.timeout(LONG), asyncio.TaskGroup() as tasks:
            parts = [tasks.create_task(part(n)) for n in range(3)]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 0.01)
        return [task.result() for task in parts]

    result = await dagrun.run(Plan(steps=[Step(id="busy", tool="busy")]), tools=[busy])

    assert result.output == [0, 1, 2]


async def test_events_are_an_async_iterator() -> None:
    plan = Plan(steps=[Step(id="a", tool="pause", args={"seconds": 0.0})])

    async with dagrun.start(plan, tools=TOOLS) as run:
        names = [type(event).__name__ async for event in run.events()]

    assert names == ["RunStarted", "AttemptStarted", "AttemptEnded", "RunEnded"]


async def test_an_engine_lives_as_long_as_a_service() -> None:
    plan = Plan(steps=[Step(id=f"s{i}", tool="pause", args={"seconds": 0.0}) for i in range(10)])

    async with dagrun.Engine(max_running=3) as engine:
        results = await asyncio.gather(*(engine.run(plan, tools=TOOLS) for _ in range(10)))

    assert {result.status for result in results} == {Status.SUCCEEDED}


async def test_run_sync_in_a_notebook_cell() -> None:
    """Called from code inside a running loop, which it blocks meanwhile."""
    plan = Plan(steps=[Step(id="a", tool="pause", args={"seconds": 0.0})])

    assert dagrun.run_sync(plan, tools=TOOLS).output == "well"
