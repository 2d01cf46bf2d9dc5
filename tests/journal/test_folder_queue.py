"""Submitted runs in a folder: several workers, workers that are killed, and folders that come and go."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import anyio
import pytest

import dagrun
import worker_process
from dagrun import Plan, SQLiteJournal, Step
from dagrun.errors import ContractError, JournalFailed, RunExists
from dagrun.journal.lease import Lease
from dagrun.journal.private_folders import QUEUE
from dagrun.journal.queue import ClaimedTape, QueueStanding, QueueTicket, Wanted
from dagrun.journal.sqlite.queue_table import FOLDER, SubmittedRun

pytestmark = [pytest.mark.anyio, pytest.mark.real_time]

RUN = "run"
FIRST = b'{"n":1}'
ANY = Wanted()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the runs are."""
    return tmp_path / "runs"


async def _submitted(folder: Path, *names: str) -> SQLiteJournal:
    journal = SQLiteJournal(folder)
    for name in names:
        await journal.queue.submit(name, FIRST, QueueTicket())
    return journal


async def _claimed(journal: SQLiteJournal) -> ClaimedTape:
    tape = await journal.queue.claim(ANY)
    assert tape is not None
    return tape


async def _killed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim the next run, and end as by ``kill -9``: nothing is released, and the lease is over."""
    tape = await _claimed(SQLiteJournal(folder, lease_seconds=-1))
    with monkeypatch.context() as patched:
        patched.setattr(SubmittedRun, "released", lambda self, free: None)
        await tape.aclose()


async def _standings(journal: SQLiteJournal) -> dict[str, tuple[QueueStanding, str, int]]:
    return {each.run_id: (each.standing, each.reason, each.takeovers) for each in await journal.queue.runs()}


# Workers --------------------------------------------------------------------------------------------------------------


async def test_two_workers_on_one_folder_get_different_runs(folder: Path) -> None:
    """Each has its own journal, as two processes have."""
    names = [f"run-{number}" for number in range(12)]
    one, two = await _submitted(folder, *names), SQLiteJournal(folder)
    got: list[ClaimedTape] = []

    async def work(journal: SQLiteJournal) -> None:
        while (tape := await journal.queue.claim(ANY)) is not None:
            got.append(tape)

    async with anyio.create_task_group() as tasks:
        for journal in (one, two, one, two):
            tasks.start_soon(work, journal)
    assert sorted(tape.run_id for tape in got) == sorted(names)
    for tape in got:
        await tape.aclose()


async def test_a_run_whose_worker_was_killed_is_taken_over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three times; then it is stuck, until somebody puts it back, and the next run is claimed."""
    journal = await _submitted(folder, RUN, "next")
    for takeovers in range(4):
        await _killed(folder, monkeypatch)
        assert (await _standings(journal))[RUN] == (QueueStanding.RUNNING, "", takeovers)
    tape = await _claimed(journal)
    assert tape.run_id == "next"
    assert (await _standings(journal))[RUN] == (QueueStanding.STUCK, "4 workers have ended while at it", 3)
    assert await dagrun.requeue(RUN, journal=journal)
    assert not await dagrun.requeue(RUN, journal=journal)
    again = await _claimed(journal)
    assert again.run_id == RUN
    for each in (tape, again):
        await each.aclose()
    assert {standing for standing, _, _ in (await _standings(journal)).values()} == {QueueStanding.QUEUED}


async def test_a_worker_takes_over_as_often_as_it_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here never: the run is stuck after the first worker that has ended."""
    journal = await _submitted(folder, RUN)
    await _killed(folder, monkeypatch)
    async with dagrun.Engine() as engine, anyio.create_task_group() as tasks:
        worker = dagrun.Worker(engine, journal=journal, tools=[], max_takeovers=0)
        tasks.start_soon(worker.run)
        with anyio.fail_after(30):
            while not (stuck := await journal.queue.runs([QueueStanding.STUCK])):
                await anyio.sleep(0.02)
        worker.stop()
    assert [each.reason for each in stuck] == ["1 worker has ended while at it"]


async def test_who_only_looks_at_a_run_does_not_undo_that_a_worker_has_ended_at_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker with other tools comes between: the run still must not be taken over."""
    journal = await _submitted(folder, RUN)
    await _killed(folder, monkeypatch)
    looked = await _claimed(journal)
    looked.leave(QueueStanding.QUEUED, "other tools", is_untouched=True)
    await looked.aclose()
    assert await journal.queue.claim(Wanted(max_takeovers=0)) is None
    assert [standing for standing, _, _ in (await _standings(journal)).values()] == [QueueStanding.STUCK]


async def test_a_worker_that_waits_sees_the_end_of_a_lease(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody rings: it knows when the lease would be over."""
    journal = await _submitted(folder, RUN)
    monkeypatch.setattr(Lease, "check", lambda self, database: None)  # the lease is not renewed
    tape = await _claimed(SQLiteJournal(folder, lease_seconds=0.3))
    with anyio.fail_after(20):
        while (other := await journal.queue.claim(ANY)) is None:
            await journal.queue.wait(ANY)
    await other.aclose()
    await tape.aclose()


@pytest.mark.parametrize("is_fenced", [True, False])
async def test_the_token_keeps_a_late_release_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, is_fenced: bool
) -> None:
    """Without it, a worker that wakes up would set aside the run of another."""
    journal = await _submitted(folder, RUN)
    tape = await _claimed(journal)
    thief = await journal.open(RUN, steal=True)
    if not is_fenced:
        monkeypatch.setattr(Lease, "release", lambda self, database: True)
        tape._submitted.token = thief._submitted.token  # type: ignore[attr-defined,union-attr]
    tape.leave(QueueStanding.STUCK, "late")
    await tape.aclose()
    expected = QueueStanding.RUNNING if is_fenced else QueueStanding.STUCK
    assert (await _standings(journal))[RUN][0] is expected
    await thief.aclose()


@pytest.mark.rigs(seconds=5)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_processes_on_a_folder_carry_out_each_run_once(folder: Path, tmp_path: Path) -> None:
    """One of two is killed; nobody pays twice, and who is told to stop exits with 0."""
    book, runs = tmp_path / "book", 12
    journal = SQLiteJournal(folder, lease_seconds=worker_process.LEASE)
    plan = Plan(
        steps=[Step(id="look", tool="look"), Step(id="pay", tool="pay", args={"run": "${input.run}", "sum": "${look}"})]
    )
    words = [sys.executable, worker_process.__file__, str(folder), "-", str(book)]
    workers = [subprocess.Popen(words, stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == b"ready\n"
        for number in range(runs):
            name = f"run-{number}"
            await dagrun.submit(
                plan, tools=worker_process.tools(str(book)), inputs={"run": name}, run_id=name, journal=journal
            )
            if number == runs // 2:
                workers[0].kill()
        with anyio.fail_after(25):
            while await journal.queue.runs([QueueStanding.QUEUED, QueueStanding.RUNNING]):
                await anyio.sleep(0.05)
    finally:
        for worker in workers:
            worker.terminate()
        codes = [worker.wait(20) for worker in workers]
        for worker in workers:
            assert worker.stdout is not None
            worker.stdout.close()
    assert codes == [-signal.SIGKILL, 0]
    standings = Counter(each.standing for each in await journal.queue.runs())
    # What was being paid when the worker was killed waits for a person.
    assert standings[QueueStanding.ENDED] + standings[QueueStanding.WAITING] == runs
    assert max(Counter(book.read_text().split()).values()) == 1


# Looks at the queue ---------------------------------------------------------------------------------------------------


async def test_a_run_that_is_held_though_it_is_queued_is_not_asked_for_all_the_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row has missed who has it, as after a transaction that was undone; who waits wakes seldom."""
    _clock(monkeypatch)
    journal = await _submitted(folder, RUN, "next")
    tape = SQLiteJournal(folder)._tape_of(SQLiteJournal(folder)._open(RUN, steal=False))
    other = await _claimed(journal)
    assert other.run_id == "next"
    assert journal.queue._seconds_until_due(ANY) == 1
    await tape.aclose()
    await other.aclose()


async def test_a_run_that_was_deleted_by_hand_wakes_nobody(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its worker has ended, and its row is there for ever: it is no reason to look twenty times a second."""
    journal = await _submitted(folder, RUN)
    await _killed(folder, monkeypatch)
    shutil.rmtree(folder / RUN)
    assert await journal.queue.claim(ANY) is None
    assert journal.queue._seconds_until_due(ANY) == 60


async def test_a_run_that_is_not_due_wakes_nobody_before(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where somebody has begun it by hand, and was killed."""
    journal = SQLiteJournal(folder, lease_seconds=-1)
    await journal.queue.submit(RUN, FIRST, QueueTicket(not_before=time.time() + 3600))
    tape = await journal.open(RUN)
    with monkeypatch.context() as patched:
        patched.setattr(SubmittedRun, "released", lambda self, free: None)
        await tape.aclose()
    assert await journal.queue.claim(ANY) is None
    assert journal.queue._seconds_until_due(ANY) == 60


# Folders --------------------------------------------------------------------------------------------------------------


async def test_a_submission_that_broke_off_leaves_no_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the process was killed before the folder of the run was there; the name is free."""
    journal = await _submitted(folder)
    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", _raises)
        with pytest.raises(JournalFailed):
            await journal.queue.submit(RUN, FIRST, QueueTicket())
        patched.setattr(SQLiteJournal, "_make", _raises)
        patched.setattr("dagrun.journal.sqlite.queue.SQLiteQueue.forget", lambda self, ticket: None)
        with pytest.raises(OSError, match="disk"):
            await SQLiteJournal(folder).queue.submit(RUN, FIRST, QueueTicket())
    assert await journal.queue.runs() == []
    assert await journal.queue.claim(ANY) is None
    await (await journal.create(RUN)).aclose()  # a run of this name that was not submitted is in no queue
    assert await journal.queue.claim(ANY) is None
    with pytest.raises(RunExists):
        await journal.queue.submit(RUN, FIRST, QueueTicket())
    assert await journal.queue.runs() == []


async def test_a_folder_that_is_moved_keeps_its_queue(folder: Path, tmp_path: Path) -> None:
    """And a run whose folder was deleted by hand holds up nobody."""
    await _submitted(folder, RUN, "next")
    shutil.move(folder, tmp_path / "elsewhere")
    journal = SQLiteJournal(tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "elsewhere" / RUN)
    tape = await _claimed(journal)
    assert tape.run_id == "next"
    await tape.aclose()
    assert list(await _standings(journal)) == ["next"]


async def test_a_damaged_run_does_not_hold_up_the_others(folder: Path) -> None:
    """It is set aside with the reason."""
    journal = await _submitted(folder, RUN, "next")
    with sqlite3.connect(folder / RUN / "journal.db") as records:
        records.execute("UPDATE records SET text = '2'")
    records.close()
    tape = await _claimed(journal)
    assert tape.run_id == "next"
    await tape.aclose()
    standing, reason, _ = (await _standings(journal))[RUN]
    assert standing is QueueStanding.STUCK
    assert "record 1" in reason


async def test_a_run_whose_records_are_gone_is_set_aside(folder: Path) -> None:
    """Nobody can carry it out, so no worker asks for it again and again."""
    journal = await _submitted(folder, RUN, "next")
    (folder / RUN / "journal.db").unlink()
    tape = await _claimed(journal)
    assert tape.run_id == "next"
    assert await journal.queue.claim(ANY) is None
    await tape.aclose()
    standing, reason, _ = (await _standings(journal))[RUN]
    assert standing is QueueStanding.STUCK
    assert "its records are gone" in reason


async def test_a_run_whose_files_are_not_safe_does_not_hold_up_the_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is left where it is, and named when nothing else is to be claimed; somebody may put it right."""
    clock = _clock(monkeypatch)
    journal = await _submitted(folder, RUN, "next")
    (folder / RUN / "journal.db").chmod(0o666)
    tape = await _claimed(journal)
    assert tape.run_id == "next"
    clock.now += 1
    with pytest.raises(JournalFailed, match="can be written by everybody"):
        await journal.queue.claim(ANY)
    standing, reason, _ = (await _standings(journal))[RUN]
    assert standing is QueueStanding.QUEUED
    assert "can be written by everybody" in reason
    (folder / RUN / "journal.db").chmod(0o600)
    clock.now += 2
    again = await _claimed(journal)
    assert again.run_id == RUN
    for each in (tape, again):
        await each.aclose()


async def test_a_run_that_cannot_be_opened_is_tried_less_and_less(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker does not warn of it once a second for ever; nor is it stuck, as the fault may be this worker's alone."""
    clock = _clock(monkeypatch)
    journal = await _submitted(folder, RUN)
    (folder / RUN / "journal.db").chmod(0o666)
    tries: list[float] = []
    while len(tries) < 12:
        try:
            assert await journal.queue.claim(ANY) is None
        except JournalFailed:
            tries.append(clock.now)
        # Between two tries nobody looks at its files, nor wakes to do so.
        clock.now += journal.queue._seconds_until_due(ANY)
    pauses = [later - earlier for earlier, later in itertools.pairwise(tries)]
    assert pauses == pytest.approx([1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60])
    ((standing, reason, _),) = (await _standings(journal)).values()
    assert standing is QueueStanding.QUEUED
    assert "can be written by everybody" in reason
    (folder / RUN / "journal.db").chmod(0o600)
    clock.now += 60
    await (await _claimed(journal)).aclose()


async def test_many_runs_that_cannot_be_opened_are_put_off_as_one_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no number of them beyond which all are tried all the time; and who has left the queue is forgotten."""
    clock = _clock(monkeypatch)
    monkeypatch.setattr("dagrun.journal.queue._MOST_KNOWN", 3)
    names = [f"run-{number}" for number in range(6)]
    journal, begin = await _submitted(folder, *names), clock.now
    for name in names:
        (folder / name / "journal.db").chmod(0o666)
    for _ in range(8):
        with pytest.raises(JournalFailed):
            await journal.queue.claim(ANY)
        clock.now += journal.queue._seconds_until_due(ANY)
    assert clock.now - begin == pytest.approx(1 + 2 + 4 + 8 + 16 + 32 + 60 + 60)
    for name in names:
        (folder / name / "journal.db").chmod(0o600)
    other = SQLiteJournal(folder)
    for tape in [await _claimed(other) for _ in names]:
        await tape.aclose()
        shutil.rmtree(folder / tape.run_id)
    clock.now += 61
    await journal.queue.submit("last", FIRST, QueueTicket())
    (folder / "last" / "journal.db").chmod(0o666)
    with pytest.raises(JournalFailed):
        await journal.queue.claim(ANY)
    assert len(journal.queue._put_off.left()) == len(journal.queue._put_off._tried) == 1


# Tickets --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "{broken", "0" * 31])
async def test_a_run_whose_ticket_is_damaged_is_stuck_and_said_once(
    folder: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    """Before a worker looks at it, too; putting it back mends it. The runs behind it go on."""
    journal, ticket = await _submitted(folder, RUN, "next"), folder / RUN / "ticket"
    ticket.write_text(text)
    reason = f"{ticket} is damaged, so no worker knows the run by it"
    for _ in range(2):
        assert (await _standings(journal))[RUN] == (QueueStanding.STUCK, reason, 0)
        assert [each.run_id for each in await journal.queue.runs([QueueStanding.STUCK])] == [RUN]
        assert RUN not in [each.run_id for each in await journal.queue.runs([QueueStanding.QUEUED])]
        tape = await _claimed(journal)
        assert tape.run_id == "next"
        await tape.aclose()
    assert caplog.messages == [f"run {RUN} is stuck: {reason}"]
    assert await journal.queue.put_back(RUN)
    tape = await _claimed(journal)
    assert tape.run_id == RUN
    await tape.aclose()


async def test_a_ticket_that_others_could_have_written_is_not_mended(folder: Path) -> None:
    journal, ticket = await _submitted(folder, RUN), folder / RUN / "ticket"
    ticket.chmod(0o666)
    ((standing, reason, _),) = (await _standings(journal)).values()
    assert standing is QueueStanding.STUCK
    assert "can be written by everybody" in reason
    with pytest.raises(JournalFailed, match="can be written by everybody"):
        await journal.queue.put_back(RUN)
    assert await journal.queue.claim(ANY) is None
    ticket.chmod(0o600)
    assert await journal.queue.put_back(RUN)
    await (await _claimed(journal)).aclose()


async def test_a_damaged_ticket_is_that_of_the_last_run_of_its_name(folder: Path) -> None:
    """Those before it were deleted by hand."""
    journal = await _submitted(folder, RUN)
    shutil.rmtree(folder / RUN)
    await journal.queue.submit(RUN, FIRST, QueueTicket(pool="big"))
    (folder / RUN / "ticket").write_text("")
    assert await journal.queue.claim(ANY) is None
    assert [each.ticket.pool for each in await journal.queue.runs()] == ["big"]


async def test_a_run_whose_ticket_is_damaged_while_it_is_carried_out_goes_on(folder: Path) -> None:
    journal = await _submitted(folder, RUN)
    tape = await _claimed(journal)
    (folder / RUN / "ticket").write_text("")
    assert await SQLiteJournal(folder).queue.claim(ANY) is None
    assert not await journal.queue.put_back(RUN)
    assert await journal.queue.runs([QueueStanding.STUCK]) == []
    await tape.aclose()
    assert [each.run_id for each in await journal.queue.runs([QueueStanding.STUCK])] == [RUN]


async def test_a_locked_queue_is_named(folder: Path) -> None:
    """Nobody waits for ever; the error says which file, and why."""
    journal = await _submitted(folder, RUN)
    with sqlite3.connect(folder / FOLDER / QUEUE, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(JournalFailed, match=r"queue\.db: another process has locked it"):
            await SQLiteJournal(folder, busy_seconds=0.05).queue.claim(ANY)
    other.close()
    await (await _claimed(journal)).aclose()


async def test_no_tool_for_files_gets_at_the_queue(folder: Path) -> None:
    """Also in a process that knows nothing of the journal."""
    await _submitted(folder, RUN)
    script = f"import dagrun; print(dagrun.is_private_folder({str(folder / FOLDER)!r}))"
    done = await anyio.run_process([sys.executable, "-c", script])
    assert done.stdout == b"True\n"


async def test_a_run_whose_standing_cannot_be_written_is_free(folder: Path) -> None:
    """The next worker takes it over at once."""
    await _submitted(folder, RUN)
    tape = await _claimed(SQLiteJournal(folder, busy_seconds=0.05))
    with sqlite3.connect(folder / FOLDER / QUEUE, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        await tape.aclose()
    other.close()
    journal = SQLiteJournal(folder)
    assert not (await journal.held(RUN)).is_held
    again = await _claimed(journal)
    assert (await _standings(journal))[RUN] == (QueueStanding.RUNNING, "", 1)
    await again.aclose()


async def test_a_transaction_of_the_caller_is_refused(folder: Path) -> None:
    """Files take part in none."""
    with pytest.raises(ContractError, match="connection"):
        await SQLiteJournal(folder).queue.submit(RUN, FIRST, QueueTicket(), connection=object())
    assert not folder.exists()


async def test_a_pipe_of_one_who_was_killed_is_removed(folder: Path) -> None:
    """Those who wait are woken all the same, each of them."""
    journal = await _submitted(folder)
    await journal.queue.claim(ANY)
    woken: list[str] = []

    async def wait(name: str) -> None:
        await journal.queue.wait(ANY)
        woken.append(name)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait, "one")
        tasks.start_soon(wait, "two")
        while len(_bells(folder)) < 2:
            await anyio.sleep(0.01)
        os.mkfifo(folder / FOLDER / "bell-dead")
        await journal.queue.submit(RUN, FIRST, QueueTicket())
    assert sorted(woken) == ["one", "two"]
    assert _bells(folder) == []


class _Clock:
    """The clock of the queue, which a test sets forward."""

    time = staticmethod(time.time)

    def __init__(self) -> None:
        self.now = time.monotonic()

    def monotonic(self) -> float:
        return self.now


def _clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    clock = _Clock()
    for module in ("dagrun.journal.sqlite.queue", "dagrun.journal.queue"):
        monkeypatch.setattr(f"{module}.time", clock)
    return clock


def _bells(folder: Path) -> list[str]:
    return [path.name for path in (folder / FOLDER).glob("bell-*")]


def _raises(*_: object) -> None:
    raise OSError("disk")
