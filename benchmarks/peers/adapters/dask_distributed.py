"""Dask distributed in this process: coroutine steps submitted with the futures of what they wait for."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from distributed import Client, LocalCluster, wait

from peers.interface import Run, Shape, Step, Values

IS_BLOCKING = False
THREADS: Final = 64  # an async task holds one of its worker's thread slots, so there have to be enough of them
_clients: list[Any] = []


@asynccontextmanager
async def session() -> AsyncIterator[None]:
    """Start a scheduler and one worker in this process, without a dashboard."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    options = {"n_workers": 1, "threads_per_worker": THREADS, "processes": False, "dashboard_address": None}
    async with (
        LocalCluster(asynchronous=True, **options) as cluster,
        Client(cluster, asynchronous=True) as client,
    ):
        _clients.append(client)
        yield


def prepare(shape: Shape, step: Step) -> Run:
    """Nothing has to be built."""
    call = _caller(step)

    async def run() -> Values:
        client = _clients[-1]
        futures: dict[str, Any] = {}
        for id_, before in shape.items():
            arguments = [futures[one] for one in before]
            futures[id_] = client.submit(call, id_, before, *arguments, pure=False)
        await wait(list(futures.values()))  # `gather` alone would raise at the first failure, and leave the rest
        finished = {id_: future for id_, future in futures.items() if future.status == "finished"}
        values = await client.gather(list(finished.values()))
        return dict(zip(finished, values, strict=True))

    return run


def _caller(step: Step) -> Callable[..., Any]:
    async def call(id_: str, before: tuple[str, ...], *values: Any) -> Any:
        return await step(id_, dict(zip(before, values, strict=True)))

    return call
