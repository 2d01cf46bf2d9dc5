"""What a call has left behind may look at its context at any time: it is told to stop, and what it says is too late."""

from __future__ import annotations

import anyio
import pytest

import dagrun
from dagrun import Engine, Event, HedgeRule, MemoryJournal, Plan, Policy, Status, Step, ToolContext
from dagrun.events import Progress, QuestionAsked, RunEnded
from dagrun.extend import StillRunning, ToolCall
from dagrun.kernel.model.tool import make_tool
from hedge_tools import known
from replans import nap
from small_tools import ONCE, toolset

pytestmark = [pytest.mark.anyio, pytest.mark.both_backends]


@dagrun.tool(effect="read")
def look() -> int:
    """Look somewhere."""
    return 1


class Workers:
    """Workers of a host. Each takes so many seconds, and cannot be stopped: who cancels the call leaves it behind.

    Args:
        seconds: For each call.
        has_looked: Whether they look at their context at once.

    Attributes:
        calls: What they were given.
    """

    def __init__(self, *seconds: float, has_looked: bool) -> None:
        self.calls: list[ToolCall] = []
        self._seconds = seconds
        self._has_looked = has_looked

    async def call(self, call: ToolCall) -> object:
        """Have one do it."""
        self.calls.append(call)
        if self._has_looked:
            assert not call.context().is_cancelled
        try:
            await anyio.sleep(self._seconds[len(self.calls) - 1])
        except anyio.get_cancelled_exc_class():
            raise StillRunning("it still works on it") from None
        return 1

    async def aclose(self) -> None:
        """Nothing to close."""


LOOK = Plan(steps=[Step(id="look", tool="look", executor="far", timeout=1.0)])


@pytest.mark.parametrize("has_looked", [True, False])
async def test_a_worker_that_is_left_behind_sees_that_it_was_told_to_stop(has_looked: bool) -> None:
    """However late it looks, and also for the first time."""
    workers = Workers(100.0, has_looked=has_looked)
    result = await dagrun.run(LOOK, tools=[look], executors={"far": workers}, policy=Policy(retry=ONCE))

    (call,) = workers.calls
    assert result.steps["look"].reason == "it took longer than 1 s; it would not stop"
    assert call.context().is_cancelled
    assert call.context() is call.context()


async def test_both_calls_of_an_attempt_see_it() -> None:
    """The second one wins, the first is left behind; then the second is slow, and told as well."""
    workers = Workers(100.0, 0.5, has_looked=True)
    async with Engine(durations=known(), executors={"far": workers}) as engine:
        plan = Plan(steps=[Step(id="look", tool="look", executor="far")])
        result = await engine.run(plan, tools=[look], policy=Policy(hedge=HedgeRule()))

    assert (result.status, len(workers.calls)) == (Status.SUCCEEDED, 2)
    assert workers.calls[0].context().is_cancelled


async def test_the_slower_second_call_sees_it() -> None:
    workers = Workers(3.0, 100.0, has_looked=True)
    async with Engine(durations=known(), executors={"far": workers}) as engine:
        plan = Plan(steps=[Step(id="look", tool="look", executor="far")])
        result = await engine.run(plan, tools=[look], policy=Policy(hedge=HedgeRule()))

    assert (result.status, len(workers.calls)) == (Status.SUCCEEDED, 2)
    assert workers.calls[1].context().is_cancelled


async def test_what_is_said_after_the_end_changes_nothing() -> None:
    """A question after the end has nobody to answer it, and would damage the record."""
    events: list[Event] = []
    said: list[str] = []

    async def leaves_a_task(context: ToolContext) -> int:
        async def late() -> None:
            await anyio.sleep(1.0)
            context.progress(0.5, "too late")
            context.report_usage(tokens=5)
            try:
                await context.ask("Too late?")
            except dagrun.ToolError as error:
                said.append(str(error))

        group.start_soon(late)
        return 1

    tool = make_tool(leaves_a_task, name="leaves", effect="read")
    journal = MemoryJournal()
    plan = Plan(steps=[Step(id="a", tool="leaves"), nap("b", 3.0)])
    async with (
        anyio.create_task_group() as group,
        dagrun.start(plan, tools=toolset(tool), journal=journal, attended=True, on_event=events.append) as running,
    ):
        result = await running.result()
    await journal.aclose()

    assert said == ["nobody has answered: Too late?"]
    assert (result.status, result.tokens) == (Status.SUCCEEDED, 0)
    assert result.makespan == pytest.approx(3.0)
    assert isinstance(events[-1], RunEnded)
    assert not any(isinstance(event, Progress | QuestionAsked) for event in events)
