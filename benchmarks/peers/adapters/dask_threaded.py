"""Dask's threaded scheduler: plain functions on a pool of threads, one for each step that may run at once.

The order of its own choice serves memory, not latency. `get` blocks, so it runs on a thread beside the loop, as in a
server; that one hop is part of the run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
from dask._task_spec import Task, TaskRef
from dask.threaded import get

from peers.interface import Run, Shape, Step, Values

IS_BLOCKING = True
MAX_THREADS: Final = 64  # more than any of the uneven graphs can use at once
_pools: list[ThreadPoolExecutor] = []


@asynccontextmanager
async def session() -> AsyncIterator[None]:
    """Keep one pool of threads for all runs."""
    with ThreadPoolExecutor(MAX_THREADS) as pool:
        _pools.append(pool)
        yield


def prepare(shape: Shape, step: Step) -> Run:
    """Write the graph as Dask's tasks."""
    call = _caller(step)
    graph = {id_: Task(id_, call, id_, before, *map(TaskRef, before)) for id_, before in shape.items()}

    async def run() -> Values:
        pool = _pools[-1]
        values = await anyio.to_thread.run_sync(lambda: get(graph, list(shape), pool=pool, num_workers=MAX_THREADS))
        return dict(zip(shape, values, strict=True))

    return run


def _caller(step: Step) -> Callable[..., Any]:
    def call(id_: str, before: tuple[str, ...], *values: Any) -> Any:
        return step(id_, dict(zip(before, values, strict=True)))

    return call
