"""A process that writes a run to PostgreSQL and says what was acknowledged, to be killed or stopped by a test.

python postgres_child.py DSN SCHEMA LEVEL LEASE
"""

from __future__ import annotations

import sys

import anyio

from dagrun import PostgresJournal
from dagrun.errors import JournalError
from journal_child import RUN, text_of


async def write(dsn: str, schema: str, level: str, lease: float) -> None:
    """Add units of one to nine records for ever, and print the last number of each that is durable."""
    async with PostgresJournal(dsn, schema=schema, durability=level, lease_seconds=lease) as journal:
        run_log = await journal.create(RUN)
        print("READY", flush=True)
        seq = 0
        try:
            while True:
                for _ in range(seq % 9 + 1):
                    seq = run_log.append(text_of(seq + 1))
                await run_log.durable(seq)
                print(seq, flush=True)
        except JournalError as error:
            print("FAILED", type(error).__name__, error, flush=True)
        await run_log.aclose()


if __name__ == "__main__":
    anyio.run(write, sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]))
