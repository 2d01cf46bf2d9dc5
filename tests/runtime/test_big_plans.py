"""Plans of many steps: read and checked beside the loop."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import anyio
import pytest

import dagrun
from dagrun import PlanRefused
from dagrun.api.checking import steps_to_check
from dagrun.kernel.runtime.backend import MANY_STEPS, off_loop

BIG = MANY_STEPS + 500


@pytest.fixture
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """A real loop: on a virtual clock nobody can wait for a thread."""
    return "asyncio"


@dagrun.tool(effect="pure")
async def number() -> int:
    """Give a number."""
    return 7


def wide(count: int) -> dagrun.Plan:
    """One source, then all but one at once, then a sink that waits for them."""
    middle = [dagrun.Step(id=f"m{i}", tool="number", depends_on=["first"]) for i in range(count - 2)]
    last = dagrun.Step(id="last", tool="number", depends_on=[step.id for step in middle])
    return dagrun.Plan(steps=[dagrun.Step(id="first", tool="number"), *middle, last])


class Ticker:
    """Counts the turns that another task gets."""

    def __init__(self) -> None:
        self.turns = 0

    async def tick(self) -> None:
        while True:
            self.turns += 1
            await anyio.sleep(0)


# Beside the loop --------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.real_time
async def test_others_get_their_turn_while_a_big_plan_is_checked() -> None:
    """A plan of 10,000 steps takes some 70 ms to check: nothing else in the loop may stand still meanwhile."""
    ticker = Ticker()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ticker.tick)
        await anyio.sleep(0)
        before = ticker.turns
        async with dagrun.start(wide(BIG), tools=[number]) as run:
            began = ticker.turns - before
            result = await run.result()
        tasks.cancel_scope.cancel()

    assert began > 20  # the check alone takes some 20 ms; on the loop they would have been two or three
    assert result.output == 7
    assert len(result.steps) == BIG


@pytest.mark.anyio
@pytest.mark.real_time
async def test_a_small_plan_is_checked_at_once() -> None:
    """A thread costs a small plan more than its check: nobody else gets a turn before it has begun."""
    seen: list[int] = []

    async with dagrun.start(wide(20), tools=[number]) as run:
        seen.append(threading.active_count())
        await run.result()

    assert steps_to_check(wide(20)) < MANY_STEPS


@pytest.mark.anyio
@pytest.mark.real_time
async def test_a_big_plan_that_is_refused_says_what_a_small_one_would() -> None:
    """What is raised in the thread is what the caller gets."""
    steps = [*wide(BIG).steps, dagrun.Step(id="more", tool="number", depends_on=["nobody"])]

    with pytest.raises(PlanRefused) as caught:
        await dagrun.run(dagrun.Plan(steps=steps), tools=[number])

    assert [problem.code for problem in caught.value.problems if not problem.is_advice] == ["DR104"]


@pytest.mark.anyio
@pytest.mark.real_time
async def test_who_is_cancelled_does_not_wait_for_the_check() -> None:
    """The check goes on in its thread, and nobody uses what comes of it."""
    may_end, has_ended = threading.Event(), threading.Event()

    def check_for_long() -> None:
        may_end.wait(30)
        has_ended.set()

    with anyio.move_on_after(0.01) as scope:
        await off_loop(BIG, check_for_long)
    ended_too_early = has_ended.is_set()
    may_end.set()

    assert scope.cancelled_caught
    assert not ended_too_early


@pytest.mark.anyio
@pytest.mark.real_time
@pytest.mark.rigs
async def test_a_big_run_goes_on_from_its_journal() -> None:
    """Its record is folded beside the loop as well, into the state that it had."""
    journal = dagrun.MemoryJournal()
    async with dagrun.start(wide(BIG), tools=[number], journal=journal, run_id="big") as run:
        run.suspend()
        first = await run.result()

    async with dagrun.resume("big", journal=journal, tools=[number]) as run:
        result = await run.result()

    assert first.status == "cancelled"
    assert (result.status, result.output) == ("succeeded", 7)


def test_what_is_big_is_known_without_looking_at_all_of_it(tmp_path: Path) -> None:
    """Steps, dependencies and bytes count; what is checked already needs no thread."""
    edges = [dagrun.Step(id=f"s{i}", tool="number", depends_on=["a"] * 1_000) for i in range(200)]
    text = json.dumps({"steps": [{"id": f"s{i}", "tool": "number"} for i in range(20_000)]})
    file = tmp_path / "plan.json"
    file.write_text(text)

    assert steps_to_check(wide(BIG)) == BIG
    assert steps_to_check(dagrun.Plan(steps=edges)) >= MANY_STEPS
    assert steps_to_check(text) >= MANY_STEPS
    assert steps_to_check(text.encode()) >= MANY_STEPS
    assert steps_to_check(file) >= MANY_STEPS
    assert steps_to_check(tmp_path / "nothing") == 0
    assert steps_to_check(dagrun.check(wide(30), [number])) == 0
    assert steps_to_check(None) == 0


# What a big plan ends with ----------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.real_time
async def test_the_answer_of_a_big_run_follows_its_revisions() -> None:
    """A splice makes other steps its sinks."""
    middle = [dagrun.Step(id=f"m{i}", tool="number") for i in range(BIG)]
    async with dagrun.start(dagrun.Plan(steps=middle), tools=[number]) as run:
        await run.splice(dagrun.Patch(edits=[dagrun.Add(step=dagrun.Step(id="more", tool="number"))]))
        result = await run.result()

    assert len(result.output) == BIG + 1
    assert result.output["more"] == 7


@pytest.mark.anyio
@pytest.mark.real_time
async def test_one_failure_among_many_steps_is_found() -> None:
    """A run looks for what has not succeeded only if there is any; and then it must not be missed."""

    @dagrun.tool(effect="pure")
    async def fail() -> int:
        """Fail."""
        raise ValueError("no")

    bad = dagrun.Step(id="bad", tool="fail", retry=dagrun.RetryRule(max_attempts=1))
    plan = dagrun.Plan(steps=[*wide(BIG).steps, bad])

    result = await dagrun.run(plan, tools=[number, fail])

    assert result.status == "failed"
    assert "bad" in result.reason
