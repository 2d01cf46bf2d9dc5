"""After a run was suspended or has ended: its record stays whole, and an effect in doubt can still be settled."""

from __future__ import annotations

from typing import Any, Final

import anyio
import pytest

import dagrun
from dagrun import Answer, Event, MemoryJournal, Plan, State, Status, Step, ToolContext
from dagrun.errors import ContractError, JournalFailed, ValueRefused
from dagrun.events import RunSuspended
from replans import nap
from small_tools import toolset

pytestmark = [pytest.mark.anyio, pytest.mark.both_backends]

RUN: Final = "run"
NAPS: Final = Plan(steps=[nap("a", 5.0), nap("b", 1.0, "a")])


@dagrun.tool(effect="effectful")
async def pay(amount: int) -> int:
    """Pay, in a second."""
    await anyio.sleep(1)
    return amount


@dagrun.tool(effect="read")
async def lookup(name: str) -> int:
    """Look in vain."""
    await anyio.sleep(0.1)
    raise LookupError(name)


TOOLS: Final = [pay, lookup]


async def finished(journal: MemoryJournal) -> Status:
    async with dagrun.resume(RUN, journal=journal, tools=toolset()) as running:
        return (await running.result()).status


async def test_a_step_of_a_suspended_run_is_not_cancelled() -> None:
    """An event after the last one would make the whole record a damaged one."""
    journal = MemoryJournal()
    async with dagrun.start(NAPS, tools=toolset(), journal=journal, run_id=RUN) as running:
        running.suspend()
        assert (await running.result()).status is Status.CANCELLED
        assert not running.cancel("b")
        assert not running.cancel()
    assert await finished(journal) is Status.SUCCEEDED


async def test_an_observer_that_sees_the_end_does_not_go_beyond_it() -> None:
    """The callback runs before the end is told to anybody else."""
    journal, runs = MemoryJournal(), list[Any]()

    def cancel(event: Event) -> None:
        if isinstance(event, RunSuspended):
            runs.append(runs[0].cancel("b"))

    async with dagrun.start(NAPS, tools=toolset(), journal=journal, run_id=RUN, on_event=cancel) as running:
        runs.append(running)
        running.suspend()
        await running.result()
    assert runs[1:] == [False]
    assert await finished(journal) is Status.SUCCEEDED


@pytest.mark.parametrize("reason", [None, 5, b"text"])
async def test_a_reason_that_is_no_text_is_refused_before_anything_has_changed(reason: Any) -> None:
    """A number that was taken for a record that is never written would leave a hole, and nobody could go on."""
    journal = MemoryJournal()
    async with dagrun.start(NAPS, tools=toolset(), journal=journal, run_id=RUN) as running:
        with pytest.raises(ContractError, match="a reason is a text"):
            running.cancel("b", reason)
        with pytest.raises(ContractError, match="a reason is a text"):
            running.suspend(reason)
        running.suspend()
    assert await finished(journal) is Status.SUCCEEDED


async def settled(journal: MemoryJournal, answer: Answer) -> dict[str, State]:
    async with dagrun.resume(RUN, journal=journal, tools=TOOLS, attended=True) as running:
        await anyio.sleep(0.1)
        (question,) = running.pending
        await running.answer(question, answer)
        await running.result()
        return running.states


@pytest.mark.parametrize("choice", ["took_effect", "did_not"])
async def test_a_doubt_of_a_run_that_was_cancelled_can_be_settled(choice: Any) -> None:
    """The cancellation is over with the run: else nobody could ever settle what `retry` wants settled first."""
    journal = MemoryJournal()
    plan = Plan(steps=[Step(id="a", tool="pay", args={"amount": 1})])
    async with dagrun.start(plan, tools=TOOLS, journal=journal, run_id=RUN) as running:
        await anyio.sleep(0.1)
        running.cancel()
        assert (await running.result()).status is Status.UNKNOWN
    assert await settled(journal, Answer(choice, value=1)) == {"a": State.SUCCEEDED}
    assert (await dagrun.replay(RUN, journal=journal)).status is Status.SUCCEEDED


async def test_a_doubt_of_a_run_that_a_failure_has_stopped_can_be_settled() -> None:
    """Nor does a step of which it was decided that it stops the run do so once more."""
    journal = MemoryJournal()
    stops = Step(id="b", tool="lookup", args={"name": ""}, on_failure="stop")
    plan = Plan(steps=[Step(id="a", tool="pay", args={"amount": 1}), stops])
    async with dagrun.start(plan, tools=TOOLS, journal=journal, run_id=RUN) as running:
        result = await running.result()
    assert (result.status, running.states) == (Status.UNKNOWN, {"a": State.UNKNOWN, "b": State.FAILED})
    assert await settled(journal, Answer("took_effect", value=1)) == {"a": State.SUCCEEDED, "b": State.FAILED}
    assert (await dagrun.replay(RUN, journal=journal)).status is Status.FAILED


async def test_the_key_of_an_element_is_inherited_with_its_generation() -> None:
    """The key before is that of a call of which somebody knows that it was not applied."""
    journal, keys = MemoryJournal(), list[str]()

    @dagrun.tool(effect="effectful")
    async def put(item: int, ctx: ToolContext) -> int:
        """Lose the first call, and refuse the others."""
        keys.append(f"{item} {ctx.idempotency_key}")
        if len(keys) == 1:
            raise OSError("lost")
        raise dagrun.ToolError("no")

    @dagrun.tool(effect="read")
    async def two() -> list[int]:
        """Give two elements."""
        return [1, 2]

    each = Step(id="a", tool="put", args={"item": "${item}"}, for_each="${two}", max_parallel=1)
    plan = Plan(steps=[Step(id="two", tool="two"), each])
    async with dagrun.start(plan, tools=[put, two], journal=journal, run_id=RUN, attended=True) as running:
        await anyio.sleep(0.1)
        await running.answer(running.pending, Answer("did_not"))
        assert (await running.result()).status is Status.FAILED
    first, second, third = keys
    assert first != third

    again: dict[str, Any] = {"tools": [put, two], "journal": journal}
    async with dagrun.retry(RUN, new_id="second", **again) as running:
        await running.result()
    async with dagrun.retry("second", new_id="third", **again) as running:
        await running.result()
    assert keys[3:] == [third, second, third, second]


async def test_a_run_that_is_refused_leaves_no_name_behind() -> None:
    """There is nothing to go on with, and the next try may be a good one."""
    journal = MemoryJournal()
    with pytest.raises(ValueRefused):
        await dagrun.run(NAPS, tools=toolset(), journal=journal, run_id=RUN, labels={"a": object()})
    assert await journal.runs() == []


async def test_a_record_gets_no_hole() -> None:
    """An error of ours has eaten a number: what comes after it would be damage for whoever reads it."""
    journal = MemoryJournal()
    async with dagrun.start(NAPS, tools=toolset(), journal=journal, run_id=RUN) as running:
        await anyio.sleep(1)
        running._record.next_seq()
        with pytest.raises(JournalFailed, match="a change before AttemptEnded 4 was cut off"):
            await running.result()

    assert [event.seq for event in await journal.records(RUN)] == [1, 2]
    assert await finished(journal) is Status.SUCCEEDED
