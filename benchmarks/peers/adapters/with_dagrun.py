"""dagrun: a plan whose steps refer to what others gave, checked, and run with a subscriber to all events."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import dagrun
from dagrun import Event
from peers.interface import Run, Shape, Step, Values

IS_BLOCKING = False

session = nullcontext


def prepare(shape: Shape, step: Step) -> Run:
    """Make the plan and check it."""

    @dagrun.tool(effect="pure")
    async def call(id: str, values: dict[str, Any]) -> Any:
        """Run one step."""
        return await step(id, values)

    steps = [
        dagrun.Step(id=id_, tool=call.name, args={"id": id_, "values": {one: f"${{{one}}}" for one in before}})
        for id_, before in shape.items()
    ]
    plan = dagrun.check(dagrun.Plan(steps=steps), [call])

    async def run() -> Values:
        log: list[Event] = []
        async with dagrun.start(plan, on_event=log.append) as running:
            result = await running.result()
        return {id_: one.output for id_, one in result.steps.items() if one.state == "succeeded"}

    return run
