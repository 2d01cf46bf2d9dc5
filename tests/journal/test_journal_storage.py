"""Disks that fill up, files that vanish, processes that die: the run stops, says why, and nothing acknowledged is lost.

Full disks are a tmpfs of 600 kB where a test may mount one, and a limit for the size of files everywhere.
"""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from dagrun import SQLiteJournal
from dagrun.errors import JournalError, JournalFailed, OwnerLost, RunHeld
from dagrun.journal.sqlite.run_log import SQLiteRunLog
from folders import HELPERS
from journal_child import RUN, text_of

pytestmark = [pytest.mark.anyio, pytest.mark.real_time, pytest.mark.both_backends]

LEVELS = ["process", "power"]


@pytest.fixture
def anyio_backend() -> str:
    """Disks do not depend on the loop."""
    return "asyncio"


class Child:
    """A process that writes a run."""

    def __init__(self, folder: Path, level: str, *options: str) -> None:
        self.acknowledged = 0
        self.said: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, str(HELPERS / "journals" / "journal_child.py"), str(folder), level, *options],
            stdout=subprocess.PIPE,
            text=True,
        )

    def read(self, until: Callable[[str], bool]) -> bool:
        """Read what it says until a line that fits, or its end; say whether there was one."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.strip().isdecimal():
                self.acknowledged = int(line)
            else:
                self.said.append(line.strip())
            if until(line):
                return True
        return False

    def writes(self, count: int) -> None:
        """Wait until *count* records more are acknowledged."""
        last = self.acknowledged + count
        assert self.read(lambda line: line.strip().isdecimal() and int(line) >= last), self.said

    def kill(self) -> None:
        """End it without a word, and hear what it had still said."""
        self.process.kill()
        self.read(lambda _: False)
        # It has closed its files a moment before it has ended. Nobody has asked for its end after this, either.
        os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)


@contextmanager
def child(folder: Path, level: str, *options: str) -> Iterator[Child]:
    """A process that writes a run; it has ended afterwards."""
    started = Child(folder, level, *options)
    try:
        yield started
    finally:
        started.process.send_signal(signal.SIGCONT)
        started.process.kill()
        started.process.communicate()


async def assert_nothing_lost(folder: Path, acknowledged: int) -> int:
    """All that was acknowledged can be read, and whatever is there is what was written, in whole units."""
    lines = await SQLiteJournal(folder).read(RUN)
    assert len(lines) >= acknowledged
    assert [line.text for line in lines] == [text_of(line.seq) for line in lines]
    end = 0
    while end < len(lines):
        end += end % 9 + 1
    assert end == len(lines), "the last unit is not whole"
    return len(lines)


@pytest.mark.rigs
@pytest.mark.parametrize("level", LEVELS)
async def test_nothing_acknowledged_is_lost_by_kill_9(tmp_path: Path, level: str) -> None:
    """Whenever it comes; and the run can be taken over at once, though its lease has not run out."""
    for number in range(6):
        folder = tmp_path / str(number)
        with child(folder, level, "--lease", "3600") as writer:
            writer.writes(1 + number * 37)
            writer.kill()
            count = await assert_nothing_lost(folder, writer.acknowledged)
            run_log = await SQLiteJournal(folder, level).open(RUN)
            assert len(run_log.lines) == count
            run_log.append(text_of(count + 1))
            await run_log.durable()
            await run_log.aclose()


@pytest.mark.rigs
async def test_a_process_that_was_stopped_can_be_robbed_and_writes_nothing_when_it_wakes(tmp_path: Path) -> None:
    """Its lease keeps others away for a while; after that, the token keeps it away."""
    with child(tmp_path / "runs", "process", "--lease", "1.5") as writer:
        journal = SQLiteJournal(tmp_path / "runs", busy_seconds=0.1)
        await stop_between_transactions(writer, journal)
        run_log = await taken_when_free(journal)
        count = len(run_log.lines)
        run_log.append(b'"new owner"')
        await run_log.durable()
        os.kill(writer.process.pid, signal.SIGCONT)
        assert writer.read(lambda line: line.startswith("CLOSED"))
        assert writer.acknowledged <= count
        assert "TOLD OwnerLost" in writer.said
        assert any(said.startswith("FAILED OwnerLost") for said in writer.said)
        await run_log.aclose()
        lines = await journal.read(RUN)
        assert [line.text for line in lines[:count]] == [text_of(seq) for seq in range(1, count + 1)]
        assert [line.text for line in lines[count:]] == [b'"new owner"']


async def stop_between_transactions(writer: Child, journal: SQLiteJournal) -> None:
    """Stop it where it does not lock the database: while it does, nobody can take the run over."""
    with anyio.fail_after(30):
        while True:
            writer.writes(20)
            os.kill(writer.process.pid, signal.SIGSTOP)
            try:
                await journal.open(RUN)
            except RunHeld as error:
                assert re.search(f"process {writer.process.pid} on .*, at least until 20", str(error))  # noqa: PT017
                return
            except JournalFailed:
                os.kill(writer.process.pid, signal.SIGCONT)


async def taken_when_free(journal: SQLiteJournal) -> SQLiteRunLog:
    """Open the run as soon as that is possible."""
    with anyio.fail_after(30):
        while True:
            try:
                return await journal.open(RUN)
            except RunHeld:
                await anyio.sleep(0.05)


@pytest.mark.rigs
@pytest.mark.parametrize("level", LEVELS)
async def test_a_file_that_may_not_grow_stops_the_run(tmp_path: Path, level: str) -> None:
    """The error says what is wrong, once, and what was acknowledged before can be read."""
    with child(tmp_path / "runs", level, "--file-size", "500000") as writer:
        assert writer.read(lambda line: line.startswith("CLOSED"))
        assert writer.acknowledged > 100
        assert writer.said.count("TOLD JournalFailed") == 1
        (failed,) = [said for said in writer.said if said.startswith("FAILED")]
        assert failed.startswith("FAILED JournalFailed cannot write")
        await assert_nothing_lost(tmp_path / "runs", writer.acknowledged)


@pytest.mark.rigs
@pytest.mark.parametrize("level", LEVELS)
async def test_a_full_disk_stops_the_run(tmp_path: Path, level: str) -> None:
    """And when there is room again, it goes on where it was."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "none", disk], capture_output=True).returncode:
        pytest.skip("a small disk cannot be mounted here; as root it can")
    try:
        with child(disk / "runs", level) as writer:
            assert writer.read(lambda line: line.startswith("CLOSED"))
            assert any(said.startswith("FAILED JournalFailed cannot write") and "full" in said for said in writer.said)
            await assert_nothing_lost(disk / "runs", writer.acknowledged)
        subprocess.run(["mount", "-o", "remount,size=6m", disk], check=True)
        run_log = await SQLiteJournal(disk / "runs", level).open(RUN)
        assert len(run_log.lines) >= writer.acknowledged
        run_log.append(b"1")
        await run_log.durable()
        await run_log.aclose()
    finally:
        subprocess.run(["umount", disk], check=True)


@contextmanager
def locked(database: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process in a transaction of its own; it ends it when its input ends."""
    script = (
        "import sqlite3, sys; d = sqlite3.connect(sys.argv[1], isolation_level=None); "
        "d.execute('BEGIN IMMEDIATE'); print('locked', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(database)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield process
    finally:
        process.communicate()


class Written:
    """A run log with five records, and all that its failure was told by."""

    def __init__(self, run_log: SQLiteRunLog) -> None:
        self.run_log = run_log
        self.told: list[JournalError] = []
        run_log.on_failure = self.told.append

    async def fails(self, match: str) -> None:
        """The next record is not acknowledged, nor is any after it, and that is told once."""
        seq = self.run_log.append(b"lost")
        with pytest.raises(JournalFailed, match=match):
            await self.run_log.durable(seq)
        self.run_log.append(b"later")
        self.run_log.flush()
        with pytest.raises(JournalFailed, match=match):
            await self.run_log.durable()
        await self.run_log.durable(5)  # it is durable all the same
        await self.run_log.aclose()
        assert [type(error) for error in self.told] == [JournalFailed]


async def written(folder: Path, level: str = "process", busy_seconds: float = 0.2) -> Written:
    """Write five records."""
    run_log = await SQLiteJournal(folder, level, busy_seconds=busy_seconds).create(RUN)
    for seq in range(1, 6):
        run_log.append(b"%d" % seq)
    await run_log.durable()
    return Written(run_log)


async def read(folder: Path) -> list[bytes]:
    """The texts of the run in *folder*."""
    return [line.text for line in await SQLiteJournal(folder).read(RUN)]


FIVE = [b"1", b"2", b"3", b"4", b"5"]


@pytest.mark.rigs
async def test_a_lock_of_two_seconds_is_waited_for(tmp_path: Path) -> None:
    """A backup, say: nothing is lost, nothing fails, and the loop goes on meanwhile."""
    run = await written(tmp_path / "runs", busy_seconds=30)
    ticks = 0
    with locked(tmp_path / "runs" / RUN / "journal.db") as other:
        seq = run.run_log.append(b"6")
        run.run_log.flush()
        for _ in range(200):
            await anyio.sleep(0.01)
            ticks += 1
        assert await read(tmp_path / "runs") == FIVE
        assert other.stdin is not None
        other.stdin.close()
        other.stdin = None
        await run.run_log.durable(seq)
    await run.run_log.aclose()
    assert (run.told, ticks) == ([], 200)
    assert await read(tmp_path / "runs") == [*FIVE, b"6"]


@pytest.mark.costly
async def test_a_lock_for_ever_stops_the_run(tmp_path: Path) -> None:
    """The error says that another process has the database."""
    run = await written(tmp_path / "runs")
    with locked(tmp_path / "runs" / RUN / "journal.db"):
        await run.fails("another process has locked it")
        with pytest.raises(JournalFailed, match="another process has locked it"):
            await SQLiteJournal(tmp_path / "runs", busy_seconds=0.1).open(RUN, steal=True)
        assert await read(tmp_path / "runs") == FIVE
    assert await read(tmp_path / "runs") == FIVE


def _delete(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def _replace_database(folder: Path) -> None:
    copy = folder / "copy"
    copy.write_bytes((folder / "journal.db").read_bytes())
    copy.rename(folder / "journal.db")


def _replace_folder(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))
    folder.mkdir(mode=0o700)


LOSSES: dict[str, Callable[[Path], object]] = {
    "the database is deleted": _delete("journal.db"),
    "the log is deleted": _delete("journal.db-wal"),
    "the anchor is deleted": _delete("anchor"),
    "the database is replaced": _replace_database,
    "the folder is moved": lambda folder: folder.rename(folder.with_name("moved")),
    "the folder is replaced": _replace_folder,
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("loss", LOSSES)
async def test_files_that_vanish_stop_the_run(tmp_path: Path, loss: str, level: str) -> None:
    """SQLite would go on writing to files that nobody finds any more, without an error."""
    run = await written(tmp_path / "runs", level)
    LOSSES[loss](tmp_path / "runs" / RUN)
    await run.fails("were deleted or replaced|cannot write")


@pytest.mark.parametrize("level", LEVELS)
async def test_a_run_that_cannot_be_written_says_so(tmp_path: Path, level: str) -> None:
    """Root may write where nobody may, so the files are made immutable then."""
    run = await written(tmp_path / "runs", level)
    await run.run_log.aclose()
    with read_only(tmp_path / "runs" / RUN), pytest.raises(JournalFailed, match="cannot"):
        await SQLiteJournal(tmp_path / "runs", level).open(RUN)
    assert await read(tmp_path / "runs") == FIVE


@pytest.mark.parametrize("level", LEVELS)
async def test_a_folder_that_cannot_be_written_takes_no_run(tmp_path: Path, level: str) -> None:
    """And no half of one is left in it."""
    folder = tmp_path / "runs"
    folder.mkdir(mode=0o700)
    with read_only(folder), pytest.raises(JournalFailed, match="cannot"):
        await SQLiteJournal(folder, level).create(RUN)
    assert list(folder.iterdir()) == []


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Make *folder* and the files in it such that even we cannot write them."""
    places = [folder, *(path for path in folder.iterdir() if path.is_file())]
    if os.geteuid() == 0:
        if subprocess.run(["chattr", "+i", *places], capture_output=True).returncode:
            subprocess.run(["chattr", "-i", *places], capture_output=True)
            pytest.skip("this file system cannot make files immutable, and root may write all others")
        try:
            yield
        finally:
            subprocess.run(["chattr", "-i", *places], check=True)
        return
    modes = [path.stat().st_mode for path in places]
    for path in places:
        path.chmod(0o500)
    try:
        yield
    finally:
        for path, mode in zip(places, modes, strict=True):
            path.chmod(mode)


async def test_a_writer_that_broke_a_rule_of_the_database_is_told(tmp_path: Path) -> None:
    """A row of somebody else in the place of the next record is no record of ours."""
    run = await written(tmp_path / "runs")
    other = sqlite3.connect(tmp_path / "runs" / RUN / "journal.db", isolation_level=None)
    other.execute("INSERT INTO records VALUES (6, 'foreign', '')")
    other.close()
    await run.fails("UNIQUE")


@pytest.mark.parametrize("level", LEVELS)
async def test_an_owner_that_lost_the_run_while_idle_is_told(tmp_path: Path, level: str) -> None:
    """It renews its lease now and then, and finds that it has none: nobody has to write for that."""
    journal = SQLiteJournal(tmp_path / "runs", level, lease_seconds=0.2)
    run_log = await journal.create(RUN)
    told: list[JournalError] = []
    has_told = anyio.Event()

    def tell(error: JournalError) -> None:
        told.append(error)
        has_told.set()

    run_log.on_failure = tell
    thief = await journal.open(RUN, steal=True)
    with anyio.fail_after(30):
        await has_told.wait()
    assert [type(error) for error in told] == [OwnerLost]
    with pytest.raises(OwnerLost):
        await run_log.durable()
    await run_log.aclose()
    await thief.aclose()
