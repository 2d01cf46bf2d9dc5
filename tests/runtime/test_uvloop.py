"""With uvloop, if it is installed: it has timers, a clock and handles of its own, and all must end as without it."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest

import dagrun
from dagrun import Plan, RetryRule, State, Step
from dagrun.kernel.model.outcome import ErrorKind
from dagrun.kernel.model.tool import make_tool
from dagrun.kernel.runtime.backend import _is_monotonic_of_uvloop, clock, loop_options
from misbehaving import leaks_a_scope, leaks_a_task_group

uvloop = pytest.importorskip("uvloop")

ONCE = RetryRule(max_attempts=1)


def run(*steps: Step, tools: tuple[Callable[..., Any], ...], **options: Any) -> dagrun.RunResult:
    """Run *steps* on a loop of uvloop."""
    made = [make_tool(function, effect="read") for function in tools]
    return dagrun.run_sync(Plan(steps=steps), tools=made, **options)


async def which_loop() -> str:
    """Tell whose loop this is."""
    return type(asyncio.get_running_loop()).__module__


async def nap(seconds: float) -> float:
    """Sleep."""
    await anyio.sleep(seconds)
    return seconds


def block(seconds: float) -> Callable[[], Any]:
    """Make what keeps the loop busy for so long."""

    async def blocks() -> None:
        time.sleep(seconds)

    return blocks


def test_run_sync_takes_it_if_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is never required, and trio has no use for it."""
    assert run(Step(id="a", tool="which_loop"), tools=(which_loop,)).output == "uvloop"
    assert (
        dagrun.run_sync(
            Plan(steps=[Step(id="a", tool="nap", args={"seconds": 0})]),
            tools=[make_tool(nap, effect="read")],
            backend="trio",
        ).status
        == "succeeded"
    )

    monkeypatch.setitem(sys.modules, "uvloop", None)  # as if it were not installed
    assert loop_options() == {}
    assert run(Step(id="a", tool="which_loop"), tools=(which_loop,)).output == "asyncio.unix_events"


def test_the_clock_goes_on_while_a_tool_blocks_the_loop() -> None:
    """The loop's own clock stands still meanwhile: a step that came back too late would not be late."""
    step = Step(id="blocks", tool="blocks", timeout=0.05, retry=ONCE)

    result = run(step, tools=(block(0.1),))

    assert result.steps["blocks"].state is State.TIMED_OUT


def test_its_timers_never_ring_before_our_clock_says_so() -> None:
    """They count in whole milliseconds: one that rings too early would make its sleeper spin until it is due."""

    async def early() -> Iterator[float]:
        now, loop = clock(), asyncio.get_running_loop()
        late: list[float] = []
        for number in range(40):
            due, rung = now() + 0.001 + number / 7_000, asyncio.Event()
            with anyio.CancelScope(deadline=due):
                await rung.wait()
            late.append(now() - due)
        assert abs(loop.time() - now()) < 60
        return iter(late)

    assert min(anyio.run(early, backend_options=loop_options())) >= 0


def test_on_macos_the_clock_is_the_one_of_the_loop() -> None:
    """There it goes on while the machine sleeps: by ours, each deadline would have passed for the loop already."""
    loop = uvloop.new_event_loop()
    try:
        assert not _is_monotonic_of_uvloop(loop, "darwin")
        assert _is_monotonic_of_uvloop(loop, "linux")
    finally:
        loop.close()


@pytest.mark.parametrize("function", [leaks_a_scope, leaks_a_task_group])
def test_what_a_step_leaves_open_does_not_reach_the_next(function: Callable[..., Any]) -> None:
    """It has failed, and the worker that it ran on is not used again."""
    steps = [Step(id="open", tool=function.__name__, retry=ONCE)]
    steps += [Step(id=f"nap{i}", tool="nap", args={"seconds": 0.01}) for i in range(3)]

    result = run(*steps, tools=(function, nap))

    assert {id_: str(step.state) for id_, step in result.steps.items()} == {
        "open": "failed", "nap0": "succeeded", "nap1": "succeeded", "nap2": "succeeded"
    }  # fmt: skip


def test_a_step_that_is_too_slow_is_stopped_and_the_rest_goes_on() -> None:
    """Timers and cancellation are the loop's."""
    slow = Step(id="slow", tool="nap", args={"seconds": 60}, timeout=0.02, retry=ONCE, on_failure="default", default=0)
    after = Step(id="after", tool="nap", args={"seconds": 0.01}, depends_on=["slow"])

    result = run(slow, after, tools=(nap,))

    outcome = result.steps["slow"].attempts[0].outcome
    assert outcome is not None
    assert outcome.failure is not None
    assert outcome.failure.kind is ErrorKind.TIMEOUT
    assert result.steps["after"].state is State.SUCCEEDED


def test_threads_and_a_cancellation_of_its_own_end_as_they_do_without_it() -> None:
    """A task of uvloop's loop is asyncio's; what wakes the loop from a thread is not."""

    def in_a_thread(seconds: float) -> float:
        time.sleep(seconds)
        return seconds

    async def cancels_itself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await anyio.sleep(1)

    steps = [Step(id="thread", tool="in_a_thread", args={"seconds": 0.02})]
    steps.append(Step(id="cancels", tool="cancels_itself", retry=ONCE))

    result = run(*steps, tools=(in_a_thread, cancels_itself))

    assert result.steps["thread"].output == 0.02
    assert result.steps["cancels"].state is State.FAILED
