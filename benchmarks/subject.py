"""What is measured: complete runs of dagrun, with a subscriber that gets, and keeps, every event."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import anyio
import anyio.lowlevel

import dagrun
from dagrun.graph.checked import CheckedPlan
from dagrun.model.event import Event
from shapes import Dependencies


@dagrun.tool(effect="pure")
async def noop() -> None:
    """End at once."""


@dagrun.tool(effect="pure")
async def suspend() -> None:
    """Let the loop come by once."""
    await anyio.lowlevel.checkpoint()


@dagrun.tool(effect="pure")
async def wait() -> None:
    """Wait for a timer."""
    await anyio.sleep(0.003)


# The work of a step, by the name of its case.
STEPS: Final[Mapping[str, dagrun.Tool[..., Any]]] = {"no-op": noop, "suspending": suspend, "burst": wait}


async def bare_noop(id_: str, values: Mapping[str, object]) -> None:
    """End at once."""


async def bare_suspend(id_: str, values: Mapping[str, object]) -> None:
    """Let the loop come by once."""
    await anyio.lowlevel.checkpoint()


async def bare_wait(id_: str, values: Mapping[str, object]) -> None:
    """Wait for a timer."""
    await anyio.sleep(0.003)


# The same work for the baseline, which hands over values by itself.
BARE: Final[Mapping[str, Callable[[str, dict[str, object]], Awaitable[None]]]] = {
    "no-op": bare_noop,
    "suspending": bare_suspend,
    "burst": bare_wait,
}


def checked_plan(shape: Dependencies, tool: dagrun.Tool[..., Any]) -> CheckedPlan:
    """Make a plan of *shape* whose steps all call *tool*."""
    steps = [dagrun.Step(id=id_, tool=tool.name, depends_on=list(before)) for id_, before in shape.items()]
    return dagrun.check(dagrun.Plan(steps=steps), [tool])


async def run(plan: CheckedPlan) -> None:
    """Run *plan*, and make sure that nothing was left out: a start and an end for each step, and two for the run."""
    log: list[Event] = []
    async with dagrun.start(plan, on_event=log.append) as running:
        result = await running.result()
    if result.status != "succeeded" or len(log) != 2 * len(plan.steps) + 2:
        raise AssertionError(f"{result.status} ({result.reason}) after {len(log)} events of {len(plan.steps)} steps")
