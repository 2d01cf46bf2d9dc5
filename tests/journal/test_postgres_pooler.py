"""A journal in PostgreSQL behind PgBouncer: sessions of its own, or a refusal at the first use."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import asyncpg
import pytest

import dagrun
from dagrun.errors import JournalFailed
from pgbouncer import pooled
from postgres_schemas import fresh_schema, say
from postgres_server import NoServer

pytestmark = [pytest.mark.asyncio, pytest.mark.costly, pytest.mark.real_time]
ADVICE = r"cannot use PostgreSQL at postgres: a pooler between lends its sessions .* pool_mode = session"
SHARING = {
    "transaction": {"pool_mode": "transaction"},
    "statement": {"pool_mode": "statement"},
    "one connection": {"pool_mode": "transaction", "default_pool_size": 1},
    "in turn": {"pool_mode": "transaction", "server_round_robin": 1, "min_pool_size": 5},
    "two in turn": {"pool_mode": "transaction", "server_round_robin": 1, "min_pool_size": 2, "default_pool_size": 2},
}


@pytest.fixture
def poolers(postgres: str) -> Iterator[partial[str]]:
    """Starts poolers before the server, which end with the test."""
    with ExitStack() as stack:

        def start(pool_mode: str, **settings: object) -> str:
            try:
                return stack.enter_context(pooled(postgres, pool_mode, **settings))
            except NoServer as error:
                pytest.skip(str(error))

        yield partial(start)


@dagrun.tool(effect="read")
async def look(x: int) -> int:
    """Return it."""
    return x


async def use(dsn: str, schema: str) -> str:
    """Carry out a run with a journal, and read it back; return its status."""
    async with dagrun.PostgresJournal(dsn, schema=schema, patience=5) as journal:
        result = await dagrun.run(dagrun.plan(look.step(1)), journal=journal, run_id="r1")
        assert await journal.read("r1")
        return str(result.status)


@pytest.mark.parametrize("settings", SHARING.values(), ids=SHARING)
async def test_a_pooler_that_shares_sessions_is_refused_at_the_first_use(
    poolers: partial[str], postgres: str, settings: dict[str, object]
) -> None:
    """In our words, with advice, and before anything is made in the database."""
    with fresh_schema(postgres) as schema:
        dsn = poolers(**settings)
        for _ in range(2):  # sessions in which somebody has prepared statements, too
            with pytest.raises(JournalFailed, match=ADVICE):
                await use(dsn, schema)
        assert say(postgres, "SELECT 1 FROM pg_namespace WHERE nspname = $1", schema) == []


async def test_a_busy_pooler_that_shares_sessions_is_refused(poolers: partial[str], postgres: str) -> None:
    """Other clients take and return sessions meanwhile, so that nobody gets the same one by habit."""
    dsn = poolers("transaction", default_pool_size=8)

    async def work() -> None:
        connection = await asyncpg.connect(dsn)
        try:
            while True:
                await connection.execute("SELECT pg_sleep(0.001)")
        finally:
            connection.terminate()

    others = [asyncio.ensure_future(work()) for _ in range(12)]
    try:
        with fresh_schema(postgres) as schema, pytest.raises(JournalFailed, match=ADVICE):
            await use(dsn, schema)
    finally:
        for other in others:
            other.cancel()
        await asyncio.gather(*others, return_exceptions=True)


async def test_a_pooler_that_keeps_sessions_is_as_good_as_none(poolers: partial[str], postgres: str) -> None:
    """The numbers of its sessions are made up, and no two connections have the same session."""
    with fresh_schema(postgres) as schema:
        assert await use(poolers("session"), schema) == "succeeded"
    with fresh_schema(postgres) as schema:
        assert await use(postgres, schema) == "succeeded"
