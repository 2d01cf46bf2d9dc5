"""Followers of runs in PostgreSQL: told by the owner, and dear to nobody whom they do not follow."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import asyncpg
import pytest

from dagrun import PostgresJournal
from dagrun.errors import RunNotFound
from dagrun.journal.following import RecordFollower
from dagrun.journal.postgres import followers
from postgres_schemas import fresh_schema

pytestmark = [pytest.mark.anyio, pytest.mark.real_time, pytest.mark.costly]

RUN = "run"
LONG = 600.0  # seconds: whoever waits for so long was not told


@pytest.fixture
def anyio_backend() -> str:
    """asyncpg's own connection, which a test uses, needs asyncio."""
    return "asyncio"


@pytest.fixture
async def journals(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[PostgresJournal, PostgresJournal]]:
    """The journals of an owner and of a follower, who only hears what it is told."""
    monkeypatch.setattr(followers, "_MOST", LONG)
    with fresh_schema(postgres) as schema:
        async with (
            PostgresJournal(postgres, schema=schema, durability="process") as owner,
            PostgresJournal(postgres, schema=schema, durability="process") as follower,
        ):
            yield owner, follower


async def test_a_follower_is_told_of_records_and_of_the_release(
    journals: tuple[PostgresJournal, PostgresJournal],
) -> None:
    """Without a look in between: it would wait for ten minutes."""
    owner, other = journals
    run_log = await owner.create(RUN)
    run_log.append(b'{"seq":1}')
    await run_log.durable()
    assert await other.wait_after(RUN, 0, LONG)  # what is there already needs no wait
    told: list[bool] = []

    async def wait() -> None:
        told.append(await other.wait_after(RUN, 1, LONG))

    with anyio.fail_after(20):
        while not await _is_followed(owner):
            with anyio.move_on_after(0.1):
                await other.wait_after(RUN, 1, LONG)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.sleep(0.1)
            run_log.append(b'{"seq":2}')
            await run_log.durable()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other.wait_after, RUN, 2, LONG)
            await anyio.sleep(0.1)
            await run_log.aclose()
    assert told == [True]
    follower = RecordFollower(other, RUN)
    assert [line.seq for line in await follower.news()] == [1, 2]


async def _is_followed(owner: PostgresJournal) -> bool:
    assert owner._keeper is not None
    return any(writer.followed_until > 0 for writer, _ in owner._keeper._runs.values())


async def test_an_owner_that_nobody_follows_tells_nobody(
    postgres: str, journals: tuple[PostgresJournal, PostgresJournal]
) -> None:
    """A notification takes a lock of the whole server at each commit."""
    owner, _ = journals
    heard: list[str] = []
    connection = await asyncpg.connect(postgres)
    try:
        await connection.add_listener(owner._sql.news.channel, lambda *facts: heard.append(facts[-1]))
        run_log = await owner.create(RUN)
        run_log.append(b'{"seq":1}')
        await run_log.durable()
        await run_log.aclose()
        await connection.execute("SELECT pg_notify($1, 'end')", owner._sql.news.channel)
        with anyio.fail_after(20):
            while "end" not in heard:
                await anyio.sleep(0.01)
    finally:
        await connection.close()
    assert heard == ["end"]


async def test_a_run_that_nobody_has_is_looked_at_now_and_then(
    journals: tuple[PostgresJournal, PostgresJournal],
) -> None:
    owner, other = journals
    run_log = await owner.create(RUN)
    await run_log.aclose()
    with anyio.fail_after(20):  # a second, and not ten minutes
        assert not await other.wait_after(RUN, 0, LONG)
    with pytest.raises(RunNotFound):
        await other.wait_after("none", 0, LONG)
