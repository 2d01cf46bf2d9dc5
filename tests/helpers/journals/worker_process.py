"""A worker process for rigs: it works until SIGTERM, then exits with 0.

    python worker_process.py DSN SCHEMA BOOK [DURABILITY [SLOWNESS [unfenced]]]

SLOWNESS makes the steps take as many times longer. ``unfenced`` is a mutant: a worker that has lost its runs goes on as
if they were its own.

Each payment is a line in the file BOOK, written in one call, as a bank would have it: also of a process that is killed.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from functools import partial
from typing import Any

import anyio

import dagrun
from dagrun import PostgresJournal
from dagrun.errors import JournalError, OwnerLost
from dagrun.journal.postgres.writer import PostgresWriter

LEASE = 1.0  # seconds


def tools(book: str, slowness: float = 1.0) -> list[Any]:
    """Return the tools of the runs."""

    @dagrun.tool(effect="read")
    async def look() -> int:
        await anyio.sleep(0.02 * slowness)
        return 7

    @dagrun.tool(effect="effectful")
    async def pay(run: str, sum: int) -> int:
        await anyio.sleep(0.02 * slowness)
        descriptor = os.open(book, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{run}\n".encode())
        os.close(descriptor)
        await anyio.sleep(0.02 * slowness)
        return sum

    return [look, pay]


def take_the_fence_away() -> None:
    """Let writers take every record for written, and every lease for theirs, whatever the server says."""
    add, fail = PostgresWriter._add, PostgresWriter.fail

    async def adds_anyhow(writer: PostgresWriter, *batch: Any) -> None:
        with suppress(OwnerLost):
            await add(writer, *batch)

    async def renews_nothing(writer: PostgresWriter, connection: Any) -> None:
        """Say nothing."""

    def fails_else(writer: PostgresWriter, error: JournalError) -> None:
        if not isinstance(error, OwnerLost):
            fail(writer, error)

    for name, mutant in (("_add", adds_anyhow), ("_renew", renews_nothing), ("fail", fails_else)):
        setattr(PostgresWriter, name, mutant)


async def main(dsn: str, schema: str, book: str, durability: str = "process", *more: str) -> None:
    """Work until SIGTERM."""
    slowness, *mutants = more or ("1",)
    if mutants:
        take_the_fence_away()
    async with (
        PostgresJournal(dsn, schema=schema, durability=durability, lease_seconds=LEASE) as journal,
        dagrun.Engine() as engine,
    ):
        worker = dagrun.Worker(engine, journal=journal, tools=tools(book, float(slowness)), at_once=8)

        async def stop() -> None:
            with anyio.open_signal_receiver(signal.SIGTERM) as signals:
                print("ready", flush=True)
                async for _ in signals:
                    worker.stop()
                    return

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stop)
            await worker.run()


if __name__ == "__main__":
    anyio.run(partial(main, *sys.argv[1:]))
