"""A worker process for rigs: ``python worker_process.py PLACE SCHEMA BOOK`` works until SIGTERM, then exits with 0.

PLACE is the DSN of a PostgreSQL, or a folder of runs, for which SCHEMA means nothing.

Each payment is a line in the file BOOK, written in one call, as a bank would have it: also of a process that is killed.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import aclosing
from typing import Any

import anyio

import dagrun
from dagrun import PostgresJournal, SQLiteJournal

LEASE = 1.0  # seconds


def tools(book: str) -> list[Any]:
    """Return the tools of the runs."""

    @dagrun.tool(effect="read")
    async def look() -> int:
        await anyio.sleep(0.02)
        return 7

    @dagrun.tool(effect="effectful")
    async def pay(run: str, sum: int) -> int:
        await anyio.sleep(0.02)
        descriptor = os.open(book, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{run}\n".encode())
        os.close(descriptor)
        await anyio.sleep(0.02)
        return sum

    return [look, pay]


def journal_of(place: str, schema: str) -> PostgresJournal | SQLiteJournal:
    """Return the journal of the runs."""
    if place.startswith("postgresql:"):
        return PostgresJournal(place, schema=schema, durability="process", lease_seconds=LEASE)
    return SQLiteJournal(place, lease_seconds=LEASE)


async def main(place: str, schema: str, book: str) -> None:
    """Work until SIGTERM."""
    async with aclosing(journal_of(place, schema)) as journal, dagrun.Engine() as engine:
        worker = dagrun.Worker(engine, journal=journal, tools=tools(book), at_once=8)

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
    anyio.run(main, sys.argv[1], sys.argv[2], sys.argv[3])
