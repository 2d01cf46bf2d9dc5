"""What only a database has to do: tables that are made once, records that somebody has changed, wrong options."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import dagrun
import postgres_server
from dagrun import Durability, PostgresJournal, Status
from dagrun.errors import ContractError, JournalError, JournalFailed, MissingExtra, RunHeld
from dagrun.journal import lease
from dagrun.journal.hash_chain import chained
from dagrun.journal.postgres.statements import Sql
from dagrun.testing.journal_suite import RUN, add, numbered, take_messages, write
from folders import HELPERS, python_path
from postgres_schemas import fresh_schema, say
from postgres_tools import tools_in

pytestmark = [pytest.mark.anyio, pytest.mark.real_time]
rig = pytest.mark.rigs


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """One backend: the database knows nothing of it."""
    return "asyncio", {}


@pytest.fixture
def schema(postgres: str) -> Iterator[str]:
    """A schema of the test."""
    with fresh_schema(postgres) as schema:
        yield schema


# Elements that are taken over ----------------------------------------------------------------------------------------


async def test_only_the_failed_element_of_a_recorded_run_is_called_again(postgres: str, schema: str) -> None:
    calls: list[int] = []

    @dagrun.tool(effect="effectful")
    async def pay(n: int) -> int:
        calls.append(n)
        if calls.count(2) < 2 and n == 2:
            raise dagrun.ToolError("no")
        return n

    plan = dagrun.Plan(steps=[dagrun.Step(id="each", tool="pay", for_each=[1, 2, 3], args={"n": "${item}"})])
    async with PostgresJournal(postgres, schema=schema) as journal:
        await dagrun.run(plan, tools=[pay], journal=journal, run_id=RUN)
        async with dagrun.retry(RUN, journal=journal, tools=[pay]) as running:
            result = await running.result()

    assert (result.output, sorted(calls)) == ([1, 2, 3], [1, 2, 2, 3])


# Personal data -------------------------------------------------------------------------------------------------------


async def test_redacted_records_leave_no_personal_data_in_the_database(postgres: str, schema: str) -> None:
    mail = "ann.canary@example.com"

    @dagrun.tool(effect="read")
    async def person(name: str) -> dict[str, str]:
        return {"name": name, "mail": mail}

    plan = dagrun.Plan(goal=f"write to {mail}", steps=[dagrun.Step(id="who", tool="person", args={"name": mail})])
    policy = dagrun.Policy(redact=["email"], redact_records=True)
    async with PostgresJournal(postgres, schema=schema) as journal:
        result = await dagrun.run(plan, tools=[person], policy=policy, journal=journal, run_id=RUN, inputs={"to": mail})
        past = await dagrun.replay(RUN, journal=journal)

    tables = say(postgres, f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{schema}'")
    rows = [str(say(postgres, f'SELECT t::text FROM "{schema}"."{name}" t')) for (name,) in tables]
    assert result.steps["who"].output["mail"] == mail
    assert past.status is Status.SUCCEEDED
    assert "[email]" in "".join(rows)
    assert "canary" not in "".join(rows)


# Runs -----------------------------------------------------------------------------------------------------------------


async def test_a_run_is_kept_for_another_journal(postgres: str, schema: str) -> None:
    """The short form of all the suite asks: records, letters, and who holds the run."""
    async with PostgresJournal(postgres, schema=schema) as journal, PostgresJournal(postgres, schema=schema) as other:
        run_log = await journal.create(RUN)
        await write(run_log, b"1", b'"\\u0000"')
        await other.post(RUN, b"yes")
        assert [letter.text for letter in await take_messages(run_log, 1)] == [b"yes"]
        with pytest.raises(RunHeld):
            await other.open(RUN)
        await run_log.aclose()
        assert await other.read(RUN) == chained(RUN, [b"1", b'"\\u0000"'])
        await (await other.open(RUN)).aclose()


@rig
async def test_a_run_that_was_killed_goes_on(postgres: str, schema: str, tmp_path: Path) -> None:
    """Its process is gone, its records are in the database; no effect happens twice."""
    env = {**os.environ, "PYTHONPATH": python_path()}
    program = [sys.executable, str(HELPERS / "journals" / "postgres_tools.py"), postgres, schema, str(tmp_path)]
    done = await anyio.run_process(program, env=env, check=False)
    assert done.returncode == -9, done.stderr
    async with PostgresJournal(postgres, schema=schema) as journal:
        tools = tools_in(tmp_path, is_deadly=False)
        async with dagrun.resume(RUN, journal=journal, tools=tools) as run:
            result = await run.result()
        assert result.status is Status.SUCCEEDED
        assert (tmp_path / "notes").read_text().splitlines() == ["first", "first second", "first second last"]


def test_wrong_options_are_refused() -> None:
    """Before anything is asked of a server; the name of the schema becomes part of each statement."""
    for name in ("", "Dagrun", 'a"b', "a b", "1a", "a" * 49, "a;b"):
        with pytest.raises(ContractError, match="schema"):
            PostgresJournal("postgresql:///", schema=name)
    with pytest.raises(ContractError, match="MemoryJournal"):
        PostgresJournal("postgresql:///", durability=Durability.MEMORY)
    with pytest.raises(ValueError, match="paper"):
        PostgresJournal("postgresql:///", durability="paper")
    for options in ({"lease_seconds": 0}, {"patience": -1}, {"connections": 0}):
        with pytest.raises(ContractError):
            PostgresJournal("postgresql:///", **options)  # type: ignore[arg-type]


def test_without_asyncpg_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line that says what to install."""
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(MissingExtra, match=r"pip install 'dagrun-engine\[postgres\]'"):
        PostgresJournal("postgresql:///")


async def test_a_server_that_is_not_there_is_given_up_at_once(tmp_path: Path) -> None:
    """The address is wrong, more likely than not; the message has no password."""
    with anyio.fail_after(20):
        async with PostgresJournal(f"postgresql://me:secret@/db?host={tmp_path}") as journal:
            with pytest.raises(JournalFailed, match="cannot use PostgreSQL") as caught:
                await journal.create(RUN)
            assert "secret" not in str(caught.value)


# Tables ---------------------------------------------------------------------------------------------------------------


@rig
async def test_several_may_make_the_tables_at_once(postgres: str, schema: str) -> None:
    """Ten workers that are started together, say."""
    async with anyio.create_task_group() as tasks:

        async def work(number: int) -> None:
            async with PostgresJournal(postgres, schema=schema) as journal:
                await (await journal.create(f"run-{number}")).aclose()

        for number in range(10):
            tasks.start_soon(work, number)
    async with PostgresJournal(postgres, schema=schema) as journal:
        assert len(await journal.runs()) == 10


@rig
async def test_an_unknown_format_is_refused(postgres: str, schema: str) -> None:
    """A later release has made the tables: this one cannot know what they mean."""
    async with PostgresJournal(postgres, schema=schema) as journal:
        await (await journal.create(RUN)).aclose()
    say(postgres, f"UPDATE {schema}.format SET version = 2")
    async with PostgresJournal(postgres, schema=schema) as journal:
        for act in (journal.read, journal.open, journal.create, journal.delete):
            with pytest.raises(JournalFailed, match="format 2; this version of dagrun reads and writes format 1"):
                await act(RUN)


@rig
async def test_a_database_that_cannot_hold_every_text_is_refused(postgres: str, schema: str) -> None:
    """Before a run is begun that could not be written later."""
    say(postgres, f"CREATE DATABASE {schema} ENCODING 'SQL_ASCII' TEMPLATE template0")
    try:
        dsn = postgres.replace("/postgres?", f"/{schema}?")
        if dsn == postgres:
            pytest.skip("the server that DAGRUN_TEST_POSTGRES names has no database postgres")
        async with PostgresJournal(dsn) as journal:
            with pytest.raises(JournalFailed, match="SQL_ASCII"):
                await journal.create(RUN)
    finally:
        say(postgres, f"DROP DATABASE {schema} WITH (FORCE)")


@rig
@pytest.mark.parametrize(
    ("level", "given", "kept"),
    [("power", "off", "on"), ("power", "remote_apply", "remote_apply"), ("process", "on", "off")],
)
async def test_a_commit_waits_for_the_disk_at_level_power(
    postgres: str, schema: str, level: str, given: str, kept: str
) -> None:
    """Whatever the settings of the user say; a wait that is longer than ours is left."""
    dsn = f"{postgres}{'&' if '?' in postgres else '?'}options=-csynchronous_commit%3D{given}"
    async with PostgresJournal(dsn, schema=schema, durability=level) as journal:
        assert await journal._ask(lambda connection: connection.fetchval("SHOW synchronous_commit")) == kept


@rig
async def test_a_server_without_fsync_promises_nothing() -> None:
    """At level power it is refused, and why is said."""
    try:
        server = postgres_server.started()
    except postgres_server.NoServer as error:
        pytest.skip(str(error))
    try:
        server.stop()
        server.start("-c fsync=off")
        async with PostgresJournal(server.dsn, durability="power") as journal:
            with pytest.raises(JournalFailed, match="fsync = off"):
                await journal.create(RUN)
        async with PostgresJournal(server.dsn, durability="process") as journal:
            await (await journal.create(RUN)).aclose()
    finally:
        server.remove()


# Owners ---------------------------------------------------------------------------------------------------------------

HERE = lease.this_process()
OWNERS: dict[str, tuple[object, bool]] = {
    "this process": (HERE, True),
    "a process of the same number that was started at another time": (dataclasses.replace(HERE, started=1), False),
    "a process that has ended": (dataclasses.replace(HERE, pid=2**22 + 1), False),
    "a process on another machine": (dataclasses.replace(HERE, host="elsewhere", boot="another"), True),
    "a process on another machine of the same name": (dataclasses.replace(HERE, boot="another", pid=2**22 + 1), True),
    "a process in another container": (dataclasses.replace(HERE, space="pid:[1]", pid=2**22 + 1), True),
    "nobody can say who": ("{", True),
}


@rig
@pytest.mark.parametrize("name", OWNERS)
async def test_who_can_hold_a_run(postgres: str, schema: str, name: str) -> None:
    """Only who may still be alive, and only until the lease runs out by the clock of the server."""
    owner, holds = OWNERS[name]
    text = owner.encode() if isinstance(owner, lease.Owner) else owner
    async with PostgresJournal(postgres, schema=schema) as journal:
        await (await journal.create(RUN)).aclose()
        say(postgres, f"UPDATE {schema}.runs SET owner = $1, expires = now() + interval '1 hour'", text)
        assert [held.is_held for held in await journal.runs()] == [holds]
        if holds:
            with pytest.raises(RunHeld, match=RUN):
                await journal.open(RUN)
            with pytest.raises(RunHeld):
                await journal.delete(RUN)
            say(postgres, f"UPDATE {schema}.runs SET expires = now()")
        await (await journal.open(RUN)).aclose()
        assert [held.is_held for held in await journal.runs()] == [False]


@rig
async def test_a_renewal_that_comes_too_late_holds_nothing(postgres: str, schema: str) -> None:
    """It was on its way when the run was let go."""
    async with PostgresJournal(postgres, schema=schema) as journal:
        run_log = await journal.create(RUN)
        ((number, token),) = say(postgres, f"SELECT number, token FROM {schema}.runs")
        await run_log.aclose()
        say(postgres, Sql(schema).renew, [number], [token], 30.0)
        assert not (await journal.runs())[0].is_held


@rig
async def test_a_tool_that_blocks_the_loop_does_not_cost_the_run(postgres: str, schema: str) -> None:
    """The lease is renewed by the journal's own thread."""
    async with PostgresJournal(postgres, schema=schema, lease_seconds=0.6) as journal:
        run_log = await journal.create(RUN)
        time.sleep(1.5)
        assert say(postgres, f"SELECT expires > clock_timestamp() FROM {schema}.runs") == [(True,)]
        await write(run_log, b"1")
        await run_log.aclose()


# Odd things -----------------------------------------------------------------------------------------------------------


@rig
async def test_a_letter_may_be_of_any_bytes(postgres: str, schema: str) -> None:
    """It comes from anybody; what it says is looked at later."""
    async with PostgresJournal(postgres, schema=schema) as journal:
        run_log = await journal.create(RUN)
        await journal.post(RUN, b"\0\xff")
        await journal.post(RUN, b"")
        assert [letter.text for letter in await take_messages(run_log, 2)] == [b"\0\xff", b""]
        await run_log.aclose()


@rig
async def test_many_letters_come_in_their_order(postgres: str, schema: str) -> None:
    """Though not all at once: whoever may post must not be able to fill the memory."""
    async with PostgresJournal(postgres, schema=schema) as journal:
        run_log = await journal.create(RUN)
        for number in range(150):
            await journal.post(RUN, b"%d" % number)
        assert [letter.text for letter in await take_messages(run_log, 10)] == [b"%d" % number for number in range(10)]
        assert [letter.text for letter in await run_log.backlog()] == [b"%d" % number for number in range(10, 150)]
        await run_log.aclose()


@rig
async def test_anybody_may_say_anything_on_the_channel(postgres: str, schema: str) -> None:
    """It is heard as a knock, if it is one."""
    async with PostgresJournal(postgres, schema=schema) as journal:
        run_log = await journal.create(RUN)
        for word in ("", "x", "9" * 30, "-1", "1 2"):
            say(postgres, "SELECT pg_notify($1, $2)", f"{schema}.letters", word)
        await journal.post(RUN, b"1")
        assert [letter.text for letter in await take_messages(run_log, 1)] == [b"1"]
        await run_log.aclose()


@rig
@pytest.mark.parametrize("text", [b"\xff", b'"\0"'])
async def test_a_text_that_is_no_text_stops_the_run(postgres: str, schema: str, text: bytes) -> None:
    """Records are JSON in UTF-8, where a zero is escaped; a unit that has another one is not written at all."""
    async with PostgresJournal(postgres, schema=schema) as journal:
        run_log = await journal.create(RUN)
        told: list[JournalError] = []
        run_log.on_failure = told.append
        await write(run_log, b"1")
        add(run_log, b"2", text)
        with pytest.raises(JournalFailed):
            await run_log.durable()
        await run_log.aclose()
        assert len(told) == 1
        assert len(await journal.read(RUN)) == 1


@rig
async def test_a_closed_journal_says_so(postgres: str, schema: str) -> None:
    """To whoever still has a run log of it, and to whoever asks."""
    journal = PostgresJournal(postgres, schema=schema)
    run_log = await journal.create(RUN)
    told: list[JournalError] = []
    run_log.on_failure = told.append
    await journal.aclose()
    await journal.aclose()
    unused = PostgresJournal(postgres, schema=schema)
    await unused.aclose()
    with pytest.raises(JournalFailed, match="closed"):
        await unused.runs()
    with anyio.fail_after(20):
        run_log.append(b"1")
        with pytest.raises(JournalFailed, match="closed"):
            await run_log.durable()
        await run_log.aclose()
    assert len(told) == 1
    with pytest.raises(JournalFailed, match="closed"):
        await journal.runs()


@rig
async def test_a_question_that_was_given_up_harms_nobody(postgres: str, schema: str) -> None:
    """The connection is good for the next one, or another takes its place; all of them are given back."""
    async with PostgresJournal(postgres, schema=schema, connections=2) as journal:
        run_log = await journal.create(RUN)
        await write(run_log, *numbered(2000))
        for number in range(40):
            with anyio.move_on_after(number / 10_000):
                await journal.read(RUN)
        assert len(await journal.read(RUN)) == 2000
        await write(run_log, b"1")
        await run_log.aclose()
