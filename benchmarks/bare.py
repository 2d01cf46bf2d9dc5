"""Uneven steps on bare tasks: what the loop and its timers make of a graph when there is no engine at all."""

from __future__ import annotations

import anyio

from shapes import successors
from uneven import Uneven


async def run_bare(graph: Uneven) -> tuple[float, dict[str, float]]:
    """Run *graph*, each step in a task that starts when the last one it waits for has ended.

    Returns:
        The makespan, and how long each step took, both in seconds.
    """
    after = successors(graph.needs)
    missing = {id_: len(before) for id_, before in graph.needs.items()}
    took: dict[str, float] = {}

    async def run_one(id_: str) -> None:
        began = anyio.current_time()
        await anyio.sleep(graph.seconds[id_])
        took[id_] = anyio.current_time() - began
        for waiting in after[id_]:
            missing[waiting] -= 1
            if not missing[waiting]:
                tasks.start_soon(run_one, waiting)

    start = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        for id_ in [id_ for id_, count in missing.items() if not count]:
            tasks.start_soon(run_one, id_)
    return anyio.current_time() - start, took
