"""LangGraph, functional API: the body of an entrypoint starts a task when the last that it waits for is done.

The order is the user's own code here: LangGraph runs the tasks, and does not know of the graph.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import nullcontext
from typing import Any

from langgraph.func import entrypoint, task

from peers.interface import Run, Shape, Step, Values
from shapes import successors

IS_BLOCKING = False

session = nullcontext


def prepare(shape: Shape, step: Step) -> Run:
    """Make the task, and an entrypoint that runs the whole shape."""
    after = successors(dict(shape))

    async def call(id_: str, values: dict[str, Any]) -> Any:
        return await step(id_, values)

    one_step = task(call)

    async def body(_: Any) -> Values:
        missing = Counter({id_: len(before) for id_, before in shape.items()})
        done: dict[str, Any] = {}
        running = {one_step(id_, {}): id_ for id_, before in shape.items() if not before}
        while running:
            ended, _still = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for future in ended:
                id_ = running.pop(future)
                done[id_] = future.result()
                missing.subtract(after[id_])
                for other in (one for one in after[id_] if not missing[one]):
                    running[one_step(other, {one: done[one] for one in shape[other]})] = other
        return done

    compiled = entrypoint()(body)

    async def run() -> Values:
        values: Values = await compiled.ainvoke({}, {"recursion_limit": 100_000})
        return values

    return run
