"""PostgreSQL when things go wrong: lost lines, a server that stops, processes that are killed or sleep too long."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

import postgres_server
from cut_line import Cut, cut_line
from dagrun import PostgresJournal
from dagrun.errors import JournalError, JournalFailed, OwnerLost, RunHeld
from dagrun.journal.postgres.statements import Sql
from dagrun.journal.postgres.writer import PostgresWriter
from dagrun.kernel.model.journal import Line as Record
from dagrun.testing.journal_suite import take_messages, write
from folders import HELPERS, python_path
from journal_child import RUN, text_of
from postgres_schemas import fresh_schema, say
from postgres_server import Server

pytestmark = [pytest.mark.anyio, pytest.mark.real_time, pytest.mark.rigs]

NIGHT = bool(os.environ.get("DAGRUN_NIGHT"))


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """One backend: what goes wrong here goes wrong in the journal's own loop."""
    return "asyncio", {}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server that a test may stop."""
    try:
        server = postgres_server.started()
    except postgres_server.NoServer as error:
        pytest.skip(str(error))
    yield server
    server.remove()


@pytest.fixture
def schema(server: Server) -> Iterator[str]:
    """A schema of the test."""
    with fresh_schema(server.dsn) as schema:
        yield schema


def dsn_of(folder: Path) -> str:
    """The server at the other end of the line whose socket is in *folder*."""
    return f"postgresql://dagrun@/postgres?host={folder}"


def shown(lines: list[Record]) -> list[bytes]:
    """The texts of *lines*."""
    return [line.text for line in lines]


def texts(count: int) -> list[bytes]:
    """What the first *count* records of a run say."""
    return [text_of(seq) for seq in range(1, count + 1)]


async def wait_until(claim: Callable[[], bool]) -> None:
    """Wait for what happens in another thread or process."""
    with anyio.fail_after(20):
        while not claim():
            await anyio.sleep(0.01)


# Lost lines -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["request", "answer"])
async def test_a_record_is_written_once_though_the_line_was_cut(
    server: Server, schema: str, tmp_path: Path, what: Cut
) -> None:
    """Whether the server had heard it or not, the run log finds out, and goes on."""
    async with cut_line(server.folder, tmp_path) as line, PostgresJournal(dsn_of(tmp_path), schema=schema) as journal:
        run_log = await journal.create(RUN)
        await write(run_log, b"1")

        def cut_once(text: bytes) -> Cut | None:
            if b'"the one"' not in text:
                return None
            line.cut = lambda _: None
            return what

        line.cut = cut_once
        await write(run_log, b'"the one"')
        await write(run_log, b"3")
        assert shown(await journal.read(RUN)) == [b"1", b'"the one"', b"3"]
        assert line.cuts[what] == 1
        await run_log.aclose()


async def test_nothing_is_lost_or_written_twice_on_a_bad_line(server: Server, schema: str, tmp_path: Path) -> None:
    """Of every thirty pieces of talk one is cut, at either side; creating, posting and closing included."""
    chance = random.Random(8)
    async with cut_line(server.folder, tmp_path) as line, PostgresJournal(dsn_of(tmp_path), schema=schema) as journal:
        await journal.runs()  # a server that was never reached is given up at once
        line.cut = lambda _: chance.choice(("request", "answer")) if chance.random() < 0.03 else None
        seq = 0
        for number in range(100 if NIGHT else 12):
            run_log = await (journal.open(RUN) if number else journal.create(RUN))
            assert shown(list(run_log.lines)) == texts(seq)
            await journal.post(RUN, b"%d" % number)
            for _ in range(8):
                for _ in range(chance.randrange(1, 5)):
                    seq = run_log.append(text_of(seq + 1))
                await run_log.durable()
            (letter,) = await run_log.backlog()
            assert letter.text == b"%d" % number
            await run_log.discard(letter.id)
            await run_log.aclose()
            # It may not have got through: that is what the lease is for.
            say(server.dsn, f"UPDATE {schema}.runs SET expires = now()")
        line.cut = lambda _: None
        assert shown(await journal.read(RUN)) == texts(seq)
        assert sum(line.cuts.values()) > 1


async def test_a_run_that_is_deleted_on_a_bad_line_is_deleted(server: Server, schema: str, tmp_path: Path) -> None:
    """The second try finds nothing: that is what was asked for."""
    async with cut_line(server.folder, tmp_path) as line, PostgresJournal(dsn_of(tmp_path), schema=schema) as journal:
        await (await journal.create(RUN)).aclose()

        def cut_once(text: bytes) -> Cut | None:
            if b"\x0cCOMMIT;" not in text:
                return None
            line.cut = lambda _: None
            return "answer"

        line.cut = cut_once
        await journal.delete(RUN)
        assert await journal.runs() == []
        assert line.cuts["answer"] == 1


# A server that stops --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_a_run_survives_a_server_that_is_started_again(server: Server, schema: str, mode: str) -> None:
    """At level power, whether it was stopped in order or crashed: all is there once."""
    async with PostgresJournal(server.dsn, schema=schema, durability="power") as journal:
        run_log = await journal.create(RUN)
        told: list[JournalError] = []
        run_log.on_failure = told.append
        seq = 0

        async def go_on() -> None:
            nonlocal seq
            while True:
                for _ in range(3):
                    run_log.append(text_of(run_log_seq() + 1))
                await run_log.durable()
                seq += 3

        def run_log_seq() -> int:
            return run_log._last

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(go_on)
            for _ in range(10 if NIGHT else 2):
                before = seq
                await wait_until(lambda before=before: seq > before + 30)  # type: ignore[misc]
                await anyio.to_thread.run_sync(server.restart, mode)
            before = seq
            await wait_until(lambda: seq > before + 30)
            tasks.cancel_scope.cancel()
        await run_log.aclose()
        lines = await journal.read(RUN)
        assert shown(lines) == texts(len(lines))
        assert len(lines) >= seq
        assert told == []


async def test_what_a_crash_of_the_server_takes_is_noticed(server: Server, schema: str) -> None:
    """At level process it may take what was just acknowledged; the run log goes on only if nothing is missing."""
    async with PostgresJournal(server.dsn, schema=schema, durability="process") as journal:
        run_log = await journal.create(RUN)
        await write(run_log, *texts(5))
        # As if the last unit had not been on its disk.
        (row,) = say(server.dsn, f"SELECT number FROM {schema}.runs")
        before = say(server.dsn, f"SELECT seq, digest FROM {schema}.records WHERE seq = 3")[0]
        say(server.dsn, f"DELETE FROM {schema}.records WHERE run = $1 AND seq > 3", row[0])
        say(server.dsn, f"UPDATE {schema}.runs SET seq = $1, digest = $2", *before)
        run_log.append(b"6")
        with pytest.raises(JournalFailed, match="the server has lost records"):
            await run_log.durable()
        await run_log.aclose()
        assert len(await journal.read(RUN)) == 3


async def test_a_server_that_stays_away_fails_the_run_log(server: Server, schema: str) -> None:
    """After the patience with it; what was acknowledged is still so, and the run can be opened later."""
    async with PostgresJournal(server.dsn, schema=schema, patience=1.0, lease_seconds=5) as journal:
        run_log = await journal.create(RUN)
        told: list[JournalError] = []
        run_log.on_failure = told.append
        await write(run_log, *texts(2))
        await anyio.to_thread.run_sync(server.stop)
        try:
            run_log.append(b"3")
            with anyio.fail_after(20):
                with pytest.raises(JournalFailed, match="cannot use PostgreSQL"):
                    await run_log.durable()
                await run_log.durable(2)
                await run_log.aclose()
                assert [type(error) for error in told] == [JournalFailed]
                with pytest.raises(JournalFailed):
                    await journal.read(RUN)
        finally:
            await anyio.to_thread.run_sync(server.start)
        run_log = await journal.open(RUN, steal=True)
        assert shown(list(run_log.lines)) == texts(2)
        await run_log.aclose()


async def test_letters_come_after_the_server_was_started_again(server: Server, schema: str) -> None:
    """Whoever listens listens again, and finds what was posted while nobody did."""
    async with PostgresJournal(server.dsn, schema=schema) as journal:
        run_log = await journal.create(RUN)
        async with anyio.create_task_group() as tasks:
            got: list[bytes] = []

            async def listen() -> None:
                async for letter in run_log.inbox():
                    got.append(letter.text)  # noqa: PERF401  (they come one by one)

            tasks.start_soon(listen)
            await journal.post(RUN, b"1")
            await wait_until(lambda: got == [b"1"])
            await anyio.to_thread.run_sync(server.restart)
            await journal.post(RUN, b"2")
            await wait_until(lambda: got == [b"1", b"2"])
            say(server.dsn, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
            await journal.post(RUN, b"3")
            await wait_until(lambda: got == [b"1", b"2", b"3"])
            tasks.cancel_scope.cancel()
        await run_log.aclose()


# Processes ------------------------------------------------------------------------------------------------------------


class Child:
    """A process that writes until something happens to it."""

    def __init__(self, server: Server, schema: str, level: str = "power", lease: float = 30) -> None:
        words = [sys.executable, str(HELPERS / "journals" / "postgres_child.py"), server.dsn, schema, level, str(lease)]
        self._process = subprocess.Popen(
            words, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": python_path()}
        )
        assert self.line() == "READY"

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def rest(self) -> list[str]:
        """What it has said since, to its end."""
        said, _ = self._process.communicate(timeout=30)
        return said.split("\n")[:-1]


@pytest.mark.parametrize("level", ["process", "power"])
async def test_nothing_that_was_acknowledged_is_lost_by_kill_9(server: Server, schema: str, level: str) -> None:
    """At whatever moment; and the run is free at once, since everybody on this machine sees that its owner is dead."""
    chance = random.Random(9)
    for _ in range(60 if NIGHT else 4):
        child = Child(server, schema, level)
        for _ in range(chance.randrange(30)):
            child.line()
        await anyio.sleep(chance.random() * 0.01)
        child.signal(signal.SIGKILL)
        said = [int(line) for line in child.rest()]
        async with PostgresJournal(server.dsn, schema=schema, durability=level) as journal:
            run_log = await journal.open(RUN)
            assert shown(list(run_log.lines)) == texts(len(run_log.lines))
            assert len(run_log.lines) >= (said[-1] if said else 0)
            await run_log.aclose()
            await journal.delete(RUN)


class Unfenced(Sql):
    """Statements that let a former owner write on."""

    fence = "$2::bigint IS NOT NULL AND seq = $6 AND digest = $7"


class UnfencedJournal(PostgresJournal):
    """A journal without the fence, whose owners do not look whether the run is still theirs."""

    sql_type = Unfenced

    async def _work(self, writer: PostgresWriter, notify_message: Callable[[], None]) -> None:
        await writer.run()


async def test_it_is_the_fence_that_keeps_a_former_owner_away(server: Server) -> None:
    """Without it, the record of the former owner stands where the new one's should."""
    for kind, count in ((UnfencedJournal, 1), (PostgresJournal, 0)):
        with fresh_schema(server.dsn) as schema:
            async with kind(server.dsn, schema=schema) as journal, kind(server.dsn, schema=schema) as other:
                run_log = await journal.create(RUN)
                thief = await other.open(RUN, steal=True)
                run_log.append(b"late")
                with suppress(JournalError):
                    await run_log.durable()
                assert len(await journal.read(RUN)) == count
                await run_log.aclose()
                await thief.aclose()


async def test_a_process_that_slept_through_its_lease_writes_nothing_more(server: Server, schema: str) -> None:
    """It lives, so its lease counts; when that has run out another one takes the run, and the sleeper is refused."""
    child = Child(server, schema, lease=1)
    for _ in range(5):
        child.line()
    child.signal(signal.SIGSTOP)
    try:
        async with PostgresJournal(server.dsn, schema=schema) as journal:
            with pytest.raises(RunHeld):
                await journal.open(RUN)
            with anyio.fail_after(20):
                while (await journal.runs())[0].is_held:
                    await anyio.sleep(0.05)
            run_log = await journal.open(RUN)
            child.signal(signal.SIGCONT)
            assert child.rest()[-1].startswith("FAILED OwnerLost")
            await write(run_log, text_of(len(run_log.lines) + 1))
            await run_log.aclose()
            lines = await journal.read(RUN)
            assert shown(lines) == texts(len(lines))
            assert len(lines) == len(run_log.lines) + 1
    finally:
        child.signal(signal.SIGKILL)
        child.rest()


async def test_an_idle_owner_keeps_its_run_and_hears_of_its_loss(server: Server, schema: str) -> None:
    """Its lease is renewed without a word from the loop; a thief is noticed without a write."""
    async with PostgresJournal(server.dsn, schema=schema, lease_seconds=0.6) as journal:
        run_log = await journal.create(RUN)
        told: list[JournalError] = []
        run_log.on_failure = told.append
        await anyio.sleep(1.2)
        assert [held.is_held for held in await journal.runs()] == [True]
        thief = await journal.open(RUN, steal=True)
        await wait_until(lambda: [type(error) for error in told] == [OwnerLost])
        await run_log.aclose()
        assert [held.is_held for held in await journal.runs()] == [True]
        await thief.aclose()


async def test_a_letter_comes_from_another_process(server: Server, schema: str) -> None:
    """From a terminal on another machine, say."""
    async with PostgresJournal(server.dsn, schema=schema) as journal:
        run_log = await journal.create(RUN)
        program = (
            "import anyio\nfrom dagrun.journal.postgres.journal import PostgresJournal\n"
            "async def main():\n"
            f"    async with PostgresJournal({server.dsn!r}, schema={schema!r}) as journal:\n"
            f"        await journal.post({RUN!r}, b'yes')\n"
            "anyio.run(main)\n"
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.run_process, [sys.executable, "-c", program])
            with anyio.fail_after(20):
                assert [letter.text for letter in await take_messages(run_log, 1)] == [b"yes"]
        await run_log.aclose()
