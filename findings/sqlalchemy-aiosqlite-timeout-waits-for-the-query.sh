#!/usr/bin/env bash
# SQLAlchemy over aiosqlite: a time limit around a query ends only when the query has ended, though aiosqlite alone ends at once.
#
# Guess: `asyncio.timeout(0.5)` around a query of some seconds raises TimeoutError after about 0.5 s, as it does with aiosqlite
#        alone, and the query goes on in its thread.
# Seen:  with SQLAlchemy the TimeoutError comes when the whole query is over. On cancellation SQLAlchemy gives the connection back, which rolls
#        back, and the rollback waits in aiosqlite's one thread behind the query. So neither a time limit nor a cancellation limits
#        the time of a statement; what does is `interrupt()` of the connection of sqlite3 itself.
#
# Exits with 0 if that is seen, else with 1. Takes about a minute. Needs Python 3.11 or newer, and no server.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    'sqlalchemy[asyncio]==2.1.9' 'aiosqlite==0.22.1'

cat > "$folder/finding.py" <<'PYTHON'
import asyncio
import time
from importlib.metadata import version

import aiosqlite
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

LIMIT = 0.5
SLOW = "with recursive c(n) as (select 1 union all select n + 1 from c where n < {}) select max(n) from c"


async def seconds_of(call, limit=None):
    """Await call() within a limit; return the seconds, and whether the limit has struck."""
    began, is_late = time.monotonic(), False
    try:
        async with asyncio.timeout(limit):
            await call()
    except TimeoutError:
        is_late = True
    return time.monotonic() - began, is_late


async def main():
    engine = create_async_engine("sqlite+aiosqlite://")
    query = SLOW.format(1_000_000)

    async def by_sqlalchemy():
        async with engine.connect() as connection:
            await connection.execute(text(query))

    short, _ = await seconds_of(by_sqlalchemy)
    query = SLOW.format(int(1_000_000 * max(1.0, 6.0 / short)))  # six seconds or more, on any machine
    whole, _ = await seconds_of(by_sqlalchemy)
    limited, is_late = await seconds_of(by_sqlalchemy, LIMIT)
    await engine.dispose()

    async with aiosqlite.connect(":memory:") as connection:
        alone, alone_is_late = await seconds_of(lambda: connection.execute(query), LIMIT)
        await connection.interrupt()

    print(f"sqlalchemy {version('sqlalchemy')}, aiosqlite {version('aiosqlite')}")
    print(f"the query without a limit                 {whole:5.1f} s")
    print(f"guess: within a limit of {LIMIT} s, either      {LIMIT:5.1f} s")
    print(f"seen:  aiosqlite alone                    {alone:5.1f} s, TimeoutError: {alone_is_late}")
    print(f"seen:  SQLAlchemy over aiosqlite          {limited:5.1f} s, TimeoutError: {is_late}")
    as_told = is_late and alone_is_late and limited > whole / 2 > 2 * LIMIT and alone < whole / 3
    print("as told" if as_told else "CHANGED")
    raise SystemExit(not as_told)


asyncio.run(main())
PYTHON
"$folder/venv/bin/python" "$folder/finding.py"
