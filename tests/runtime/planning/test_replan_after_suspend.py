"""A planner is asked on record, or not at all: a run that was suspended begins no call of it."""

from __future__ import annotations

import random

import anyio
import anyio.lowlevel
import pytest

import dagrun
from dagrun import Event, MemoryJournal, Plan, Policy, Step
from dagrun.events import PlannerAsked
from dagrun.testing import run_virtual
from seeds import NIGHT


@dagrun.tool(effect="read")
async def fails(seconds: float) -> str:
    """Fail."""
    await anyio.sleep(seconds)
    raise dagrun.ToolError("no")


async def suspend_beside_a_failure() -> tuple[int, int]:
    """Suspend a run in the instant in which a step fails; give the calls of the planner, and those on record."""
    called, on_record = list[str](), list[Event]()

    class Planner:
        async def revise(self, brief: dagrun.Brief) -> None:
            called.append("revise")
            await anyio.sleep(5)

    def see(event: Event) -> None:
        if isinstance(event, PlannerAsked):
            on_record.append(event)

    steps = [Step(id=f"s{n}", tool="fails", args={"seconds": s}) for n, s in enumerate((0.1, 0.25, 0.5, 0.5))]
    async with dagrun.start(
        Plan(steps=steps),
        tools=[fails],
        planner=Planner(),
        journal=MemoryJournal(),
        on_event=see,
        policy=Policy(max_replans=6),
    ) as run:
        await anyio.sleep(0.5)
        for _ in range(random.randrange(6)):
            await anyio.lowlevel.checkpoint()
        run.suspend()
        await run.result()
    return len(called), len(on_record)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_no_call_of_a_planner_begins_after_a_run_was_suspended(backend: str) -> None:
    """The order of tasks in an instant is random on trio, so it is tried often."""
    for _ in range(600 if NIGHT else 20):
        called, on_record = run_virtual(suspend_beside_a_failure, backend=backend)
        assert called == on_record
