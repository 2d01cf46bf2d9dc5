"""The journal in PostgreSQL does what every journal does, at both levels, on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from dagrun import Durability, PostgresJournal
from dagrun.extend import Journal
from dagrun.testing.journal_suite import JournalSuite
from postgres_schemas import fresh_schema, say

pytestmark = [pytest.mark.anyio, pytest.mark.real_time, pytest.mark.rigs]


@pytest.fixture(scope="module")
def tables(postgres: str) -> Iterator[str]:
    """A schema with the tables, which each test empties: that takes less time than to make them."""

    async def make() -> None:
        async with PostgresJournal(postgres, schema=schema) as journal:
            await journal.runs()

    with fresh_schema(postgres) as schema:
        anyio.run(make)
        yield schema


class PostgresSuite(JournalSuite):
    """The suite of every journal, in a schema of the test."""

    @pytest.fixture(autouse=True)
    def _place(self, postgres: str, tables: str, tmp_path: Path) -> Iterator[None]:
        self.dsn, self.schema, self.folder = postgres, tables, tmp_path
        yield
        say(postgres, f"WITH runs AS (DELETE FROM {tables}.runs) DELETE FROM {tables}.records")

    async def make_journal(self) -> Journal:
        return PostgresJournal(self.dsn, schema=self.schema, durability=self.durability)

    async def reopen_journal(self, journal: Journal) -> Journal:
        return await self.make_journal()


class TestProcess(PostgresSuite):
    """At the level that survives the end of our process."""


class TestPower(PostgresSuite):
    """At the level that survives all that the server survives, with files and anchors beside the database."""

    durability = Durability.POWER

    @pytest.fixture
    def anyio_backend(self) -> tuple[str, dict[str, Any]]:
        return "asyncio", {}

    async def make_journal(self) -> Journal:
        return PostgresJournal(
            self.dsn,
            schema=self.schema,
            durability=self.durability,
            artifacts=self.folder / "artifacts",
            anchors=self.folder / "anchors",
        )
