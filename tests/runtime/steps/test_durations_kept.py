"""Journals keep how long calls took from one process to the next; and never is that in the way of a run."""

from __future__ import annotations

import json
import logging
import os
import resource
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

import dagrun
from dagrun import (
    Durability,
    Engine,
    Event,
    MemoryJournal,
    Plan,
    Policy,
    PostgresJournal,
    SQLiteJournal,
    State,
    Status,
    Step,
)
from dagrun.errors import JournalFailed, RecordRefused
from dagrun.events import AttemptStarted
from dagrun.extend import Durations, Journal, SupportsDurations
from dagrun.journal import summary_cache as remembered
from dagrun.kernel.decide.durations import FADES_ABOVE
from postgres_schemas import fresh_schema, say
from test_learned_order import BY_HOPS, BY_SECONDS, ONE, STEPS, TOOLS, known

pytestmark = pytest.mark.anyio

PLAN: Final = Plan(steps=STEPS)


async def order(journal: Journal, policy: Policy = ONE) -> list[str]:
    """Run the plan without an engine, as a process of its own would, and say in which order steps were started."""
    log: list[Event] = []
    result = await dagrun.run(PLAN, tools=TOOLS, policy=policy, journal=journal, on_event=log.append)
    result.raise_for_status()
    return [event.step for event in log if isinstance(event, AttemptStarted)]


async def counts(journal: SupportsDurations) -> dict[str, int]:
    kept = Durations.from_dict(await journal.durations())
    return {tool: kept.count(tool) for tool in kept}


# What is kept ---------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "process", "power"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Journal:
    if request.param == "memory":
        return MemoryJournal()
    return SQLiteJournal(tmp_path / "runs", request.param)


async def test_the_run_of_a_later_process_knows_which_tool_is_slow(journal: Any) -> None:
    """Each time more of it, as each run adds what it alone has seen, and not what it has read as well."""
    assert await counts(journal) == {}
    assert await order(journal) == BY_HOPS
    assert await counts(journal) == {"fast": 2, "slow": 1}
    assert await order(journal) == BY_SECONDS
    assert await counts(journal) == {"fast": 4, "slow": 2}


async def test_what_the_host_brings_is_not_added_to_from_the_journal(journal: Any) -> None:
    """It may be in there already: each run of its own would count the same calls once more."""
    mine = Durations()
    for _ in range(3):
        (await dagrun.run(PLAN, tools=TOOLS, policy=ONE, journal=journal, durations=mine)).raise_for_status()

    assert {tool: mine.count(tool) for tool in mine} == await counts(journal) == {"slow": 3, "fast": 6}


async def test_an_engine_reads_a_journal_once_and_writes_after_each_run(journal: Any) -> None:
    """Read twice, the same calls would count twice."""
    await journal.keep_durations(known(slow=10.0, fast=1.0).as_dict())
    async with Engine() as engine:
        for _ in range(2):
            (await engine.run(PLAN, tools=TOOLS, policy=ONE, journal=journal)).raise_for_status()
        assert (engine.durations.count("slow"), engine.durations.count("fast")) == (3, 5)
    assert await counts(journal) == {"slow": 3, "fast": 5}


class Asked(MemoryJournal):
    """A journal that counts how often it is asked for durations."""

    asked = 0

    async def durations(self) -> dict[str, Any]:
        self.asked += 1
        return await super().durations()


async def test_a_run_that_has_no_use_for_it_neither_reads_nor_writes() -> None:
    """It knows nothing of it, and pays nothing."""
    journal = Asked()
    await order(journal, Policy())
    assert journal.asked == 0
    assert await counts(journal) == {}


async def test_runs_that_fail_or_are_cancelled_have_learned_too(journal: Any) -> None:
    """What was seen was seen."""
    plan = Plan(steps=[Step(id="f", tool="fast"), Step(id="s", tool="slow", depends_on=["f"])])

    async def fail() -> None:
        async with dagrun.start(plan, tools=TOOLS, policy=ONE, journal=journal):
            await anyio.sleep(5)
            raise LookupError("of the host")

    with pytest.raises(LookupError, match="of the host"):
        await fail()
    assert await counts(journal) == {"fast": 1}


async def test_a_resumed_run_knows_and_learns(journal: Any) -> None:
    """Its first process has kept what it learned; the second one goes on by it, and adds what it does itself."""
    before = [Step(id="first", tool="fast"), Step(id="second", tool="slow", depends_on=["first"])]
    after = [Step(id=s.id, tool=s.tool, depends_on=[*s.depends_on, "second"]) for s in STEPS]
    plan = Plan(steps=[*before, *after])
    async with dagrun.start(plan, tools=TOOLS, policy=ONE, journal=journal, run_id="run") as running:
        await anyio.sleep(11.5)  # both have ended, and a runs
        assert running.states["a"] is State.RUNNING
        running.suspend()
        await running.result()
    assert await counts(journal) == {"fast": 1, "slow": 1}

    log: list[Event] = []
    async with dagrun.resume("run", journal=journal, tools=TOOLS, on_event=log.append) as running:
        assert (await running.result()).status is Status.SUCCEEDED
    assert [event.step for event in log if isinstance(event, AttemptStarted)] == BY_SECONDS
    assert await counts(journal) == {"fast": 3, "slow": 2}


async def test_what_no_durations_are_is_not_kept(journal: Any) -> None:
    """It may come from a program of the host."""
    with pytest.raises(RecordRefused, match="durations"):
        await journal.keep_durations({"format": 1, "tools": {"slow": [1]}})


# No fault shows -------------------------------------------------------------------------------------------------------


class Forgetful:
    """A journal that keeps no durations; a third one that somebody has written."""

    def __init__(self) -> None:
        self._inner = MemoryJournal()
        self.durability = self._inner.durability

    def __getattr__(self, name: str) -> Any:
        if "durations" in name:
            raise AttributeError(name)
        return getattr(self._inner, name)


class Broken(MemoryJournal):
    """A journal whose durations can be neither read nor written."""

    async def durations(self) -> dict[str, Any]:
        raise OSError("the disk is on fire")

    async def keep_durations(self, new: dict[str, Any]) -> None:
        raise OSError("the disk is on fire")


class Hanging(MemoryJournal):
    """A journal that never comes back with them."""

    async def keep_durations(self, new: dict[str, Any]) -> None:
        await anyio.sleep_forever()


class Lying(MemoryJournal):
    """A journal that gives something else."""

    async def durations(self) -> Any:
        return ["no", {"durations": 1}]


async def test_a_journal_need_not_keep_them() -> None:
    """It is an optional part of the protocol."""
    journal: Any = Forgetful()
    assert not isinstance(journal, SupportsDurations)
    assert await order(journal) == await order(journal) == BY_HOPS


@pytest.mark.parametrize("kind", [Broken, Hanging, Lying], ids=lambda kind: kind.__name__)
async def test_a_run_does_not_fail_with_them(kind: type[MemoryJournal], caplog: pytest.LogCaptureFixture) -> None:
    """They are only good to know: the log tells, and nothing else."""
    with caplog.at_level(logging.WARNING, logger="dagrun"):
        assert await order(kind()) == BY_HOPS
    assert "how long calls took" in caplog.text


# The file -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def file_in(folder: Path, text: str = "") -> Path:
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / remembered.DURATIONS
    if text:
        path.write_text(text)
        path.chmod(0o600)
    return path


async def test_the_file_is_for_its_user_alone_and_no_run(folder: Path) -> None:
    """Names of tools are nobody else's business; and lists of runs stay lists of runs."""
    journal = SQLiteJournal(folder)
    await order(journal)
    path = folder / remembered.DURATIONS

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(await journal.runs()) == 1
    assert sorted(name for name in os.listdir(folder) if name.startswith(".")) == [remembered.DURATIONS]


DAMAGED: Final = ("{", "[" * 100_000, "null", '{"format": 2, "tools": {}}', '{"format": 1}', "\x00\x01")


@pytest.mark.parametrize("text", DAMAGED, ids=lambda text: text[:12])
async def test_a_damaged_file_is_made_anew(folder: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    """With a warning that names it; the run goes on as if there were none."""
    path = file_in(folder, text)
    with caplog.at_level(logging.WARNING, logger="dagrun"):
        assert await order(SQLiteJournal(folder)) == BY_HOPS
    assert str(path) in caplog.text
    assert await order(SQLiteJournal(folder)) == BY_SECONDS


async def test_a_file_that_is_far_too_big_is_not_read(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever may write there must not be able to fill the memory of who reads."""
    path = file_in(folder, "{}")
    os.truncate(path, 2**40)
    with caplog.at_level(logging.WARNING, logger="dagrun"):
        assert remembered.read_durations(folder).as_dict() == Durations().as_dict()
    assert "more than" in caplog.text


def _link(path: Path, aside: Path) -> None:
    aside.write_text(json.dumps(known(slow=10.0, fast=1.0).as_dict()))
    path.symlink_to(aside)


def _fifo(path: Path, _: Path) -> None:
    os.mkfifo(path, 0o600)


def _open_to_all(path: Path, _: Path) -> None:
    path.write_text(json.dumps(known(slow=10.0, fast=1.0).as_dict()))
    path.chmod(0o666)


@pytest.mark.parametrize("make", [_link, _fifo, _open_to_all], ids=lambda make: make.__name__.strip("_"))
async def test_a_file_that_others_could_have_put_there_is_left_alone(
    folder: Path, tmp_path: Path, make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It is neither believed, nor written to, nor waited for; the run goes on."""
    aside = tmp_path / "aside"
    make(file_in(folder), aside)
    before = (folder / remembered.DURATIONS).lstat()
    with caplog.at_level(logging.WARNING, logger="dagrun"):
        assert await order(SQLiteJournal(folder)) == BY_HOPS
    after = (folder / remembered.DURATIONS).lstat()

    assert remembered.DURATIONS in caplog.text
    assert (before.st_mode, before.st_ino, before.st_mtime_ns) == (after.st_mode, after.st_ino, after.st_mtime_ns)
    with pytest.raises(JournalFailed, match=r"link|plain file|everybody"):
        await SQLiteJournal(folder).durations()


def test_the_file_is_never_half_written(folder: Path) -> None:
    """Whoever reads while others write sees a whole one; and of what one process adds, nothing is lost."""
    new = known(**{f"tool{number}": 1.0 for number in range(100)})
    remembered.add_durations(folder, new, Durability.PROCESS)

    def write() -> None:
        for _ in range(10):
            remembered.add_durations(folder, new, Durability.PROCESS)

    writers = [threading.Thread(target=write) for _ in range(3)]
    for writer in writers:
        writer.start()
    seen = [0]
    while any(writer.is_alive() for writer in writers):
        seen.append(remembered.read_durations(folder).count("tool99"))
    for writer in writers:
        writer.join()

    assert seen == sorted(seen)
    assert remembered.read_durations(folder).count("tool99") == 31
    assert os.listdir(folder) == [remembered.DURATIONS]


def test_what_cannot_be_written_leaves_the_old_file_and_nothing_else(folder: Path) -> None:
    """A disk that is full after the first 100 bytes, say."""
    remembered.add_durations(folder, known(slow=1.0), Durability.PROCESS)
    before = (folder / remembered.DURATIONS).read_text()
    with _no_file_over(100), pytest.raises(JournalFailed, match="cannot write"):
        remembered.add_durations(folder, known(**{f"tool{number}": 1.0 for number in range(10)}), Durability.PROCESS)

    assert os.listdir(folder) == [remembered.DURATIONS]
    assert (folder / remembered.DURATIONS).read_text() == before


@contextmanager
def _no_file_over(most: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_the_file_stays_small(folder: Path) -> None:
    """A service adds to it for years."""
    for _ in range(3):
        remembered.add_durations(folder, _many(), Durability.PROCESS)
    assert remembered.read_durations(folder).count("tool") <= FADES_ABOVE
    assert (folder / remembered.DURATIONS).stat().st_size < 3000


def _many() -> Durations:
    made = Durations()
    for number in range(FADES_ABOVE):
        made.add("tool", 1.03**number * 1e-6)
    return made


# PostgreSQL -----------------------------------------------------------------------------------------------------------


@contextmanager
def _schema(postgres: str) -> Iterator[str]:
    with fresh_schema(postgres) as schema:
        yield schema


@pytest.mark.rigs
@pytest.mark.real_time
class TestPostgres:
    """The same on a real server."""

    async def test_a_later_process_knows(self, postgres: str) -> None:
        """Through the database, and with nothing in it at first."""
        with _schema(postgres) as schema:
            for number in range(2):
                async with PostgresJournal(postgres, schema=schema) as journal:
                    assert await counts(journal) == ({"slow": 1} if number else {})
                    await journal.keep_durations(known(slow=10.0).as_dict())
                    assert await counts(journal) == {"slow": number + 1}

    async def test_nothing_is_lost_when_several_add_at_once(self, postgres: str) -> None:
        """They wait for each other, the makers of the table included."""
        with _schema(postgres) as schema:
            async with PostgresJournal(postgres, schema=schema) as journal, anyio.create_task_group() as tasks:
                for _ in range(12):
                    tasks.start_soon(journal.keep_durations, known(slow=10.0).as_dict())
            async with PostgresJournal(postgres, schema=schema) as journal:
                assert await counts(journal) == {"slow": 12}

    async def test_what_is_damaged_there_is_made_anew(self, postgres: str) -> None:
        """Somebody may have written to the table."""
        with _schema(postgres) as schema:
            async with PostgresJournal(postgres, schema=schema) as journal:
                await journal.keep_durations(known(slow=10.0).as_dict())
                say(postgres, f"UPDATE {schema}.durations SET text = '['")
                assert await counts(journal) == {}
                await journal.keep_durations(known(slow=10.0).as_dict())
                assert await counts(journal) == {"slow": 1}
