"""Prefect: a flow that submits a task per step with the futures of what it waits for, and a server of its own.

The server is another process, whose CPU is not counted. Tasks are blocking ones on Prefect's pool of threads, and so
is the flow, beside the loop.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio

_HOME: Final = TemporaryDirectory(prefix="peers-prefect-", ignore_cleanup_errors=True)
os.environ |= {  # before it is imported
    "PREFECT_HOME": _HOME.name,
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_TO_API_ENABLED": "false",
    "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "true",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
}

from prefect import flow, task  # noqa: E402
from prefect.task_runners import ThreadPoolTaskRunner  # noqa: E402

from peers.interface import Run, Shape, Step, Values  # noqa: E402

IS_BLOCKING = True
THREADS: Final = 64


@asynccontextmanager
async def session() -> AsyncIterator[None]:
    """Start the server by running an empty flow."""
    nothing = flow(_nothing, name="nothing")
    await anyio.to_thread.run_sync(nothing)
    yield
    _HOME.cleanup()


def _nothing() -> None:
    pass


def prepare(shape: Shape, step: Step) -> Run:
    """Make the task and the flow."""

    def call(id_: str, before: tuple[str, ...], values: list[Any]) -> Any:
        return step(id_, dict(zip(before, values, strict=True)))

    one_step = task(call, name="step")

    def body() -> dict[str, Any]:
        futures: dict[str, Any] = {}
        for id_, before in shape.items():
            futures[id_] = one_step.submit(id_, before, [futures[one] for one in before])
        for future in futures.values():
            future.wait()
        return {
            id_: future.result(raise_on_failure=False) for id_, future in futures.items() if future.state.is_completed()
        }

    whole = flow(body, name="graph", task_runner=ThreadPoolTaskRunner(max_workers=THREADS), validate_parameters=False)

    async def run() -> Values:
        values: Values = await anyio.to_thread.run_sync(whole)
        return values

    return run
