"""Invariant 4: whoever tells a step to stop, its code may await its clean-up, for the grace period and no longer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled

import dagrun
from dagrun import (
    ApprovalRule,
    Brief,
    Drop,
    Engine,
    HedgeRule,
    MemoryJournal,
    Patch,
    Plan,
    Policy,
    RetryRule,
    Run,
    State,
    Status,
    Step,
    ToolContext,
    Verdict,
)
from dagrun.kernel.model.tool import AnyTool, make_tool
from hedge_tools import known
from small_tools import ONCE, near, states

pytestmark = [pytest.mark.anyio, pytest.mark.both_backends]

GRACE = 2.0
POLICY = Policy(grace=GRACE, retry=ONCE)


class Cleaner:
    """A tool that needs half a second to clean up, at an await without a shield.

    Attributes:
        tool: Of that name, ``read``.
        done: When each clean-up was done.
        cut: When each clean-up was cut off.
    """

    def __init__(self, name: str = "query", seconds: float = 0.5) -> None:
        self.done: list[float] = []
        self.cut: list[float] = []
        self._seconds = seconds
        self.tool: AnyTool = make_tool(self.run, name=name, effect="read")

    async def run(self) -> str:
        """Wait, until somebody has enough of it."""
        try:
            await anyio.sleep(50)
        except anyio.get_cancelled_exc_class():
            await self.clean_up()
            raise
        return "late"

    async def clean_up(self) -> None:
        """Say please, and wait for the answer."""
        try:
            await anyio.sleep(self._seconds)
        except BaseException:
            self.cut.append(anyio.current_time())
            raise
        self.done.append(anyio.current_time())


QUERY = Step(id="q", tool="query")


# Who tells it ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["timeout", "deadline"])
async def test_a_step_that_is_late(field: str) -> None:
    cleaner = Cleaner()
    step = Step(id="q", tool="query", **{field: 1.0})  # type: ignore[arg-type]

    result = await dagrun.run(Plan(steps=[step]), tools=[cleaner.tool], policy=POLICY)

    assert states(result) == {"q": "timed_out"}
    assert (len(cleaner.done), cleaner.cut, result.makespan) == (1, [], near(1.5))


async def test_three_attempts_leave_nothing_behind() -> None:
    """Each is over before the next one begins."""
    cleaner = Cleaner()
    step = Step(id="q", tool="query", timeout=1.0, retry=RetryRule(max_attempts=3, first_delay=0.0))

    result = await dagrun.run(Plan(steps=[step]), tools=[cleaner.tool], policy=POLICY)

    assert (states(result), len(cleaner.done), cleaner.cut) == ({"q": "timed_out"}, 3, [])
    ended = [attempt.ended for attempt in result.steps["q"].attempts]
    assert [attempt.started for attempt in result.steps["q"].attempts][1:] == ended[:2]


@asynccontextmanager
async def _opened(*steps: Step, tools: list[Any], **options: Any) -> AsyncIterator[Run]:
    policy = options.pop("policy", POLICY)
    async with dagrun.start(Plan(steps=list(steps)), tools=tools, policy=policy, **options) as handle:
        await anyio.sleep(1)
        yield handle


@pytest.mark.parametrize("what", ["run", "step", "splice", "suspend"])
async def test_a_step_that_is_not_wanted_any_more(what: str) -> None:
    cleaner = Cleaner()
    journal = MemoryJournal()
    async with _opened(QUERY, tools=[cleaner.tool], journal=journal) as handle:
        if what == "splice":
            await handle.splice(Patch(edits=(Drop(id="q"),)))
        elif what == "suspend":
            handle.suspend()
        else:
            assert handle.cancel("q" if what == "step" else None)
        await handle.result()
    await journal.aclose()

    assert (len(cleaner.done), cleaner.cut) == (1, [])


async def test_the_time_of_the_run_is_over() -> None:
    cleaner = Cleaner()
    policy = Policy(grace=GRACE, max_seconds=1.0)

    result = await dagrun.run(Plan(steps=[QUERY]), tools=[cleaner.tool], policy=policy)

    assert (result.status, states(result)) == (Status.OVER_BUDGET, {"q": "cancelled"})
    assert (len(cleaner.done), cleaner.cut) == (1, [])


@pytest.mark.parametrize("has_journal", [False, True])
async def test_a_scope_around_the_run_is_cancelled(has_journal: bool) -> None:
    """The scope would cancel at every await; the run ends all the same, and in time."""
    cleaners = [Cleaner(), Cleaner("forever", seconds=100.0)]
    journal = MemoryJournal() if has_journal else None
    begun = anyio.current_time()
    plan = Plan(steps=[QUERY, Step(id="f", tool="forever")])
    with anyio.move_on_after(1):
        await dagrun.run(plan, tools=[cleaner.tool for cleaner in cleaners], policy=POLICY, journal=journal)
    if journal is not None:
        await journal.aclose()

    assert [(len(cleaner.done), len(cleaner.cut)) for cleaner in cleaners] == [(1, 0), (0, 1)]
    assert anyio.current_time() - begun == near(1 + GRACE)


async def test_the_code_beside_the_run_fails() -> None:
    cleaner = Cleaner()
    with pytest.raises(ValueError, match="enough"):
        async with _opened(QUERY, tools=[cleaner.tool]):
            raise ValueError("enough")
    assert (len(cleaner.done), cleaner.cut) == (1, [])


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.real_time
@pytest.mark.parametrize("way", ["timeout", "task"])
async def test_the_task_of_the_run_is_cancelled_by_asyncio(anyio_backend: str, way: str) -> None:
    """The counts of the task are as they should be: a time limit around the run raises what it always raises."""
    cleaner = Cleaner(seconds=0.02)
    running = dagrun.run(Plan(steps=[QUERY]), tools=[cleaner.tool], policy=POLICY)
    if way == "timeout":
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await running
    else:
        task = asyncio.ensure_future(running)
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    this = asyncio.current_task()
    assert this is not None
    assert (len(cleaner.done), cleaner.cut, this.cancelling()) == (1, [], 0)


@pytest.mark.parametrize("loser", ["first", "second"])
async def test_the_slower_of_two_calls(loser: str) -> None:
    cleaner, calls = Cleaner(), 0

    async def look() -> str:
        nonlocal calls
        calls += 1
        if (calls == 1) is (loser == "first"):
            return await cleaner.run()
        await anyio.sleep(1.0 if loser == "first" else 4.0)
        return "found"

    async with Engine(durations=known()) as engine:
        plan = Plan(steps=[Step(id="look", tool="look")])
        policy = Policy(grace=GRACE, hedge=HedgeRule())
        result = await engine.run(plan, tools=[make_tool(look, effect="read")], policy=policy)

    assert (result.status, result.steps["look"].output, calls) == (Status.SUCCEEDED, "found", 2)
    assert (len(cleaner.done), cleaner.cut) == (1, [])


async def test_both_calls_of_an_attempt_that_is_stopped() -> None:
    cleaner = Cleaner()
    tool = make_tool(cleaner.run, name="look", effect="read")
    async with Engine(durations=known()) as engine:
        plan = Plan(steps=[Step(id="look", tool="look", timeout=10.0)])
        result = await engine.run(plan, tools=[tool], policy=Policy(grace=GRACE, hedge=HedgeRule(), retry=ONCE))

    assert states(result) == {"look": "timed_out"}
    assert (len(cleaner.done), cleaner.cut) == (2, [])


# What it was doing ----------------------------------------------------------------------------------------------------


async def test_it_waits_for_a_person() -> None:
    """Also a step that is held has something to clean up; and nobody is asked in the middle of that."""
    cleaner = Cleaner()
    said: list[str] = []

    async def asks(context: ToolContext) -> None:
        try:
            await context.ask("May I?")
        except anyio.get_cancelled_exc_class():
            try:
                await context.ask("May I clean up?")
            except dagrun.ToolError as error:
                said.append(str(error))
            await cleaner.clean_up()
            raise

    tool = make_tool(asks, effect="read")
    async with _opened(Step(id="q", tool="asks"), tools=[tool], attended=True) as handle:
        assert handle.states == {"q": State.HELD}
        handle.cancel("q")
        result = await handle.result()

    assert states(result) == {"q": "cancelled"}
    assert (len(cleaner.done), cleaner.cut, said) == (1, [], ["nobody has answered: May I clean up?"])


async def test_it_is_told_in_the_turn_in_which_it_goes_on() -> None:
    """What it waited for has come, and is not lost; it is cancelled at its next await."""
    cleaner = Cleaner()
    gate, seen = anyio.Event(), list[str]()

    async def passes() -> None:
        await gate.wait()
        seen.append("passed")
        await cleaner.run()

    async with _opened(Step(id="q", tool="passes"), tools=[make_tool(passes, effect="read")]) as handle:
        gate.set()
        handle.cancel("q")
        await handle.result()

    assert len(seen) <= 1
    assert cleaner.cut == []
    assert len(cleaner.done) == len(seen)


@pytest.mark.parametrize("goes_on_to", ["an await", "a checkpoint"])
async def test_it_goes_on_in_the_turn_in_which_the_code_around_is_cancelled(
    goes_on_to: str, anyio_backend_name: str
) -> None:
    """The cancelled scope passes it by, as what it waited for has come; it is told all the same, and once.

    It is another step that brings the news. A checkpoint of anyio waits for the cancellation of a scope above it, and
    would wait for ever behind the shield of its own.
    """
    if goes_on_to == "a checkpoint" and anyio_backend_name == "trio":
        pytest.skip("a checkpoint of trio is cancelled in a scope of its own, so there can be no shield")
    cleaner, other = Cleaner(), Cleaner("other")
    gate = anyio.Event()

    async def passes() -> None:
        await gate.wait()
        if goes_on_to == "a checkpoint":
            try:
                await checkpoint_if_cancelled()
            except anyio.get_cancelled_exc_class():
                await cleaner.clean_up()
                raise
        await cleaner.run()

    tools = [make_tool(passes, effect="read"), other.tool]
    with anyio.move_on_after(100) as around:
        async with _opened(Step(id="q", tool="passes"), Step(id="o", tool="other"), tools=tools) as handle:
            await anyio.sleep(1)
            gate.set()
            around.cancel()
            await handle.result()

    assert (len(cleaner.done), cleaner.cut, len(other.done)) == (1, [], 1)
    assert cleaner.done == other.done


async def test_it_ends_in_the_turn_in_which_it_is_told() -> None:
    """No cancellation is left behind for whoever comes next."""
    gate = anyio.Event()

    async def passes() -> int:
        await gate.wait()
        return 7

    async def nap() -> int:
        await anyio.sleep(1)
        await checkpoint()
        return 8

    steps = Step(id="q", tool="passes"), *(Step(id=f"n{n}", tool="nap") for n in range(3))
    policy = Policy(grace=GRACE, retry=ONCE, max_running=1)
    tools = [make_tool(passes, effect="read"), make_tool(nap, effect="effectful")]
    async with _opened(*steps, tools=tools, policy=policy) as handle:
        gate.set()
        handle.cancel("q")
        result = await handle.result()

    assert states(result) == {"q": "cancelled", "n0": "succeeded", "n1": "succeeded", "n2": "succeeded"}


async def test_it_stops_its_own_run_before_its_first_await() -> None:
    """It is the running task then, and is told at its first await."""
    cleaner = Cleaner()
    handles: list[Run] = []

    async def ends_all() -> None:
        handles[0].cancel()
        await cleaner.run()

    async with dagrun.start(
        Plan(steps=[Step(id="q", tool="ends_all")]), tools=[make_tool(ends_all, effect="read")], policy=POLICY
    ) as handle:
        handles.append(handle)
        result = await handle.result()

    assert states(result) == {"q": "cancelled"}
    assert (len(cleaner.done), cleaner.cut) == (1, [])


async def test_a_shield_holds() -> None:
    """What a tool has put under a shield is not cancelled; it is told when it has left it."""
    cleaner, seen = Cleaner(), list[str]()

    async def commits() -> None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(1.5)
            seen.append("committed")
        await cleaner.run()

    async with _opened(Step(id="q", tool="commits"), tools=[make_tool(commits, effect="read")]) as handle:
        handle.cancel("q")
        result = await handle.result()

    assert (states(result), seen, result.makespan) == ({"q": "cancelled"}, ["committed"], near(2))
    assert (len(cleaner.done), cleaner.cut) == (1, [])


@pytest.mark.parametrize("from_outside", [False, True])
@pytest.mark.parametrize("way", ["task group", "cancelled scope", "time limit"])
async def test_it_does_not_go_on_behind_a_scope_of_its_own(way: str, from_outside: bool) -> None:
    """A scope of the tool must not take the cancellation for its own."""
    went_on: list[str] = []

    async def scoped() -> None:
        if way == "task group":
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(anyio.sleep, 50)
        elif way == "cancelled scope":
            with anyio.CancelScope() as scope:
                try:
                    await anyio.sleep(50)
                finally:
                    with anyio.CancelScope(shield=True):
                        await anyio.sleep(0.1)
                    scope.cancel()
        else:
            with anyio.move_on_after(1.2):
                try:
                    await anyio.sleep(50)
                finally:
                    await anyio.sleep(50)
        await anyio.sleep(0.01)
        went_on.append(way)

    with anyio.move_on_after(1 if from_outside else 100):
        step = Step(id="q", tool="scoped", timeout=None if from_outside else 1.0)
        await dagrun.run(Plan(steps=[step]), tools=[make_tool(scoped, effect="read")], policy=POLICY)
    assert went_on == []


@pytest.mark.parametrize("from_outside", [False, True])
@pytest.mark.parametrize("limit", [None, 1.2, 20.0])
async def test_it_was_in_a_scope_of_its_own(limit: float | None, from_outside: bool) -> None:
    """Libraries put every wait in a time limit, or in one that is none; what cleans up has left it."""
    cleaner = Cleaner()

    async def scoped() -> None:
        try:
            with anyio.move_on_after(limit):
                await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            await cleaner.clean_up()
            raise

    with anyio.move_on_after(1 if from_outside else 100):
        step = Step(id="q", tool="scoped", timeout=None if from_outside else 1.0)
        await dagrun.run(Plan(steps=[step]), tools=[make_tool(scoped, effect="read")], policy=POLICY)
    assert (len(cleaner.done), cleaner.cut) == (1, [])


@pytest.mark.parametrize("way", ["timeout", "scope", "task"])
async def test_it_goes_on_as_if_nothing_had_been_said(way: str) -> None:
    """It swallows the one cancellation; its scope ends it after the grace period, also where the run is gone."""
    if way == "task" and not _is_asyncio():
        pytest.skip("trio has no way to cancel a task")
    ended: list[float] = []

    async def deaf() -> str:
        try:
            await anyio.sleep(50)
        except anyio.get_cancelled_exc_class():
            for _ in range(100):  # so much to do yet
                try:
                    await anyio.sleep(1.5)
                except anyio.get_cancelled_exc_class():
                    ended.append(anyio.current_time() - begun)
                    raise
        return "late"

    begun = anyio.current_time()
    step = Step(id="q", tool="deaf", timeout=1.0 if way == "timeout" else None)
    with anyio.move_on_after(1 if way == "scope" else 1000):
        running = dagrun.run(Plan(steps=[step]), tools=[make_tool(deaf, effect="read")], policy=POLICY)
        if way == "task":
            task = asyncio.ensure_future(running)
            await anyio.sleep(1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            await running

    assert ended == [near(1 + GRACE)]
    assert anyio.current_time() - begun == near(1 + GRACE)


async def test_it_runs_another_plan_inside() -> None:
    cleaner = Cleaner()

    async def nested() -> None:
        await dagrun.run(Plan(steps=[QUERY]), tools=[cleaner.tool], policy=POLICY)

    step = Step(id="n", tool="nested", timeout=1.0)
    result = await dagrun.run(Plan(steps=[step]), tools=[make_tool(nested, effect="read")], policy=POLICY)

    assert states(result) == {"n": "timed_out"}
    if _is_asyncio():  # on trio the task group of the inner run takes the grace period away
        assert (len(cleaner.done), cleaner.cut) == (1, [])


def _is_asyncio() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


# What is not a tool ---------------------------------------------------------------------------------------------------


class SlowCritic:
    """A critic that is a `Cleaner` at heart."""

    name = "slow"

    def __init__(self, cleaner: Cleaner) -> None:
        self._cleaner = cleaner

    def applies_to(self, step: Step) -> bool:
        """To all."""
        return True

    async def review(self, step: Step, outcome: object) -> Verdict:
        """Look at it for too long."""
        await self._cleaner.run()
        return Verdict("pass")


@pytest.mark.parametrize("way", ["late", "cancelled", "around"])
async def test_a_critic(way: str) -> None:
    cleaner = Cleaner()

    async def one() -> int:
        return 1

    policy = Policy(grace=GRACE, critic_timeout=1.0 if way == "late" else 100.0)
    with anyio.move_on_after(100 if way != "around" else 2):
        async with _opened(
            Step(id="one", tool="one"), tools=[make_tool(one)], critics=[SlowCritic(cleaner)], policy=policy
        ) as handle:
            if way == "cancelled":
                handle.cancel()
            await handle.result()

    assert (len(cleaner.done), cleaner.cut) == (1, [])


class SlowPlanner:
    """A planner that is a `Cleaner` at heart."""

    def __init__(self, cleaner: Cleaner) -> None:
        self._cleaner = cleaner

    async def revise(self, brief: Brief) -> Patch:
        """Think for too long."""
        await self._cleaner.run()
        return Patch(edits=())


@pytest.mark.parametrize("way", ["cancelled", "around"])
async def test_a_planner(way: str) -> None:
    cleaner = Cleaner()
    with anyio.move_on_after(100 if way != "around" else 1.5):
        async with dagrun.start(goal="think", tools=[cleaner.tool], planner=SlowPlanner(cleaner), policy=POLICY) as run:
            await anyio.sleep(1)
            if way == "cancelled":
                run.cancel()
            await run.result()

    assert (len(cleaner.done), cleaner.cut) == (1, [])


@pytest.mark.parametrize("way", ["cancelled", "around"])
async def test_an_approver(way: str) -> None:
    cleaner = Cleaner()

    async def approve(question: object) -> bool:
        await cleaner.run()
        return True

    async def pay() -> int:
        return 1

    policy = Policy(grace=GRACE, approve=(ApprovalRule(tool="pay"),))
    with anyio.move_on_after(100 if way != "around" else 2):
        async with _opened(Step(id="p", tool="pay"), tools=[make_tool(pay)], approver=approve, policy=policy) as run:
            if way == "cancelled":
                run.cancel()
            await run.result()

    assert (len(cleaner.done), cleaner.cut) == (1, [])
