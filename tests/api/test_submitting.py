"""Runs that are submitted, followed and cancelled by one part of a program, and carried out by a worker in another."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

import dagrun
from dagrun import Answer, Event, MemoryJournal, Plan, PlanRefused, SQLiteJournal, Status, Step
from dagrun.errors import ContractError, RunNotFound
from dagrun.events import RunEnded
from dagrun.extend import Journal
from dagrun.journal.memory_queue import HandedRunLog, MemoryQueue
from dagrun.journal.queue import QueuedRun, QueueStatus, Wanted
from dagrun.kernel.model.question import AnswerMessage

pytestmark = [pytest.mark.anyio, pytest.mark.both_backends]

PLAN = Plan(steps=[Step(id="look", tool="look"), Step(id="pay", tool="pay", args={"sum": "${look}"})])


class Shop:
    """Tools, and what was done with them."""

    def __init__(self, *, seconds: float = 1.0, needs_approval: bool = False, version: str = "1") -> None:
        self.paid: list[int] = []

        async def look() -> int:
            await anyio.sleep(seconds)
            return 7

        async def pay(sum: int) -> int:
            await anyio.sleep(seconds)
            self.paid.append(sum)
            return sum

        self.tools = [
            dagrun.tool(effect="read", version=version)(look),
            dagrun.tool(effect="effectful", needs_approval=needs_approval)(pay),
        ]


async def _run(*workers: dagrun.Worker, until: Any) -> None:
    """Let workers work until *until* has returned."""
    async with anyio.create_task_group() as tasks:
        for worker in workers:
            tasks.start_soon(worker.run)
        await until()
        for worker in workers:
            worker.stop()


async def _standings(journal: MemoryJournal) -> dict[str, QueuedRun]:
    return {each.run_id: each for each in await journal.queue.runs()}


async def _followed(run_id: str, journal: Journal) -> list[Event]:
    with anyio.fail_after(60):
        return [event async for event in dagrun.follow(run_id, journal=journal)]


async def test_a_submitted_run_is_carried_out_by_a_worker() -> None:
    """With its inputs; its events can be followed from elsewhere."""
    journal, shop = MemoryJournal(), Shop()
    plan = Plan(steps=[Step(id="pay", tool="pay", args={"sum": "${input.sum}"})])
    run_id = await dagrun.submit(plan, tools=shop.tools, inputs={"sum": 9}, journal=journal)
    assert shop.paid == []
    async with dagrun.Engine() as engine:
        worker = dagrun.Worker(engine, journal=journal, tools=shop.tools)

        async def until() -> None:
            events = await _followed(run_id, journal)
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            assert isinstance(events[-1], RunEnded)
            assert events[-1].status is Status.SUCCEEDED

        await _run(worker, until=until)
    assert shop.paid == [9]
    assert (await _standings(journal))[run_id].standing is QueueStatus.ENDED


async def test_two_workers_share_the_runs() -> None:
    """Each run is carried out once, as many at once as the workers have room for."""
    journal, shop = MemoryJournal(), Shop()
    begun = anyio.current_time()
    ids = [await dagrun.submit(PLAN, tools=shop.tools, journal=journal) for _ in range(8)]
    async with dagrun.Engine() as engine:
        workers = [dagrun.Worker(engine, at_once=2, journal=journal, tools=shop.tools) for _ in range(2)]

        async def until() -> None:
            for run_id in ids:
                await _followed(run_id, journal)

        await _run(*workers, until=until)
    assert shop.paid == [7] * 8
    assert 4 <= anyio.current_time() - begun < 6  # two rounds of four runs, of two seconds each


async def test_a_worker_that_stops_suspends_its_runs_for_the_next() -> None:
    """A call with an effect that goes on may end; the next worker calls nothing twice."""
    journal, shop = MemoryJournal(), Shop()
    run_id = await dagrun.submit(PLAN, tools=shop.tools, journal=journal)
    async with dagrun.Engine() as engine:

        async def half() -> None:
            await anyio.sleep(1.5)

        await _run(dagrun.Worker(engine, journal=journal, tools=shop.tools), until=half)
        assert shop.paid == [7]
        assert (await _standings(journal))[run_id].standing in (QueueStatus.QUEUED, QueueStatus.ENDED)

        async def end() -> None:
            await _followed(run_id, journal)

        await _run(dagrun.Worker(engine, journal=journal, tools=shop.tools), until=end)
    assert shop.paid == [7]


async def test_an_answer_from_elsewhere_wakes_a_run_that_waits() -> None:
    """Nobody holds the run while it waits; a letter puts it back into the queue."""
    journal, shop = MemoryJournal(), Shop(needs_approval=True)
    run_id = await dagrun.submit(PLAN, tools=shop.tools, journal=journal)
    async with dagrun.Engine() as engine:
        worker = dagrun.Worker(engine, journal=journal, tools=shop.tools)

        async def until() -> None:
            await anyio.sleep(5)
            assert (await _standings(journal))[run_id].standing is QueueStatus.WAITING
            assert not [held for held in await journal.runs() if held.is_held]
            (question,) = (await dagrun.replay(run_id, journal=journal)).pending
            letter = AnswerMessage.of(question.id, Answer("approve"), await journal.answer_key(run_id))
            await journal.post(run_id, letter.model_dump_json().encode())
            events = await _followed(run_id, journal)
            assert isinstance(events[-1], RunEnded)
            assert events[-1].status is Status.SUCCEEDED

        await _run(worker, until=until)
    assert shop.paid == [7]


async def test_a_worker_leaves_runs_of_another_build_alone() -> None:
    """It says what differs; a worker that fits takes them, and the runs behind them are not held up."""
    journal, old, new = MemoryJournal(), Shop(version="1"), Shop(version="2")
    first = await dagrun.submit(PLAN, tools=old.tools, journal=journal)
    second = await dagrun.submit(PLAN, tools=new.tools, journal=journal)
    async with dagrun.Engine() as engine:

        async def until() -> None:
            await _followed(second, journal)

        await _run(dagrun.Worker(engine, journal=journal, tools=new.tools), until=until)
        left = (await _standings(journal))[first]
        assert left.standing is QueueStatus.QUEUED
        assert "version" in left.reason

        async def end() -> None:
            await _followed(first, journal)

        await _run(dagrun.Worker(engine, journal=journal, tools=old.tools), until=end)
    assert (old.paid, new.paid) == ([7], [7])


@pytest.mark.parametrize("when", ["queued", "running", "waiting"])
async def test_a_run_is_cancelled_wherever_it_stands(when: str) -> None:
    """Nothing of it starts any more, whoever has it; and it ends once."""
    journal, shop = MemoryJournal(), Shop(needs_approval=when == "waiting")
    run_id = await dagrun.submit(PLAN, tools=shop.tools, journal=journal)
    async with dagrun.Engine() as engine:
        worker = dagrun.Worker(engine, journal=journal, tools=shop.tools)
        if when == "queued":
            assert await dagrun.cancel(run_id, journal=journal, reason="not wanted", by="Ann")
            assert await dagrun.cancel(run_id, journal=journal, reason="not wanted", by="Ann")

        async def until() -> None:
            if when != "queued":
                await anyio.sleep(0.5 if when == "running" else 5)
                assert await dagrun.cancel(run_id, journal=journal, reason="not wanted", by="Ann")
            events = await _followed(run_id, journal)
            assert isinstance(events[-1], RunEnded)
            assert (events[-1].status, events[-1].reason) == (Status.CANCELLED, "cancelled by Ann: not wanted")

        await _run(worker, until=until)
    assert shop.paid == []
    assert not await dagrun.cancel(run_id, journal=journal)
    assert (await _standings(journal))[run_id].standing is QueueStatus.ENDED


async def test_a_run_is_not_begun_before_its_time() -> None:
    """It waits in the queue, and the worker sleeps until then."""
    journal, shop = MemoryJournal(), Shop()
    later = datetime.now(UTC) + timedelta(seconds=100)
    begun = anyio.current_time()
    run_id = await dagrun.submit(PLAN, tools=shop.tools, journal=journal, not_before=later)
    async with dagrun.Engine() as engine:

        async def until() -> None:
            async for _ in dagrun.follow(run_id, journal=journal):
                pass

        await _run(dagrun.Worker(engine, journal=journal, tools=shop.tools), until=until)
    assert anyio.current_time() - begun >= 99


async def test_a_run_with_another_policy_holds_up_no_run_that_fits() -> None:
    """The same tools are not the same build: of runs of one build, a worker fits all or none."""
    journal, shop = MemoryJournal(), Shop()
    mine, other = dagrun.Policy(max_steps=50), dagrun.Policy(max_steps=60)
    left = await dagrun.submit(PLAN, tools=shop.tools, journal=journal, policy=other)
    fits = await dagrun.submit(PLAN, tools=shop.tools, journal=journal, policy=mine)
    async with dagrun.Engine() as engine:

        async def until() -> None:
            await anyio.sleep(100)

        await _run(dagrun.Worker(engine, journal=journal, tools=shop.tools, policy=mine, at_once=1), until=until)
    standings = await _standings(journal)
    assert [standings[name].standing for name in (left, fits)] == [QueueStatus.QUEUED, QueueStatus.ENDED]


async def test_a_run_that_cannot_be_taken_up_is_set_aside() -> None:
    """With the reason; the worker goes on."""
    journal, shop = MemoryJournal(), Shop()

    class Broken(Exception):
        """What an option of the worker raises."""

    def raises(_: Event) -> None:
        raise Broken

    run_id = await dagrun.submit(PLAN, tools=shop.tools, journal=journal)
    async with dagrun.Engine() as engine:

        async def until() -> None:
            await anyio.sleep(5)

        worker = dagrun.Worker(engine, journal=journal, tools=shop.tools, policy="none")  # type: ignore[arg-type]
        await _run(worker, until=until)
    left = (await _standings(journal))[run_id]
    assert left.standing is QueueStatus.STUCK
    assert "policy" in left.reason


async def test_what_cannot_be_submitted_is_refused_at_once(tmp_path: Path) -> None:
    """With nothing left in the journal."""
    journal, shop = MemoryJournal(), Shop()
    with pytest.raises(PlanRefused):
        await dagrun.submit(Plan(steps=[Step(id="a", tool="fly")]), tools=shop.tools, journal=journal)
    for without_queue in (object(), SQLiteJournal(tmp_path / "runs")):
        with pytest.raises(ContractError, match=r"no runs can be submitted.*use a PostgresJournal"):
            await dagrun.submit(PLAN, tools=shop.tools, journal=without_queue)  # type: ignore[arg-type]
    with pytest.raises(ContractError, match="no worker takes runs from it"):
        dagrun.Worker(dagrun.Engine(), journal=SQLiteJournal(tmp_path / "runs"), tools=shop.tools)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ContractError, match="connection"):
        await dagrun.submit(PLAN, tools=shop.tools, journal=journal, connection=object())
    with pytest.raises(ContractError, match="time zone"):
        await dagrun.submit(PLAN, tools=shop.tools, journal=journal, not_before=datetime(2030, 1, 1))
    with pytest.raises(ContractError, match="priority"):
        await dagrun.submit(PLAN, tools=shop.tools, journal=journal, priorty=1)  # type: ignore[call-arg]
    assert await journal.runs() == []
    with pytest.raises(RunNotFound):
        await _followed("none", journal)
    with pytest.raises(RunNotFound):
        await dagrun.cancel("none", journal=journal)


async def test_a_run_that_no_worker_fits_for_an_hour_is_stuck_with_the_differences() -> None:
    """A rolling deploy that forgot a run; somebody puts it back for a worker that fits. What fits is not held up."""
    journal, old, new = MemoryJournal(), Shop(version="1"), Shop(version="2")
    left = [await dagrun.submit(PLAN, tools=old.tools, journal=journal) for _ in range(2)]
    fits = await dagrun.submit(PLAN, tools=new.tools, journal=journal)
    async with dagrun.Engine() as engine:

        async def nearly_an_hour() -> None:
            await _followed(fits, journal)
            await anyio.sleep(3500)
            standings = await _standings(journal)
            assert [standings[name].standing for name in left] == [QueueStatus.QUEUED] * 2
            assert all("version" in standings[name].reason for name in left)

        async def an_hour() -> None:
            await nearly_an_hour()
            await anyio.sleep(200)
            standings = await _standings(journal)
            assert [standings[name].standing for name in left] == [QueueStatus.STUCK] * 2
            assert all("version" in standings[name].reason for name in left)

        await _run(dagrun.Worker(engine, journal=journal, tools=new.tools), until=an_hour)
        assert await dagrun.requeue(left[0], journal=journal)

        async def end() -> None:
            await _followed(left[0], journal)

        await _run(*(dagrun.Worker(engine, journal=journal, tools=shop.tools) for shop in (new, old)), until=end)
    assert (old.paid, new.paid) == ([7], [7])
    assert (await _standings(journal))[left[1]].standing is QueueStatus.STUCK


async def test_a_worker_looks_seldom_while_another_process_has_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """In an hour of virtual time it looks at its start, and when the run is let go of."""
    journal, shop, looks = MemoryJournal(), Shop(), [0]
    run_id = await dagrun.submit(PLAN, tools=shop.tools, journal=journal)
    claim = MemoryQueue.claim

    async def counted(self: MemoryQueue, wanted: Wanted) -> HandedRunLog | None:
        looks[0] += 1
        return await claim(self, wanted)

    monkeypatch.setattr(MemoryQueue, "claim", counted)
    run_log = await journal.open(run_id)

    async def an_hour() -> None:
        await anyio.sleep(3600)
        assert looks == [1]
        await run_log.aclose()
        await _followed(run_id, journal)

    async with dagrun.Engine() as engine:
        await _run(dagrun.Worker(engine, journal=journal, tools=shop.tools), until=an_hour)
    assert looks[0] <= 4


async def test_a_worker_says_after_how_long_a_run_is_unfit() -> None:
    """A deploy may leave old and new workers side by side for longer than an hour, or for a minute."""
    journal, old, new = MemoryJournal(), Shop(version="1"), Shop(version="2")
    left = await dagrun.submit(PLAN, tools=old.tools, journal=journal)
    seen: list[QueueStatus] = []

    async def look() -> None:
        for seconds in (86_000, 500):
            await anyio.sleep(seconds)
            seen.append((await _standings(journal))[left].standing)

    async with dagrun.Engine() as engine:
        await _run(dagrun.Worker(engine, journal=journal, tools=new.tools, unfit_after=86_400), until=look)
    assert seen == [QueueStatus.QUEUED, QueueStatus.STUCK]


@pytest.mark.parametrize(
    "wrong", [{"max_takeovers": -1}, {"unfit_after": 0}, {"unfit_after": float("nan")}, {"unfit_after": float("inf")}]
)
async def test_limits_of_a_worker_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    async with dagrun.Engine() as engine:
        with pytest.raises(ContractError, match="max_takeovers is at least 0, and unfit_after above 0"):
            dagrun.Worker(engine, journal=MemoryJournal(), tools=[], **wrong)


async def test_a_rolling_deploy_makes_no_run_stuck_that_has_a_worker() -> None:
    """Workers of both builds go on for hours; runs of the old one wait for their busy worker, and all end."""
    journal, old, new = MemoryJournal(), Shop(seconds=1000, version="1"), Shop(version="2")
    ids = [await dagrun.submit(PLAN, tools=old.tools, journal=journal) for _ in range(6)]
    ids += [await dagrun.submit(PLAN, tools=new.tools, journal=journal) for _ in range(6)]
    async with dagrun.Engine() as engine:
        workers = [dagrun.Worker(engine, at_once=1, journal=journal, tools=shop.tools) for shop in (old, new)]

        async def until() -> None:
            with anyio.fail_after(20_000):
                while await journal.queue.runs([QueueStatus.QUEUED, QueueStatus.RUNNING]):
                    await anyio.sleep(100)

        await _run(*workers, until=until)
    assert (old.paid, new.paid) == ([7] * 6, [7] * 6)
    assert {each.standing for each in await journal.queue.runs()} == {QueueStatus.ENDED}
