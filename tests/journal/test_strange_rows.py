"""Rows of a queue with words that this version does not know: as a newer version beside this one may write them."""

from __future__ import annotations

import asyncio
import re

import anyio
import pytest

import dagrun
from command_line import Shell, shell
from dagrun import MemoryJournal
from dagrun.journal.queue import QueueStatus, QueueTicket, Wanted
from page_client import Client, page_of
from postgres_schemas import fresh_database, fresh_schema, say

__all__ = ["shell"]
pytestmark = pytest.mark.real_time
SAID = "its row says 'parked', which this version of dagrun does not know"


@dagrun.tool(effect="read")
async def look(x: int) -> int:
    """Return it."""
    return x


@pytest.mark.asyncio
@pytest.mark.costly
async def test_a_row_with_a_strange_standing_hides_no_other(postgres: str) -> None:
    """It is listed as unreadable, left alone by workers and by orders; and a page shows all runs."""
    with fresh_schema(postgres) as schema:
        async with dagrun.PostgresJournal(postgres, schema=schema) as journal:
            await _hides_no_other(postgres, journal)


async def _hides_no_other(dsn: str, journal: dagrun.PostgresJournal) -> None:
    for n in range(3):
        await dagrun.submit(dagrun.plan(look.step(x=n)), tools=[look], journal=journal, run_id=f"r{n}")
    _park(dsn, journal.queue.schema)
    queue = journal.queue
    rows = {row.run_id: (str(row.standing), row.reason) for row in await queue.runs()}
    assert rows == {"r0": ("unreadable", SAID), "r1": ("queued", ""), "r2": ("queued", "")}
    assert [row.run_id for row in await queue.runs([QueueStatus.UNREADABLE])] == ["r0"]
    assert [row.run_id for row in await queue.runs([QueueStatus.QUEUED])] == ["r1", "r2"]
    assert await queue.runs([QueueStatus.STUCK]) == []
    assert await queue.put_back("r0") is False
    listed = (await Client(page_of(journal)).get("/api/runs")).json()["runs"]
    shown = {run["run_id"]: run["queue"]["status"] for run in listed}
    assert shown == {"r0": "unreadable", "r1": "queued", "r2": "queued"}
    claimed = [await queue.claim(Wanted()) for _ in range(3)]
    assert [run_log and run_log.run_id for run_log in claimed] == ["r1", "r2", None]
    for run_log in filter(None, claimed):
        await run_log.aclose()


@pytest.mark.costly
def test_the_command_line_lists_a_row_with_a_strange_standing(shell: Shell, postgres: str) -> None:
    """With the reason, and no traceback."""

    async def submit(dsn: str) -> None:
        async with dagrun.PostgresJournal(dsn) as journal:
            for n in range(2):
                await dagrun.submit(dagrun.plan(look.step(x=n)), tools=[look], journal=journal, run_id=f"r{n}")
            _park(dsn, journal.queue.schema)

    with fresh_database(postgres) as dsn:
        asyncio.run(submit(dsn))
        made = shell("runs", "--journal", dsn)
        listed = shell("runs", "--standing", "unreadable", "--json", "--journal", dsn)
    assert made.code == 0
    assert re.search("^r0 .* unreadable since ", made.out, re.MULTILINE)
    assert re.search("^r1 .* queued in pool default", made.out, re.MULTILINE)
    (found,) = listed.json["runs"]
    assert (found["run_id"], found["queue"]["status"], found["queue"]["reason"]) == ("r0", "unreadable", SAID)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("there", "strange"),
    [('"effect":"read"', '"effect":"remote"'), ('"event":"RunStarted"', '"event":"RunBegun"')],
)
async def test_a_record_with_a_strange_word_ends_no_worker_and_no_list(there: str, strange: str) -> None:
    """The run is damaged in lists, and stuck in the queue; the worker carries out the others."""
    journal = MemoryJournal()
    for n in range(3):
        await dagrun.submit(dagrun.plan(look.step(x=n)), tools=[look], journal=journal, run_id=f"r{n}")
    (first,) = await journal.read("r0")
    text = first.text.decode()
    assert there in text
    await journal.queue.submit("s0", text.replace('"r0"', '"s0"').replace(there, strange).encode(), QueueTicket())
    async with dagrun.Engine() as engine:
        worker = dagrun.Worker(engine, journal=journal, tools=[look])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            with anyio.fail_after(20):
                while (
                    len(
                        done := {
                            row.run_id: str(row.standing)
                            for row in await journal.queue.runs()
                            if str(row.standing) in ("ended", "stuck")
                        }
                    )
                    < 4
                ):
                    await anyio.sleep(0.02)
            worker.stop()
    assert done == {"r0": "ended", "r1": "ended", "r2": "ended", "s0": "stuck"}
    listed = (await Client(page_of(journal)).get("/api/runs")).json()["runs"]
    assert {run["run_id"]: run["state"] for run in listed if run["state"] != "ended"} == {"s0": "damaged"}


def _park(dsn: str, schema: str) -> None:
    of_r0 = f"(SELECT number FROM {schema}.runs WHERE run_id = 'r0')"
    say(dsn, f"UPDATE {schema}.queue SET standing = 'parked' WHERE run = {of_r0}")
