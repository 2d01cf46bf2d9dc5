"""Submitted runs in PostgreSQL: workers that end, stop or are robbed, and transactions of the caller."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import asyncpg
import pytest

import dagrun
from dagrun import Plan, PostgresJournal, Step
from dagrun.errors import ContractError, JournalFailed, OwnerLost
from dagrun.journal.postgres.queue_statements import QueueSql
from dagrun.journal.queue import ClaimedRunLog, QueueStatus, QueueTicket, Wanted
from dagrun.kernel.model.journal import InboxMessage
from postgres_schemas import fresh_schema, say
from small_tools import scripted, toolset

pytestmark = [pytest.mark.anyio, pytest.mark.real_time, pytest.mark.rigs]

RUN = "run"


@pytest.fixture
def anyio_backend() -> str:
    """asyncpg's own connections, which these tests use, need asyncio."""
    return "asyncio"


@pytest.fixture
async def journal(postgres: str) -> AsyncIterator[PostgresJournal]:
    """A journal in a schema of its own."""
    with fresh_schema(postgres) as schema:
        async with PostgresJournal(postgres, schema=schema, durability="process") as journal:
            yield journal


async def _leave_to_itself(postgres: str, journal: PostgresJournal) -> ClaimedRunLog:
    """Claim a run by a process that then stops: its lease expires, and its run log is still there."""
    run_log = await journal.queue.claim(Wanted())
    assert run_log is not None
    writer: Any = run_log._writer
    while journal._keeper is None or writer.claim.number not in journal._keeper._runs:
        await anyio.sleep(0.001)

    async def stop() -> None:
        assert journal._keeper is not None
        journal._keeper.remove(writer)

    await journal._thread().call(stop)
    say(postgres, f"UPDATE {journal.queue.schema}.runs SET expires = now() - interval '1 second'")
    return run_log


async def test_a_run_is_taken_over_when_the_lease_has_expired(postgres: str, journal: PostgresJournal) -> None:
    """The worker that wakes up can write nothing, discard no letter, and change no standing."""
    queue, other = journal.queue, await _another(postgres, journal)
    await queue.submit(RUN, b'{"n":1}', QueueTicket())
    late = await _leave_to_itself(postgres, journal)
    run_log = await other.queue.claim(Wanted())
    assert run_log is not None
    assert [each.takeovers for each in await queue.runs()] == [1]
    await journal.post(RUN, b"yes")
    (letter,) = await run_log.backlog()
    await late.discard(letter.id)
    late.leave(QueueStatus.STUCK, "late")
    late.append(b'{"n":2}')
    with pytest.raises(OwnerLost):
        await late.durable()
    await late.aclose()
    assert [each.standing for each in await queue.runs()] == [QueueStatus.RUNNING]
    assert await _letters(postgres, journal) == [letter]
    await run_log.aclose()
    assert [line.seq for line in await journal.read(RUN)] == [1]
    assert [each.takeovers for each in await queue.runs()] == [0]  # it was released, so its workers do not die of it
    await other.aclose()


async def test_without_the_fence_a_worker_that_wakes_up_releases_the_run_of_another(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test before has teeth: it is the token that keeps the late release out."""
    monkeypatch.setattr(QueueSql, "fence", "$2::bigint IS NOT NULL")
    with fresh_schema(postgres) as schema:
        async with PostgresJournal(postgres, schema=schema, durability="process") as broken:
            other = await _another(postgres, broken)
            await broken.queue.submit(RUN, b'{"n":1}', QueueTicket())
            late = await _leave_to_itself(postgres, broken)
            run_log = await other.queue.claim(Wanted())
            assert run_log is not None
            late.leave(QueueStatus.STUCK, "late")
            await late.aclose()
            assert [each.standing for each in await broken.queue.runs()] == [QueueStatus.STUCK]
            await run_log.aclose()
            await other.aclose()


async def test_a_run_that_ends_its_workers_gets_stuck(postgres: str, journal: PostgresJournal) -> None:
    """After three takeovers nobody tries again, until somebody puts it back; and the next run is claimed."""
    queue = journal.queue
    await queue.submit(RUN, b'{"n":1}', QueueTicket(priority=1))
    await queue.submit("next", b'{"n":1}', QueueTicket())
    run_logs = [await _leave_to_itself(postgres, journal) for _ in range(4)]
    assert [run_log.run_id for run_log in run_logs] == [RUN] * 4
    run_logs.append(await _leave_to_itself(postgres, journal))
    assert run_logs[-1].run_id == "next"
    (stuck,) = await queue.runs([QueueStatus.STUCK])
    assert (stuck.run_id, stuck.reason) == (RUN, "4 workers have ended while at it")
    assert await queue.put_back(RUN)
    run_logs.append(await _leave_to_itself(postgres, journal))
    assert run_logs[-1].run_id == RUN
    for run_log in run_logs:
        await run_log.aclose()


async def test_a_worker_says_how_often_it_takes_over(postgres: str, journal: PostgresJournal) -> None:
    """Not at all, where what a run does to a machine must not be repeated by itself."""
    await journal.queue.submit(RUN, b'{"n":1}', QueueTicket())
    run_log = await _leave_to_itself(postgres, journal)
    assert await journal.queue.claim(Wanted(max_takeovers=0)) is None
    (stuck,) = await journal.queue.runs([QueueStatus.STUCK])
    assert stuck.reason == "1 worker has ended while at it"
    await run_log.aclose()


async def test_a_machine_without_a_place_for_files_gives_a_run_back(
    postgres: str, journal: PostgresJournal, tmp_path: Path
) -> None:
    """It is for whoever has a place; and no takeover, as no worker has ended."""
    (tmp_path / "file").touch()
    nowhere = tmp_path / "file" / "artifacts"
    await journal.queue.submit(RUN, b'{"n":1}', QueueTicket())
    for _ in range(5):
        async with PostgresJournal(postgres, schema=journal.queue.schema, artifacts=nowhere) as sick:
            with pytest.raises(JournalFailed):
                await sick.queue.claim(Wanted())

    [queued] = await journal.queue.runs()
    assert (queued.standing, queued.takeovers) == (QueueStatus.QUEUED, 0)
    assert await journal.queue.claim(Wanted()) is not None


class _Clock:
    """The clock of the runs that are put off, which a test sets forward."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


async def test_a_run_whose_files_cannot_be_made_is_tried_less_and_less(
    postgres: str, journal: PostgresJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker does not warn of it once a second for ever; the list says why, and the other runs go on."""
    clock = _Clock()
    monkeypatch.setattr("dagrun.journal.queue.time", clock)
    await journal.queue.submit(RUN, b'{"n":1}', QueueTicket(priority=1))
    await journal.queue.submit("next", b'{"n":1}', QueueTicket())
    (tmp_path / RUN).touch()  # where its folder has to be
    async with PostgresJournal(postgres, schema=journal.queue.schema, artifacts=tmp_path, durability="process") as sick:
        queue, tries = sick.queue, [0.0]
        run_log = await queue.claim(Wanted())
        assert run_log is not None
        assert run_log.run_id == "next"
        run_log.leave(QueueStatus.STUCK, "")
        await run_log.aclose()
        while len(tries) < 10:
            # Between two tries nobody asks for it, nor wakes to do so.
            assert await queue.claim(Wanted()) is None
            clock.now += await queue._ask(partial(queue._seconds_until_due, Wanted(), is_told=True))
            with pytest.raises(JournalFailed, match="is not a folder"):
                await queue.claim(Wanted())
            tries.append(clock.now)
        pauses = [later - earlier for earlier, later in itertools.pairwise(tries)]
        assert pauses == pytest.approx([1, 2, 4, 8, 16, 32, 60, 60, 60])
        [queued] = await queue.runs([QueueStatus.QUEUED])
        assert "is not a folder" in queued.reason

        say(postgres, f"UPDATE {queue.schema}.queue SET standing = 'stuck' WHERE standing = 'queued'")
        assert await queue.put_back(RUN)
        (tmp_path / RUN).unlink()
        again = await queue.claim(Wanted())
        assert again is not None  # at once: somebody has put it right
        await again.aclose()


async def test_a_run_whose_anchor_cannot_be_read_here_does_not_hold_up_the_others(
    postgres: str, journal: PostgresJournal, tmp_path: Path
) -> None:
    await journal.queue.submit(RUN, b'{"n":1}', QueueTicket(priority=1))
    (tmp_path / RUN).mkdir(0o700)
    (tmp_path / RUN / "anchor").symlink_to(tmp_path / "elsewhere")
    async with PostgresJournal(postgres, schema=journal.queue.schema, anchors=tmp_path, durability="process") as sick:
        await sick.queue.submit("next", b'{"n":1}', QueueTicket())
        run_log = await sick.queue.claim(Wanted())
        assert run_log is not None
        assert run_log.run_id == "next"
        [queued] = await sick.queue.runs([QueueStatus.QUEUED])
        assert "cannot read" in queued.reason
        await run_log.aclose()


async def test_a_claim_whose_answer_was_lost_is_found_again(
    postgres: str, journal: PostgresJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also before a run that would come first by now; and it counts as no takeover."""
    queue = journal.queue
    await queue.submit(RUN, b'{"n":1}', QueueTicket())
    reached, ask = [0], queue._ask

    async def loses_the_answer(act: Any) -> Any:
        reached[0] += 1
        if reached[0] == 2:  # the first one only looks whether the server is there
            assert (await ask(act))[0].run_id == RUN
            await journal.queue.submit("urgent", b'{"n":1}', QueueTicket(priority=9))
        return await ask(act)

    with monkeypatch.context() as patched:
        patched.setattr(queue, "_ask", loses_the_answer)
        run_log = await queue.claim(Wanted())
    assert run_log is not None
    assert run_log.run_id == RUN
    assert {each.run_id: (each.standing, each.takeovers) for each in await queue.runs()} == {
        RUN: (QueueStatus.RUNNING, 0),
        "urgent": (QueueStatus.QUEUED, 0),
    }
    await run_log.aclose()


async def test_a_run_that_is_left_by_its_last_fitting_worker_is_stuck_in_the_end(
    postgres: str, journal: PostgresJournal
) -> None:
    """Its lease has expired, and no other worker takes it over; an hour after that it is named."""
    queue, deployed = journal.queue, Wanted(refused={"old": "its tools differ"})
    await queue.submit(RUN, b'{"n":1}', QueueTicket(build="old"))
    run_log = await _leave_to_itself(postgres, journal)
    say(postgres, f"UPDATE {queue.schema}.queue SET queued = queued - interval '3 hours'")
    assert await queue.claim(deployed) is None
    assert [each.standing for each in await queue.runs()] == [QueueStatus.RUNNING]
    say(postgres, f"UPDATE {queue.schema}.runs SET expires = now() - interval '1 hour'")
    async with await _another(postgres, journal) as later:
        assert await later.queue.claim(deployed) is None
    assert [(each.standing, each.reason) for each in await queue.runs()] == [(QueueStatus.STUCK, "its tools differ")]
    await run_log.aclose()


async def test_a_look_without_work_leaves_the_takeovers(postgres: str, journal: PostgresJournal) -> None:
    """A worker that does not fit a run must not hide that the run ends others: two had ended at it by then."""
    queue = journal.queue
    await queue.submit(RUN, b'{"n":1}', QueueTicket(build="old"))
    run_logs = [await _leave_to_itself(postgres, journal) for _ in range(3)]
    run_logs[-1].leave(QueueStatus.QUEUED, "another build", is_untouched=True)
    await run_logs[-1].aclose()
    (queued,) = await queue.runs([QueueStatus.QUEUED])
    assert (queued.takeovers, queued.reason) == (2, "another build")
    for run_log in run_logs[:-1]:
        await run_log.aclose()


async def test_a_damaged_run_does_not_hold_up_the_others(postgres: str, journal: PostgresJournal) -> None:
    """It is set aside with the reason, and the next one is claimed."""
    queue = journal.queue
    await queue.submit(RUN, b'{"n":1}', QueueTicket(priority=1))
    await queue.submit("next", b'{"n":1}', QueueTicket())
    say(
        postgres,
        f"UPDATE {queue.schema}.records SET text = '2' FROM {queue.schema}.runs WHERE number = run AND run_id = $1",
        RUN,
    )
    run_log = await queue.claim(Wanted())
    assert run_log is not None
    assert run_log.run_id == "next"
    (stuck,) = await queue.runs([QueueStatus.STUCK])
    assert stuck.run_id == RUN
    assert "record 1" in stuck.reason
    await run_log.aclose()


@pytest.mark.parametrize("is_committed", [True, False])
async def test_a_run_is_submitted_in_the_transaction_of_the_caller(
    postgres: str, journal: PostgresJournal, *, is_committed: bool
) -> None:
    """Nobody sees it before the commit, and a rollback leaves nothing: neither the run nor the order it belongs to."""
    queue, orders = journal.queue, f"{journal.queue.schema}.orders"
    tools = toolset(scripted("quick", "done"))
    plan = Plan(steps=[Step(id="a", tool="quick", args={"value": 1})])
    await queue.runs()  # the schema is there
    say(postgres, f"CREATE TABLE {orders} (id integer)")
    connection = await asyncpg.connect(postgres)
    try:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(f"INSERT INTO {orders} VALUES (1)")
        await dagrun.submit(plan, tools=tools, run_id=RUN, journal=journal, connection=connection)
        assert await queue.claim(Wanted()) is None
        assert await journal.runs() == []
        await (transaction.commit() if is_committed else transaction.rollback())
        assert say(postgres, f"SELECT id FROM {orders}") == [(1,)] * is_committed
        assert [each.run_id for each in await queue.runs()] == [RUN] * is_committed
        assert [held.run_id for held in await journal.runs()] == [RUN] * is_committed
        run_log = await queue.claim(Wanted())
        assert (run_log is not None) == is_committed
        if run_log is not None:
            await run_log.aclose()
    finally:
        await connection.close()
    with pytest.raises(ContractError, match="asyncpg"):
        await dagrun.submit(plan, tools=tools, run_id="other", journal=journal, connection=object())


async def test_a_worker_waits_for_the_end_of_a_lease(postgres: str, journal: PostgresJournal) -> None:
    """Nobody tells it: it knows when the lease of a run would expire."""
    queue = journal.queue
    await queue.submit(RUN, b'{"n":1}', QueueTicket())
    run_log = await queue.claim(Wanted())
    assert run_log is not None
    say(postgres, f"UPDATE {queue.schema}.runs SET token = token + 1, expires = now() + interval '0.3 seconds'")
    with anyio.fail_after(20):
        while (other := await queue.claim(Wanted())) is None:
            await queue.wait(Wanted())
    await other.aclose()
    await run_log.aclose()


async def test_a_worker_that_waits_is_woken_when_the_server_is_back(postgres: str, journal: PostgresJournal) -> None:
    """What was queued while its connection was lost has rung for nobody."""
    queue, woken = journal.queue, anyio.Event()
    await queue.wait(Wanted())  # for a second, as nothing listens yet
    keeper = journal._keeper
    assert keeper is not None

    async def wait() -> None:
        await queue.wait(Wanted())
        woken.set()

    with anyio.fail_after(20):
        while not keeper.is_listening:
            await anyio.sleep(0.01)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            while not keeper._on_queue:
                await anyio.sleep(0.01)
            await anyio.sleep(0.2)
            assert not woken.is_set()
            listens = f"query LIKE 'LISTEN%{queue.schema}.queue%'"
            assert say(postgres, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {listens}")


async def test_an_older_schema_gets_a_queue(postgres: str, journal: PostgresJournal) -> None:
    """Letters and runs work without it; the first submission makes it."""
    run_log = await journal.create(RUN)
    await run_log.aclose()
    say(postgres, f"DROP TABLE {journal.queue.schema}.queue")
    await journal.post(RUN, b"yes")
    await (await journal.open(RUN)).aclose()
    await journal.queue.submit("other", b'{"n":1}', QueueTicket())
    assert [each.run_id for each in await journal.queue.runs()] == ["other"]


async def test_an_older_queue_gets_its_columns(postgres: str, journal: PostgresJournal) -> None:
    """The runs in it are still there, and are claimed."""
    await journal.queue.submit("old", b'{"n":1}', QueueTicket())
    say(postgres, f"ALTER TABLE {journal.queue.schema}.queue DROP COLUMN queued, DROP COLUMN fitted")
    later = await _another(postgres, journal)
    run_log = await later.queue.claim(Wanted())
    assert run_log is not None
    assert run_log.run_id == "old"
    await run_log.aclose()
    assert [(each.run_id, each.queued is not None) for each in await later.queue.runs()] == [("old", True)]
    await later.aclose()


async def _another(postgres: str, journal: PostgresJournal) -> PostgresJournal:
    """Another journal on the same place, as another process has one; for the caller to close."""
    return PostgresJournal(postgres, schema=journal.queue.schema, durability="process")


async def _letters(postgres: str, journal: PostgresJournal) -> list[InboxMessage]:
    return [InboxMessage(*row) for row in say(postgres, f"SELECT id, text FROM {journal.queue.schema}.letters")]
