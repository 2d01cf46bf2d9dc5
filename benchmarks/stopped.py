"""What it takes to end a run of which hardly anything has started: cancelled, or its first step fails; see `full`."""

from __future__ import annotations

import time
from dataclasses import dataclass

import anyio

import dagrun
from shapes import SHAPES
from ticker import Ticker


@dataclass(frozen=True, slots=True)
class Stopped:
    """A run that ended while its first step was at work, for which all others wait.

    Attributes:
        shape: In `shapes.SHAPES`.
        how: ``cancelled``, or ``failed``: the first step did.
        steps: How many.
        cpu: Until the run has ended; microseconds per step.
        lag: The longest that the loop stood still meanwhile, in milliseconds.
    """

    shape: str
    how: str
    steps: int
    cpu: float
    lag: float


def measure_stopped(shape: str, how: str, count: int) -> Stopped:
    """Measure how a run of one shape ends, in this process."""
    anyio.run(_stop, _waiting(shape, 3), how)  # loads what is loaded on first use
    cpu, lag = anyio.run(_stop, _waiting(shape, count), how)
    return Stopped(shape, how, count, cpu * 1e6 / count, lag)


def _waiting(shape: str, count: int) -> dagrun.Plan:
    graph = SHAPES[shape](count)
    return dagrun.Plan(steps=[dagrun.Step(id=id_, tool="wait", depends_on=needs) for id_, needs in graph.items()])


async def _stop(plan: dagrun.Plan, how: str) -> tuple[float, float]:
    """CPU seconds until *plan* has ended, and the lag in milliseconds."""
    ticker, word = Ticker(), anyio.Event()

    @dagrun.tool(effect="pure")
    async def wait() -> None:
        """Wait for the word, and fail."""
        await word.wait()
        raise ValueError("told to")

    async with anyio.create_task_group() as tasks:
        async with dagrun.start(plan, tools=[wait]) as running:
            tasks.start_soon(ticker.tick)
            await anyio.sleep(0.01)
            ticker.take()
            began = time.process_time()
            if how == "cancelled":
                running.cancel()
            word.set()
            result = await running.result()
            cpu = time.process_time() - began
            if result.status != how or len(result.steps) != len(plan.steps):
                raise AssertionError(f"{result.status} ({result.reason}) after {len(result.steps)} steps")
            await anyio.sleep(0.002)
            lag = ticker.take()
        tasks.cancel_scope.cancel()
    return cpu, lag
