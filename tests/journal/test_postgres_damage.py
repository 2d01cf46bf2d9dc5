"""Records in PostgreSQL that somebody has changed by hand: seen by whoever reads, and by whoever opens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dagrun import PostgresJournal
from dagrun.errors import JournalDamaged
from dagrun.journal.hash_chain import chained
from dagrun.testing.journal_suite import RUN, numbered, write
from postgres_schemas import fresh_schema, say

pytestmark = [pytest.mark.anyio, pytest.mark.real_time, pytest.mark.rigs]


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """One backend: the database knows nothing of it."""
    return "asyncio", {}


@pytest.fixture
def schema(postgres: str) -> Iterator[str]:
    """A schema of the test."""
    with fresh_schema(postgres) as schema:
        yield schema


LINES = chained(RUN, numbered(5))
ANEW = chained(RUN, [b'{"n":9}', *numbered(5)[1:]])
DAMAGE = {
    "a text was changed": (3, "UPDATE {s}.records SET text = replace(text, '2', '7') WHERE seq = 3"),
    "a digest was changed": (2, "UPDATE {s}.records SET digest = md5(digest) WHERE seq = 2"),
    "one in the middle was deleted": (3, "DELETE FROM {s}.records WHERE seq = 3"),
    "the first was deleted": (1, "DELETE FROM {s}.records WHERE seq = 1"),
    "the last was deleted": (5, "DELETE FROM {s}.records WHERE seq = 5"),
    "all were deleted": (1, "DELETE FROM {s}.records"),
    "two were swapped": (2, "UPDATE {s}.records SET seq = -seq; UPDATE {s}.records SET seq = CASE seq WHEN -2 THEN 4 "
        "WHEN -4 THEN 2 ELSE -seq END"),
    "one was added": (6, f"INSERT INTO {{s}}.records VALUES ((SELECT number FROM {{s}}.runs), 6, '1', '{'0' * 64}')"),
    "one was added before the first": (1, "INSERT INTO {s}.records VALUES ((SELECT number FROM {s}.runs), 0, '1', '')"),
    "the row of the run was changed": (5, f"UPDATE {{s}}.runs SET digest = '{'0' * 64}'"),
    "the row of the run was put back": (5, f"UPDATE {{s}}.runs SET seq = 4, digest = '{LINES[3].digest}'"),
    "the chain was made anew": (5, "; ".join(
        f"UPDATE {{s}}.records SET text = '{line.text.decode()}', digest = '{line.digest}' WHERE seq = {line.seq}"
        for line in ANEW)),
    "they are of another run": (1, "UPDATE {s}.runs SET run_id = 'other'"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
async def test_damage_is_seen(postgres: str, schema: str, name: str) -> None:
    """By whoever reads and whoever opens, with the number of the record; nobody goes on, and it can be deleted."""
    seq, statement = DAMAGE[name]
    async with PostgresJournal(postgres, schema=schema) as journal:
        run_log = await journal.create(RUN)
        await write(run_log, *numbered(5))
        await run_log.aclose()
        assert await journal.read(RUN) == LINES
        for part in statement.replace("{s}", schema).split("; "):
            say(postgres, part)
        run_id = (await journal.runs())[0].run_id
        for act in (journal.read, journal.open):
            with pytest.raises(JournalDamaged) as caught:
                await act(run_id)
            assert (caught.value.run_id, caught.value.seq) == (run_id, seq)
        assert not (await journal.runs())[0].is_held
        await journal.delete(run_id)
        assert say(postgres, f"SELECT * FROM {schema}.records") == []


WITH_THE_ROW = {
    "all was made anew": (
        5,
        DAMAGE["the chain was made anew"][1] + f"; UPDATE {{s}}.runs SET digest = '{ANEW[4].digest}'",
    ),
    "the server was put back": (
        4,
        f"DELETE FROM {{s}}.records WHERE seq > 3; UPDATE {{s}}.runs SET seq = 3, digest = '{LINES[2].digest}'",
    ),
    "the token was put back": (0, "UPDATE {s}.runs SET token = 0"),
}


@pytest.mark.parametrize("name", WITH_THE_ROW)
async def test_an_anchor_sees_what_the_database_cannot(postgres: str, schema: str, tmp_path: Path, name: str) -> None:
    """Whoever can write the whole database can make all fit; the anchor is elsewhere."""
    seq, statement = WITH_THE_ROW[name]
    async with PostgresJournal(postgres, schema=schema, anchors=tmp_path / "anchors") as journal:
        run_log = await journal.create(RUN)
        await write(run_log, *numbered(5))
        await run_log.aclose()
        for part in statement.replace("{s}", schema).split("; "):
            say(postgres, part)
        with pytest.raises(JournalDamaged) as caught:
            await journal.open(RUN)
        assert caught.value.seq == seq
    async with PostgresJournal(postgres, schema=schema) as journal:
        await (await journal.open(RUN)).aclose()  # without the anchor nobody knows


async def test_a_run_without_its_anchor_is_refused(postgres: str, schema: str, tmp_path: Path) -> None:
    """It was deleted, or the run was made by somebody who keeps none."""
    async with PostgresJournal(postgres, schema=schema) as journal:
        await (await journal.create(RUN)).aclose()
    async with PostgresJournal(postgres, schema=schema, anchors=tmp_path) as journal:
        with pytest.raises(JournalDamaged, match="anchor"):
            await journal.open(RUN)
