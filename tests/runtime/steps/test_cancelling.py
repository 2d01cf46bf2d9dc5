"""Stopping many steps at once takes short cuts that nobody can see, by what is cancelled or what is said about it."""

from __future__ import annotations

import tracemalloc

import anyio
import pytest
from anyio.lowlevel import checkpoint

import dagrun
from dagrun import Plan, Policy, Secrets, State, Status, Step
from dagrun.kernel.model.redaction.redactor import Redactor
from small_tools import near, run

pytestmark = [pytest.mark.anyio, pytest.mark.both_backends]


@dagrun.tool(effect="pure")
async def waits() -> None:
    """Wait until cancelled."""
    await anyio.sleep_forever()


@dagrun.tool(effect="pure")
async def will_not_stop() -> None:
    """Go on for long, whatever anybody wants."""
    with anyio.CancelScope(shield=True):
        await anyio.sleep(100)


def _many(tool: str, count: int = 3) -> Plan:
    return Plan(steps=[Step(id=f"s{n}", tool=tool) for n in range(count)])


# Cancelling -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["itself", "a task of its own"])
async def test_a_step_may_cancel_its_own_run(way: str) -> None:
    """It is stopped like the others, and the code around the run is not."""
    handle: list[dagrun.Run] = []
    after: list[str] = []

    @dagrun.tool(effect="pure")
    async def ends_all() -> str:
        """Cancel the run."""
        await anyio.sleep(1)
        if way == "itself":
            handle[0].cancel(reason="enough")
        else:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_end, handle[0])
        after.append("went on")
        await checkpoint()
        after.append("too far")
        return "late"

    plan = Plan(steps=[Step(id="ends", tool="ends_all"), *_many("waits").steps])
    async with dagrun.start(plan, tools=[ends_all, waits]) as opened:
        handle.append(opened)
        result = await opened.result()
    await checkpoint()

    assert (result.status, result.reason) == (Status.CANCELLED, "enough")
    assert {step.state for step in result.steps.values()} == {State.CANCELLED}
    assert after == (["went on"] if way == "itself" else [])


async def _end(handle: dagrun.Run) -> None:
    handle.cancel(reason="enough")
    await anyio.sleep_forever()


async def test_a_step_that_cancels_its_run_and_returns_leaves_its_worker_unharmed() -> None:
    """It never waits again: nobody must find a cancellation on that task later."""
    handle: list[dagrun.Run] = []

    @dagrun.tool(effect="pure")
    async def ends_all() -> str:
        """Cancel the run."""
        await anyio.sleep(1)
        handle[0].cancel(reason="enough")
        return "late"

    async with dagrun.start(Plan(steps=[Step(id="ends", tool="ends_all")]), tools=[ends_all]) as opened:
        handle.append(opened)
        result = await opened.result()
    assert result.steps["ends"].state is State.CANCELLED
    assert result.steps["ends"].reason == "enough"


# The grace period -----------------------------------------------------------------------------------------------------


async def test_each_step_that_would_not_stop_is_given_up_when_its_own_time_is_over() -> None:
    """One was told by itself before the others: its grace period began then."""
    async with dagrun.start(_many("will_not_stop"), tools=[will_not_stop], policy=Policy(grace=5.0)) as handle:
        await anyio.sleep(1)
        handle.cancel("s1")
        await anyio.sleep(2)
        handle.cancel()
        result = await handle.result()
        assert anyio.current_time() == near(8)

    assert {step.state for step in result.steps.values()} == {State.ABANDONED}
    assert {id_: step.attempts[-1].ended for id_, step in result.steps.items()} == {
        "s0": near(8),
        "s1": near(6),
        "s2": near(8),
    }


# Texts ----------------------------------------------------------------------------------------------------------------


def test_a_text_that_was_found_clean_is_clean_for_that_redactor_only() -> None:
    """What it knows of texts that come again is its own: another run has other secrets."""
    text = "the password of the door is open-sesame-7"
    plain, strict = Redactor(), Redactor(Secrets({"door": "open-sesame-7"}))
    for _ in range(3):
        assert plain.text(text) == text
        assert strict.text(text) == "the password of the door is [secret:door]"


def test_the_host_has_the_last_word_on_a_text_each_time() -> None:
    """Its redact function may count, or know more by then."""
    words = iter(["first", "second"])
    redactor = Redactor(hook=lambda text: next(words))
    assert [redactor.text("the same text"), redactor.text("the same text")] == ["first", "second"]


def test_a_redactor_does_not_keep_what_it_has_seen() -> None:
    """A run may say something else a million times."""
    redactor = Redactor()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for n in range(5_000):
            redactor.text(f"{n} " * 40)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 100_000


async def test_a_cancelled_run_is_in_doubt_about_what_may_have_happened_and_names_only_that() -> None:
    """How it is ended says less than a doubt, and more than all the steps that were cancelled with it."""

    @dagrun.tool(effect="effectful")
    async def pays() -> None:
        """Pay, slowly."""
        await anyio.sleep(50)

    @dagrun.tool(effect="pure")
    async def fails() -> None:
        """Fail."""
        raise ValueError("no")

    plan = Plan(steps=[Step(id="pay", tool="pays"), Step(id="bad", tool="fails"), *_many("waits").steps])
    async with dagrun.start(plan, tools=[pays, fails, waits]) as handle:
        await anyio.sleep(1)
        handle.cancel(reason="enough")
        result = await handle.result()
    assert (result.status, result.reason) == (Status.UNKNOWN, "it is not known whether these took effect: pay")


async def test_a_run_that_only_failed_still_says_all_that_failed() -> None:
    @dagrun.tool(effect="pure")
    async def fails() -> None:
        """Fail."""
        raise ValueError("no")

    result = await run(Step(id="a", tool="fails"), Step(id="b", tool="fails"), tools=(fails,))
    assert result.status is Status.FAILED
    assert "a failed" in result.reason
    assert "b failed" in result.reason
