"""The journal in files of SQLite does what every journal does, at both levels; and what only files have to do."""

from __future__ import annotations

import dataclasses
import os
import re
import sqlite3
import stat
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from dagrun import Durability, SQLiteJournal
from dagrun.errors import ContractError, JournalError, JournalFailed, RunHeld, RunNotFound
from dagrun.extend import Journal
from dagrun.journal import lease
from dagrun.journal.anchor import Anchor, AnchorMark
from dagrun.journal.anchor import read as read_anchor
from dagrun.testing.journal_suite import RUN, JournalSuite, take_messages, write
from dagrun.testing.journal_suite.store import until

pytestmark = [pytest.mark.anyio, pytest.mark.both_backends, pytest.mark.real_time]


class SQLiteSuite(JournalSuite):
    """The suite of every journal, in a folder of the test."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "runs"

    async def make_journal(self) -> Journal:
        return SQLiteJournal(self.folder, self.durability)

    async def reopen_journal(self, journal: Journal) -> Journal:
        return SQLiteJournal(self.folder, self.durability)


class TestProcess(SQLiteSuite):
    """At the level that survives the end of the process."""


@pytest.mark.costly
class TestPower(SQLiteSuite):
    """At the level that survives a power cut."""

    durability = Durability.POWER


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the runs are."""
    return tmp_path / "runs"


async def make_run(folder: Path, *texts: bytes) -> SQLiteJournal:
    """Write a run, and let it go."""
    journal = SQLiteJournal(folder)
    run_log = await journal.create(RUN)
    for text in texts:
        run_log.append(text)
    await run_log.aclose()
    return journal


# Places ---------------------------------------------------------------------------------------------------------------


async def test_files_are_for_their_user_alone(folder: Path) -> None:
    """Whatever the umask: records hold what tools have read."""
    before = os.umask(0)
    try:
        journal = SQLiteJournal(folder)
        run_log = await journal.create(RUN)
        await write(run_log, b"1")
        await journal.post(RUN, b"1")
        found = {path: path.lstat().st_mode for path in (folder, *folder.rglob("*"))}
        await run_log.aclose()
    finally:
        os.umask(before)
    assert {path.name for path in found} >= {
        "journal.db",
        "journal.db-wal",
        "journal.db-shm",
        "anchor",
        "inbox",
        ".wake",
    }
    for path, mode in found.items():
        assert stat.S_IMODE(mode) == (0o700 if stat.S_ISDIR(mode) else 0o600), path


def _link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def _pipe(path: Path) -> None:
    if path.is_dir():
        path.rename(path.with_name("elsewhere"))
    else:
        path.unlink()
    os.mkfifo(path, 0o600)


def _open_to_all(path: Path) -> None:
    path.chmod(path.stat().st_mode | stat.S_IWOTH)


def _foreign(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(path, 65534, -1)


PLACES = ["", RUN, f"{RUN}/inbox", f"{RUN}/artifacts", f"{RUN}/journal.db", f"{RUN}/anchor"]
TRICKS: dict[str, tuple[Callable[[Path], None], str]] = {
    "a link": (_link, "symbolic link"),
    "a pipe": (_pipe, "is not a"),
    "writable for all": (_open_to_all, "written by everybody"),
    "somebody else's": (_foreign, "belongs to user 65534"),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("trick", TRICKS)
async def test_a_place_that_is_not_ours_is_refused(folder: Path, place: str, trick: str) -> None:
    """By whatever leads to it, without hanging on a pipe; the message names the place and what is wrong with it."""
    journal = await make_run(folder, b"1")
    act, words = TRICKS[trick]
    act(folder / place if place else folder)
    name = re.escape(str(folder / place if place else folder))
    with anyio.fail_after(20):
        for use in (journal.read, journal.open, journal.delete):
            with pytest.raises(JournalFailed, match=f"{name} .*{words}"):
                await use(RUN)
        if place in {"", RUN, f"{RUN}/inbox"}:
            with pytest.raises(JournalFailed, match=f"{name} .*{words}"):
                await journal.post(RUN, b"1")


@pytest.mark.parametrize("trick", TRICKS)
async def test_no_run_is_made_in_a_place_that_is_not_ours(folder: Path, trick: str) -> None:
    """Somebody else could read it, or change it."""
    folder.mkdir(mode=0o700)
    act, words = TRICKS[trick]
    act(folder)
    with pytest.raises(JournalFailed, match=words):
        await SQLiteJournal(folder).create(RUN)


async def test_a_file_is_no_folder_for_runs(folder: Path) -> None:
    """The message says so."""
    folder.write_text("")
    with pytest.raises(JournalFailed, match="is not a folder"):
        await SQLiteJournal(folder).create(RUN)
    with pytest.raises(JournalFailed, match="is not a folder"):
        await SQLiteJournal(folder).runs()


async def test_nothing_is_made_before_there_is_a_run(folder: Path) -> None:
    """Looking into a place leaves nothing behind."""
    journal = SQLiteJournal(folder)
    assert await journal.runs() == []
    with pytest.raises(RunNotFound):
        await journal.read(RUN)
    await journal.aclose()
    assert not folder.exists()


async def test_what_a_crash_has_left_of_a_new_run_is_no_run(folder: Path) -> None:
    """A run gets its name when it is complete; strange folders are not runs either."""
    journal = await make_run(folder)
    (folder / ".new-0123").mkdir()
    (folder / "notes").mkdir()
    (folder / "a file").write_text("")
    assert [held.run_id for held in await journal.runs()] == [RUN]


def test_memory_is_no_level_of_files(folder: Path) -> None:
    """It would promise less than it costs; a level that nobody knows is refused, too."""
    with pytest.raises(ContractError):
        SQLiteJournal(folder, Durability.MEMORY)
    with pytest.raises(ValueError, match="paper"):
        SQLiteJournal(folder, "paper")


# Owners ---------------------------------------------------------------------------------------------------------------


def set_lease(folder: Path, **columns: object) -> None:
    """Change the row of the lease."""
    database = sqlite3.connect(folder / RUN / "journal.db", isolation_level=None)
    for name, value in columns.items():
        database.execute(f"UPDATE lease SET {name} = ?", (value,))
    database.close()


HERE = lease.this_process()
OWNERS: dict[str, tuple[object, bool]] = {
    "this process": (HERE, True),
    "a process of the same number that was started at another time": (dataclasses.replace(HERE, started=1), False),
    "a process that has ended": (dataclasses.replace(HERE, pid=2**22 + 1), False),
    "a process from before the machine was started": (dataclasses.replace(HERE, boot="another"), False),
    "a process on another machine": (dataclasses.replace(HERE, host="elsewhere", boot="another"), True),
    "a process in another container": (dataclasses.replace(HERE, space="pid:[1]", pid=2**22 + 1), True),
    "nobody can say who": ("{", True),
    "a name of other words": ('{"pid": "x"}', True),
}


@pytest.mark.parametrize("name", OWNERS)
async def test_who_can_hold_a_run(folder: Path, name: str) -> None:
    """Only who may still be alive, and only until the lease runs out."""
    journal = await make_run(folder, b"1")
    owner, holds = OWNERS[name]
    text = owner.encode() if isinstance(owner, lease.Owner) else owner
    set_lease(folder, owner=text, expires=4e9)
    assert [held.is_held for held in await journal.runs()] == [holds]
    if holds:
        with pytest.raises(RunHeld, match="at least until 2096"):
            await journal.open(RUN)
        with pytest.raises(RunHeld):
            await journal.delete(RUN)
        set_lease(folder, expires=1.0)
    run_log = await journal.open(RUN)
    await run_log.aclose()
    assert [held.is_held for held in await journal.runs()] == [False]


async def test_an_idle_owner_keeps_its_run(folder: Path) -> None:
    """Its lease is renewed without a word from the loop."""
    run_log = await SQLiteJournal(folder, lease_seconds=0.3).create(RUN)
    database = sqlite3.connect(folder / RUN / "journal.db", isolation_level=None)
    (before,) = database.execute("SELECT expires FROM lease").fetchone()
    with anyio.fail_after(20):
        await until(lambda: database.execute("SELECT expires FROM lease").fetchone()[0] > before + 0.5)
    database.close()
    await write(run_log, b"1")
    await run_log.aclose()


async def test_an_idle_run_log_costs_nothing(folder: Path) -> None:
    """Its thread sleeps until there is something to write, or the lease has to be renewed."""
    run_log = await SQLiteJournal(folder, lease_seconds=3600).create(RUN)
    await write(run_log, b"1")
    (thread,) = (thread for thread in threading.enumerate() if thread.name == f"journal of {RUN}")
    status = Path(f"/proc/self/task/{thread.native_id}/status")
    if not status.exists():
        pytest.skip("this system does not count how often a thread has slept")

    def sleeps() -> int:
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("voluntary"))

    await anyio.sleep(0.1)
    before = sleeps()
    await anyio.sleep(0.5)
    assert sleeps() - before <= 1, "on a busy machine it may have been on its way to bed still, but only once"
    await run_log.aclose()
    assert not thread.is_alive()


class Unfenced(lease.Lease):
    """A lease without the fence."""

    def is_ours(self, token: object) -> bool:
        return True


class UnfencedJournal(SQLiteJournal):
    """A journal whose owners write on after they were robbed."""

    lease_type = Unfenced


async def test_it_is_the_fence_that_keeps_a_former_owner_away(folder: Path) -> None:
    """Without it, the record of the former owner stands among those of the new one."""
    for kind, count in ((UnfencedJournal, 1), (SQLiteJournal, 0)):
        journal = kind(folder / kind.__name__)
        run_log = await journal.create(RUN)
        thief = await journal.open(RUN, steal=True)
        run_log.append(b"late")
        with suppress(JournalError):
            await run_log.durable()
        assert len(await journal.read(RUN)) == count
        await run_log.aclose()
        await thief.aclose()


async def test_a_former_owner_cannot_move_the_anchor(folder: Path) -> None:
    """It may have slept between its commit and its anchor; the new owner has a new file."""
    journal = await make_run(folder, b"1")
    old = Anchor(folder / RUN / "anchor", Durability.PROCESS)
    run_log = await journal.open(RUN)
    await write(run_log, b"2", b"3")
    for _ in range(2):
        old.write(AnchorMark(1, "0" * 64, 1))
    old.close()
    await run_log.aclose()
    assert len(await journal.read(RUN)) == 3
    assert read_anchor(folder / RUN / "anchor") == AnchorMark(3, (await journal.read(RUN))[-1].digest, 2)


# Writing --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("units", [[500], [199, 2], [1] * 450, [200, 200, 1], [3] * 100], ids=str)
async def test_units_are_gathered_and_never_split(folder: Path, units: list[int]) -> None:
    """A transaction has at most 200 records, unless one unit has more."""
    journal = SQLiteJournal(folder)
    run_log = await journal.create(RUN)
    sizes: list[int] = []
    last = 0

    def watch(mark: AnchorMark) -> None:
        nonlocal last
        database = sqlite3.connect(folder / RUN / "journal.db")
        rows = database.execute("SELECT text FROM records").fetchall()
        database.close()
        count = sum(len(text.split("\x1e")) for (text,) in rows)
        if count != last:
            sizes.append(count - last)
            last = count
        written(mark)

    anchor = run_log._writer._anchor
    written = anchor.write
    anchor.write = watch  # type: ignore[method-assign]
    for unit in units:
        for _ in range(unit):
            run_log.append(b"1")
        run_log.flush()
    await run_log.aclose()
    assert sum(sizes) == sum(units)
    assert max(sizes) <= max(200, *units)
    ends = {sum(units[:count]) for count in range(len(units) + 1)}
    assert {sum(sizes[:count]) for count in range(len(sizes) + 1)} <= ends


@pytest.mark.parametrize(("text", "words"), [(b"\xff", "utf-8"), (b'"\x1e"', "no JSON")])
async def test_a_text_that_is_no_json_stops_the_run(folder: Path, text: bytes, words: str) -> None:
    """A database of texts would change what is no UTF-8, and what ends a record would make two of one."""
    run_log = await SQLiteJournal(folder).create(RUN)
    await write(run_log, b"1")
    run_log.append(text)
    with pytest.raises(JournalFailed, match=words):
        await run_log.durable()
    await run_log.aclose()
    assert len(await SQLiteJournal(folder).read(RUN)) == 1


# Letters --------------------------------------------------------------------------------------------------------------


async def test_what_is_no_letter_is_left_alone(folder: Path) -> None:
    """Links, pipes, folders, files of other names, and files that are too long."""
    journal = SQLiteJournal(folder)
    run_log = await journal.create(RUN)
    inbox = folder / RUN / "inbox"
    (folder / "secret").write_text("secret")
    names = [f"{number:020}-0123456789abcdef.json" for number in range(10)]
    (inbox / names[0]).symlink_to(folder / "secret")
    os.mkfifo(inbox / names[1])
    (inbox / names[2]).mkdir()
    (inbox / names[3]).write_bytes(b"x" * 65537)
    (inbox / "answer.json").write_text("{}")
    (inbox / f".new-{names[4]}").write_text("{}")
    (inbox / f"{names[5]}\n").write_text("{}")
    with anyio.fail_after(20):
        await journal.post(RUN, b"1")
        assert [letter.text for letter in await run_log.backlog()] == [b"1"]
        await run_log.aclose()


async def test_a_letter_is_heard_if_somebody_has_spoilt_the_bell(folder: Path) -> None:
    """The owner puts another pipe in its place, and finds what came meanwhile."""
    journal = await make_run(folder)
    wake = folder / RUN / "inbox" / ".wake"
    wake.unlink()
    await journal.post(RUN, b"1")
    wake.write_text("no pipe")
    await journal.post(RUN, b"2")
    run_log = await journal.open(RUN)
    assert [letter.text for letter in await take_messages(run_log, 2)] == [b"1", b"2"]
    await journal.post(RUN, b"3")
    assert [letter.text for letter in await take_messages(run_log, 1)] == [b"3"]
    await run_log.aclose()


async def test_the_inbox_has_its_old_name_for_one_release_more(folder: Path) -> None:
    """Journals of users wrap our run logs."""
    run_log = await SQLiteJournal(folder).create(RUN)
    with pytest.warns(DeprecationWarning, match=r"run_log\.letters is now inbox; letters is removed in 0\.4"):
        assert run_log.letters() is run_log.inbox()
    await run_log.aclose()


async def test_closing_a_run_log_ends_the_waiting_for_letters(folder: Path) -> None:
    """The pipe is closed with it, and nobody waits on it for ever."""
    run_log = await SQLiteJournal(folder).create(RUN)
    ended = anyio.Event()

    async def listen() -> None:
        async for _ in run_log.inbox():
            pass
        ended.set()

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen)
            await anyio.sleep(0.05)
            await run_log.aclose()
            await ended.wait()


async def test_more_knocks_than_a_pipe_can_hold_are_no_error(folder: Path) -> None:
    """Whoever posts never waits for the owner."""
    journal = SQLiteJournal(folder)
    run_log = await journal.create(RUN)
    assert await run_log.backlog() == []
    door = os.open(folder / RUN / "inbox" / ".wake", os.O_WRONLY | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        while True:
            os.write(door, b"." * 4096)
    os.close(door)
    with anyio.fail_after(20):
        await journal.post(RUN, b"1")
        assert [letter.text for letter in await take_messages(run_log, 1)] == [b"1"]
    await run_log.aclose()


async def test_waiting_for_letters_is_no_polling(folder: Path) -> None:
    """After a letter has come, and whoever knocked has gone, nobody looks into the inbox until the next knock."""
    journal = SQLiteJournal(folder)
    run_log = await journal.create(RUN)
    for _ in range(2):  # the first comes before the pipe is open, the second knocks
        await journal.post(RUN, b"1")
        assert len(await take_messages(run_log, 1)) == 1
    looks: list[object] = []
    is_watched = True

    def notice(event: str, args: tuple[object, ...]) -> None:
        if is_watched and event == "os.listdir" and str(args[0]) == str(folder / RUN / "inbox"):
            looks.append(args)

    sys.addaudithook(notice)
    with anyio.move_on_after(0.3):
        await take_messages(run_log, 1)
    is_watched = False
    assert 1 <= len(looks) <= 3
    await run_log.aclose()
