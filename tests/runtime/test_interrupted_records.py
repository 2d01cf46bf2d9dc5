"""Runs that are stopped at a bad moment: while a plan is written or repaired, taken up, or created; each can go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from anyio.lowlevel import checkpoint

import dagrun
from dagrun import (
    Add,
    Brief,
    MemoryJournal,
    Patch,
    Plan,
    PostgresJournal,
    Replace,
    RetryRule,
    Run,
    SQLiteJournal,
    Status,
    Step,
    ToolContext,
    ToolError,
)
from dagrun.codec import decode_event
from dagrun.errors import CannotResume, RunExists, RunHeld, RunNotFound
from dagrun.events import RunEnded, RunReopened, RunResumed, RunSuspended
from dagrun.extend import Journal, RunLog
from dagrun.kernel.runtime import run_parts
from dagrun.kernel.runtime.backend import clock
from dagrun.kernel.runtime.record.event_log import EventLog
from dagrun.kernel.runtime.resume import Resumption
from dagrun.testing import run_virtual
from postgres_schemas import fresh_schema
from replans import nap
from small_tools import toolset

RUN: Final = "run"
WAYS: Final = ("suspend", "cancel", "scope", "task")
BACKENDS: Final = ("asyncio", "trio")
SWEPT: Final = ("asyncio", pytest.param("trio", marks=pytest.mark.rigs))


@dagrun.tool(effect="read")
async def look(n: int) -> int:
    """Look for a second."""
    await anyio.sleep(1)
    return n


@dagrun.tool(effect="effectful")
async def pay(n: int) -> int:
    """Pay at once."""
    return n


@dagrun.tool(effect="read")
async def fails(n: int) -> int:
    """Fail at once."""
    raise ToolError("no")


TOOLS: Final = [look, pay, fails]
BROKEN: Final = Plan(steps=[Step(id="f", tool="fails", args={"n": 1}), Step(id="l", tool="look", args={"n": 1})])


def drafted(count: int) -> list[Step]:
    """A chain of steps; the last has an effect."""
    return [
        Step(
            id=f"d{number}",
            tool="look" if number < count - 1 else "pay",
            args={"n": number},
            depends_on=(f"d{number - 1}",) if number else (),
        )
        for number in range(count)
    ]


class Streamer:
    """Writes a plan step by step, one in each turn of the loop; its first word comes after a second.

    Args:
        turns: More turns before the first word.
    """

    def __init__(self, turns: int) -> None:
        self._turns = turns

    async def revise(self, brief: Brief) -> AsyncIterator[Add]:
        """Write the plan, or nothing where there is one."""
        await _think(self._turns)
        for step in drafted(3) if brief.is_first else ():
            await checkpoint()
            yield Add(step=step)


class Whole:
    """Answers after a second: with a plan, or with a substitute for a step that has failed.

    Args:
        turns: More turns of the loop before the answer.
    """

    def __init__(self, turns: int) -> None:
        self._turns = turns

    async def revise(self, brief: Brief) -> Plan | Patch | None:
        """Answer."""
        await _think(self._turns)
        if brief.is_first:
            return Plan(steps=drafted(3))
        new = Step(id=f"n{brief.number}", tool="look", args={"n": 1})
        return Patch(edits=[Replace(id="f", step=new)]) if "f" in {t.step for t in brief.triggers} else None


async def _think(turns: int) -> None:
    await anyio.sleep(1)
    for _ in range(turns):
        await checkpoint()


async def stopped(planner: Any, way: str, turns: int, journal: MemoryJournal, **options: Any) -> None:
    """Run, and stop the run a second and *turns* turns of the loop after it has begun."""

    async def work(stop: Callable[[Run], object] | None) -> None:
        opened = dagrun.start(tools=TOOLS, journal=journal, run_id=RUN, planner=planner, **options)
        async with opened as run, anyio.create_task_group() as tasks:
            if stop is not None:
                tasks.start_soon(soon, stop, run)
            await run.result()

    async def soon(stop: Callable[[Run], object], run: Run) -> None:
        await _think(turns)
        stop(run)

    if way == "task":
        task = asyncio.create_task(work(None))
        await _think(turns)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled(), f"it ended with {task.exception()!r}"
        return
    with anyio.CancelScope() as scope:
        acts: dict[str, Callable[[Run], object]] = {"suspend": Run.suspend, "cancel": Run.cancel}
        await work(acts.get(way, lambda _: scope.cancel()))


async def can_go_on(journal: Journal, planner: Any) -> None:
    """Read the record, resume it if it has not ended, and replay it; nothing follows an end."""
    events = [decode_event(line.text) for line in await journal.read(RUN)]
    for before, after in pairwise(events):
        if isinstance(before, RunEnded | RunSuspended):
            assert isinstance(after, RunResumed | RunReopened), f"{after} follows {before}"
    before_it = await dagrun.replay(RUN, journal=journal)
    if isinstance(events[-1], RunEnded):
        with pytest.raises(CannotResume):
            await _resumed(journal, planner)
        return
    assert before_it.status is None or isinstance(events[-1], RunSuspended)
    result = await _resumed(journal, planner)
    after_it = await dagrun.replay(RUN, journal=journal)
    assert after_it.status is result.status
    assert result.status in (Status.SUCCEEDED, Status.CANCELLED, Status.FAILED)


async def _resumed(journal: Journal, planner: Any) -> dagrun.RunResult:
    async with dagrun.resume(RUN, journal=journal, tools=TOOLS, planner=planner) as run:
        return await run.result()


async def _sweep(make_planner: Callable[[int], Any], way: str, thinks: range, stops: range, options: Any) -> None:
    for think in thinks:
        for turns in stops:
            journal = MemoryJournal()
            with anyio.fail_after(10_000):
                await stopped(make_planner(think), way, turns, journal, **options)
                await can_go_on(journal, make_planner(0))


def sweep(make_planner: Callable[[int], Any], way: str, backend: str, options: Any) -> None:
    """Stop in each turn around the one in which the planner answers."""
    if way == "task" and backend == "trio":
        pytest.skip("trio cancels by scopes alone")
    run_virtual(_sweep, make_planner, way, range(3), range(7), options, backend=backend)


@pytest.mark.parametrize("backend", SWEPT)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("planner", [Streamer, Whole])
def test_a_run_that_is_stopped_while_its_plan_is_written_can_go_on(planner: Any, way: str, backend: str) -> None:
    """The planner ends after the run: the end of its draft is no event any more."""
    sweep(planner, way, backend, {"goal": "do it"})


@pytest.mark.parametrize("backend", SWEPT)
@pytest.mark.parametrize("way", WAYS)
def test_a_run_that_is_stopped_while_its_planner_answers_can_go_on(way: str, backend: str) -> None:
    """Request and answer, answer and stop meet in one turn of the loop."""
    sweep(Whole, way, backend, {"plan": BROKEN})


class TellsAfterTheEnd(EventLog):
    """The record as it was: what comes after the end is added to it."""

    def _close(self, event: RunEnded | RunSuspended) -> None:
        self.emit(event)
        self.deliver()
        for observer in self._observers:
            observer.close()


@pytest.mark.bad_records
@pytest.mark.parametrize("options", [{"goal": "do it"}, {"plan": BROKEN}], ids=["draft", "replan"])
def test_what_is_told_after_the_end_would_be_found(options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the two tests above would be blind."""
    monkeypatch.setattr(EventLog, "_close", TellsAfterTheEnd._close)
    with pytest.raises((AssertionError, dagrun.errors.JournalDamaged)):
        sweep(Whole, "suspend", "asyncio", options)


# A back-off that ends while the run is taken up ----------------------------------------------------------------------


class Creeping:
    """A clock of the loop that moves a little each time somebody looks at it."""

    def __init__(self, real: Callable[[], float], step: float) -> None:
        self._real, self._step, self._looks = real, step, 0

    def __call__(self) -> float:
        """Return the time."""
        self._looks += 1
        return self._real() + self._looks * self._step


@dagrun.tool(effect="read")
async def flaky(context: ToolContext) -> int:
    """Fail once."""
    if context.attempt == 1:
        raise ToolError("busy", retryable=True)
    return context.attempt


async def _go_on_while_back_offs_end(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [Step(id=f"s{n}", tool="flaky", retry=RetryRule(first_delay=2.0, max_delay=2.0)) for n in range(40)]
    journal = MemoryJournal()
    async with dagrun.start(Plan(steps=steps), tools=[flaky], journal=journal, run_id=RUN, seed=3) as run:
        await anyio.sleep(1.0)
        run.suspend()
        await run.result()
    monkeypatch.setattr(run_parts, "clock", lambda: Creeping(clock(), 0.001))
    with anyio.move_on_after(1_000):
        async with dagrun.resume(RUN, journal=journal, tools=[flaky]) as run:
            assert (await run.result()).status is Status.SUCCEEDED
            return
    raise AssertionError("the resumed run has not ended")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_back_off_that_ends_while_the_run_is_taken_up_is_not_lost(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it has ended is asked once: a step that was neither ready nor waiting would never start."""
    run_virtual(_go_on_while_back_offs_end, monkeypatch, backend=backend)


def _looks_twice(self: Resumption, ready: list[Any]) -> None:
    self._frontier.refill([node for node in ready if self._delay(node) <= 0])
    for node in ready:
        if self._delay(node) > 0:
            self._scheduler.endings.try_again(node, self._delay(node))


def test_a_clock_that_is_asked_twice_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the test above would be blind."""
    monkeypatch.setattr(Resumption, "_line_up", _looks_twice)
    with pytest.raises(AssertionError, match="has not ended"):
        run_virtual(_go_on_while_back_offs_end, monkeypatch)


# Creation -------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def journal(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    """A journal of each kind."""
    if request.param == "memory":
        yield MemoryJournal()
    elif request.param == "sqlite":
        yield SQLiteJournal(tmp_path / "runs")
    else:
        dsn = request.getfixturevalue("postgres")
        with fresh_schema(dsn) as schema:
            opened = PostgresJournal(dsn, schema=schema)
            yield opened
            await opened.aclose()


PLAN: Final = Plan(steps=[nap("a", 0.0), nap("b", 0.0, "a")])


async def begun(journal: Journal) -> Status:
    """Run the plan under its name."""
    return (await dagrun.run(PLAN, tools=toolset(), journal=journal, run_id=RUN)).status


async def gone_on(journal: Journal) -> Status:
    """Resume the run."""
    async with dagrun.resume(RUN, journal=journal, tools=toolset()) as run:
        return (await run.result()).status


@pytest.mark.anyio
@pytest.mark.real_time
@pytest.mark.costly
class TestCreation:
    """Runs that were stopped before their first record was written."""

    async def test_a_name_whose_owner_was_killed_in_creation_is_free(self, journal: Any) -> None:
        """Nothing has happened: there is nothing to resume, and nothing to protect."""
        run_log = await journal.create(RUN)  # that is all that the process had time for
        await run_log.aclose()
        with pytest.raises(RunNotFound, match="killed before its first record"):
            await gone_on(journal)
        assert await begun(journal) is Status.SUCCEEDED
        with pytest.raises(RunExists):
            await begun(journal)

    async def test_a_name_whose_owner_lives_is_taken(self, journal: Any) -> None:
        """It is about to write its first record."""
        run_log = await journal.create(RUN)
        with pytest.raises(RunExists):
            await begun(journal)
        with pytest.raises(RunHeld):
            await gone_on(journal)
        await run_log.aclose()

    @pytest.mark.parametrize("way", ["scope", "task", "timeout"])
    async def test_a_run_that_is_cancelled_in_creation_holds_nothing(
        self, journal: Any, way: str, anyio_backend_name: str
    ) -> None:
        """Whatever the turn: what comes out is the cancellation alone, and the name can be used again at once."""
        if way != "scope" and anyio_backend_name == "trio":
            pytest.skip("trio cancels by scopes alone")
        for turns in range(6):
            await _cancelled_in_creation(journal, way, turns)
            assert [held.run_id for held in await journal.runs() if held.is_held] == []
            try:
                assert await gone_on(journal) is Status.SUCCEEDED
            except RunNotFound:
                if [held for held in await journal.runs() if held.run_id == RUN]:
                    assert await begun(journal) is Status.SUCCEEDED
            if [held for held in await journal.runs() if held.run_id == RUN]:
                await journal.delete(RUN)


async def _cancelled_in_creation(journal: Any, way: str, turns: int) -> None:
    """Cancel the code around a run, *turns* turns after the journal was asked to create its record."""
    asked, create = anyio.Event(), journal.create

    async def creating(run_id: str) -> RunLog:
        asked.set()
        run_log: RunLog = await create(run_id)
        return run_log

    journal.create = creating
    try:
        await _CANCELS[way](lambda: begun(journal), asked, turns)
    finally:
        del journal.create


async def _later(asked: anyio.Event, turns: int) -> None:
    await asked.wait()
    for _ in range(turns):
        await checkpoint()


async def _by_scope(work: Callable[[], Coroutine[Any, Any, Any]], asked: anyio.Event, turns: int) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        await _later(asked, turns)
        tasks.cancel_scope.cancel()


async def _by_task(work: Callable[[], Coroutine[Any, Any, Any]], asked: anyio.Event, turns: int) -> None:
    task: asyncio.Future[Any] = asyncio.ensure_future(work())
    await _later(asked, turns)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled() or task.exception() is None, f"in place of the cancellation: {task.exception()!r}"


async def _by_timeout(work: Callable[[], Coroutine[Any, Any, Any]], asked: anyio.Event, turns: int) -> None:
    async def expire(deadline: asyncio.Timeout) -> None:
        await _later(asked, turns)
        if not deadline.expired():
            deadline.reschedule(0)

    async def inner() -> None:
        async with asyncio.timeout(1_000) as deadline:
            expiring = asyncio.ensure_future(expire(deadline))
            try:
                await work()
            finally:
                expiring.cancel()

    (ended,) = await asyncio.gather(inner(), return_exceptions=True)
    assert ended is None or type(ended) is TimeoutError, f"in place of the timeout: {ended!r}"


_CANCELS: Final = {"scope": _by_scope, "task": _by_task, "timeout": _by_timeout}
