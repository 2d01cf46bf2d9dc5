"""A failed step is repaired on one node while its sibling computes on the other: ``make ray-demo``.

It starts two nodes on 127.0.0.1, prints what happens and where, and ends them.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time

import dagrun
from dagrun import Plan, Replace, Step
from dagrun.events import AttemptEnded, Progress, Spliced
from on_ray import tools
from on_ray.nodes import HOST, two_nodes

PLAN = Plan(
    steps=[
        Step(id="orders", tool="fetch", args={"source": "old"}, executor="ray"),
        Step(id="model", tool="simulate", args={"parts": 6}, executor="ray"),
        Step(id="total", tool="add_up", args={"values": "${orders}", "rest": "${model}"}, executor="ray"),
    ]
)


class UseTheNewSource:
    """A planner: a rule here, a model in real life. It thinks for two seconds."""

    async def revise(self, brief: dagrun.Brief) -> dagrun.Patch:
        """Fetch from the new source."""
        await asyncio.sleep(2)
        failed = brief.triggers[0].step
        new = Step(id=f"{failed}-new", tool="fetch", args={"source": "new"}, executor="ray")
        return dagrun.Patch(edits=[Replace(id=failed, step=new)], reason="the old source is gone")


async def play(address: str) -> dagrun.RunResult:
    """Run the plan on two workers."""
    used = [tools.fetch, tools.simulate, tools.add_up]
    async with (
        dagrun.RayExecutor(address, node_address=HOST, workers=2) as cluster,
        dagrun.start(PLAN, tools=used, planner=UseTheNewSource(), executors={"ray": cluster}) as run,
    ):
        await show(run)
        return await run.result()


async def show(run: dagrun.Run) -> None:
    """Print the events of a run until it ends."""
    begin = time.perf_counter()
    async for event in run.events():
        if text := line_of(event):
            print(f"{time.perf_counter() - begin:5.1f} s  {text}", flush=True)


def line_of(event: dagrun.Event) -> str:
    """Tell an event in a line; an empty text if it is left out."""
    match event:
        case Progress():
            return f"{event.step}: {event.message}"
        case AttemptEnded() if event.outcome.failure is not None:
            return f"{event.step} has failed: {event.outcome.failure.message}"
        case AttemptEnded():
            return f"{event.step} has succeeded"
        case Spliced():
            return f"spliced into the running plan: {event.reason}"
    return ""


def main() -> int:
    """Start two nodes, run, and end them."""
    logging.getLogger("dagrun").setLevel(logging.CRITICAL)  # the failure is on purpose, and is told below
    print("Two nodes of Ray start on 127.0.0.1; this takes a quarter of a minute.", flush=True)
    with two_nodes() as nodes:
        result = asyncio.run(play(nodes.address))
    print(f"{result.status}: {result.output}")
    return 0 if result.status == "succeeded" else 1


if __name__ == "__main__":
    sys.exit(main())
