"""What it takes to end a run early of which hardly anything has started; see `full`."""

from __future__ import annotations

import time
from dataclasses import dataclass

import anyio

import dagrun
from shapes import SHAPES
from ticker import Ticker


@dataclass(frozen=True, slots=True)
class Stopped:
    """A chain that was cancelled while its first step was at work.

    Attributes:
        steps: How many.
        cpu: Until the run has ended; microseconds per step.
        lag: The longest that the loop stood still meanwhile, in milliseconds.
    """

    steps: int
    cpu: float
    lag: float


@dagrun.tool(effect="pure")
async def wait() -> None:
    """Wait for ever."""
    await anyio.sleep_forever()


def measure_stopped(count: int) -> Stopped:
    """Measure how a chain is cancelled, in this process."""
    anyio.run(_stop, _waiting(2))  # loads what is loaded on first use
    cpu, lag = anyio.run(_stop, _waiting(count))
    return Stopped(count, cpu * 1e6 / count, lag)


def _waiting(count: int) -> dagrun.Plan:
    graph = SHAPES["chain"](count)
    return dagrun.Plan(steps=[dagrun.Step(id=id_, tool=wait.name, depends_on=needs) for id_, needs in graph.items()])


async def _stop(plan: dagrun.Plan) -> tuple[float, float]:
    """CPU seconds to cancel *plan*, and the lag in milliseconds."""
    ticker = Ticker()
    async with anyio.create_task_group() as tasks:
        async with dagrun.start(plan, tools=[wait]) as running:
            tasks.start_soon(ticker.tick)
            await anyio.sleep(0.01)
            ticker.take()
            began = time.process_time()
            running.cancel()
            result = await running.result()
            cpu = time.process_time() - began
            if result.status != "cancelled" or len(result.steps) != len(plan.steps):
                raise AssertionError(f"{result.status} ({result.reason}) after {len(result.steps)} steps")
            await anyio.sleep(0.002)
            lag = ticker.take()
        tasks.cancel_scope.cancel()
    return cpu, lag
