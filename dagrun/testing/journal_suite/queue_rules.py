"""Rules of the journal suite for submitted runs: each is claimed by one worker at a time, and none is forgotten."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from dagrun.errors import RunExists, RunHeld, RunNotFound
from dagrun.extend import ClaimedRunLog, Journal, Queues, QueueStatus, QueueTicket, RunQueue, Wanted
from dagrun.testing.journal_suite.store import RUN, Store, shown, take_messages, write

FIRST = b'{"n":1}'
ANY = Wanted()
# Records, as runs write them.
ENDED = b'{"v":1,"event":"RunEnded","seq":2,"at":1.0,"status":"succeeded","reason":""}'
WAITS = b'{"v":1,"event":"RunSuspended","seq":2,"at":1.0,"status":"waiting","reason":"nobody answers about pay"}'
INTERRUPTED = b'{"v":1,"event":"RunSuspended","seq":2,"at":1.0,"status":"cancelled","reason":"the worker stops"}'
STOPPING = b'{"v":1,"event":"RunStopping","seq":2,"at":1.0,"status":"cancelled","reason":"it is not wanted any more"}'


class QueueRules(Store):
    """Runs that are submitted, claimed and released. For journals that are `Queues`; others skip them."""

    @asynccontextmanager
    async def queue(self) -> AsyncIterator[tuple[Journal, RunQueue]]:
        """Open a journal without runs, and its queue."""
        async with self.journal() as journal:
            if not isinstance(journal, Queues):
                pytest.skip("no runs can be submitted to this journal (Queues)")
            yield journal, journal.queue

    # Submitting -------------------------------------------------------------------------------------------------------

    async def test_a_submitted_run_has_a_record_and_no_owner(self) -> None:
        """It can be read at once, has no owner, and accepts messages."""
        async with self.queue() as (journal, queue):
            await queue.submit(RUN, FIRST, QueueTicket(pool="big", build="b", priority=3))
            assert shown(await journal.read(RUN)) == [(1, FIRST)]
            assert [(held.run_id, held.is_held) for held in await journal.runs()] == [(RUN, False)]
            (queued,) = await queue.runs()
            assert (queued.run_id, queued.standing, queued.owner) == (RUN, QueueStatus.QUEUED, "")
            assert (queued.ticket.pool, queued.ticket.build, queued.ticket.priority) == ("big", "b", 3)
            assert len(await journal.answer_key(RUN)) >= 32

    async def test_a_name_is_taken_once(self) -> None:
        """Whether the run of that name was submitted or begun."""
        async with self.queue() as (journal, queue):
            await queue.submit(RUN, FIRST, QueueTicket())
            await (await journal.create("begun")).aclose()
            for run_id in (RUN, "begun"):
                with pytest.raises(RunExists):
                    await queue.submit(run_id, b"2", QueueTicket())
            assert len(await queue.runs()) == 1
            assert shown(await journal.read(RUN)) == [(1, FIRST)]

    async def test_a_run_that_was_begun_is_no_submitted_run(self) -> None:
        """It is not claimed when its owner lets go of it."""
        async with self.queue() as (journal, queue):
            await (await journal.create(RUN)).aclose()
            assert await queue.runs() == []
            assert await queue.claim(ANY) is None

    async def test_a_deleted_run_leaves_the_queue(self) -> None:
        """It cannot be claimed."""
        async with self.queue() as (journal, queue):
            await queue.submit(RUN, FIRST, QueueTicket())
            await journal.delete(RUN)
            assert await queue.runs() == []
            assert await queue.claim(ANY) is None

    # Claiming ---------------------------------------------------------------------------------------------------------

    async def test_a_claimed_run_is_held(self) -> None:
        """The claim is the opening: no other process can claim it or open it, and the worker can write."""
        async with self.queue() as (journal, queue):
            await queue.submit(RUN, FIRST, QueueTicket())
            run_log = await _claimed(queue)
            assert shown(list(run_log.lines)) == [(1, FIRST)]
            assert run_log.answer_key == await journal.answer_key(RUN)
            assert await queue.claim(ANY) is None
            with pytest.raises(RunHeld):
                await journal.open(RUN)
            await write(run_log, b"2")
            (queued,) = await queue.runs([QueueStatus.RUNNING])
            assert queued.owner
            await run_log.aclose()
            assert shown(await journal.read(RUN)) == [(1, FIRST), (2, b"2")]

    async def test_those_who_claim_at_once_get_different_runs(self) -> None:
        """Each run is claimed once, and no worker waits for another."""
        async with self.queue() as (_, queue):
            for number in range(4):
                await queue.submit(f"run-{number}", FIRST, QueueTicket())
            run_logs: list[ClaimedRunLog | None] = []

            async def claim() -> None:
                run_logs.append(await queue.claim(ANY))

            async with anyio.create_task_group() as tasks:
                for _ in range(8):
                    tasks.start_soon(claim)
            got = [run_log for run_log in run_logs if run_log is not None]
            while (run_log := await queue.claim(ANY)) is not None:  # rows that were locked had to be skipped
                got.append(run_log)
            assert sorted(run_log.run_id for run_log in got) == [f"run-{number}" for number in range(4)]
            for run_log in got:
                await run_log.aclose()

    async def test_the_highest_priority_comes_first_then_the_oldest(self) -> None:
        """Also before runs that were submitted earlier."""
        async with self.queue() as (_, queue):
            for run_id, priority in (("a", 0), ("b", 1), ("c", 0), ("d", 1)):
                await queue.submit(run_id, FIRST, QueueTicket(priority=priority))
            got = [await _claimed(queue) for _ in range(4)]
            assert [run_log.run_id for run_log in got] == ["b", "d", "a", "c"]
            for run_log in got:
                await run_log.aclose()

    async def test_a_worker_claims_what_it_fits(self) -> None:
        """Of its own pools, without the builds that it has refused, and nothing before its time."""
        async with self.queue() as (_, queue):
            await queue.submit("elsewhere", FIRST, QueueTicket(pool="big"))
            await queue.submit("unfit", FIRST, QueueTicket(build="old"))
            await queue.submit("later", FIRST, QueueTicket(not_before=time.time() + 3600))
            assert await queue.claim(Wanted(refused={"old": "its tools differ"})) is None
            both = Wanted(pools=["default", "big"])
            got = [await _claimed(queue, both) for _ in range(2)]
            assert [run_log.run_id for run_log in got] == ["elsewhere", "unfit"]
            assert await queue.claim(both) is None
            for run_log in got:
                await run_log.aclose()

    async def test_a_worker_that_waits_is_woken(self) -> None:
        """By a run of its pool, and without the next look."""
        async with self.queue() as (_, queue):
            woken = anyio.Event()

            async def wait() -> None:
                while (run_log := await queue.claim(ANY)) is None:
                    await queue.wait(ANY)
                await run_log.aclose()
                woken.set()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                await anyio.sleep(0.05)
                assert not woken.is_set()
                await queue.submit(RUN, FIRST, QueueTicket())
                await woken.wait()

    async def test_a_run_that_no_worker_fits_is_stuck_after_a_while(self) -> None:
        """With the differences as the reason, also before, while queued. Runs that fit a worker stay as they are."""
        patient = Wanted(refused={"old": "its tools differ", "busy": "other tools"})
        async with self.queue() as (_, queue):
            await queue.submit(RUN, FIRST, QueueTicket(build="old"))
            assert await queue.claim(patient) is None
            assert await _reasons(queue) == {RUN: (QueueStatus.QUEUED, "its tools differ")}
            for run_id in ("held", "behind"):
                await queue.submit(run_id, FIRST, QueueTicket(build="busy"))
            await queue.submit("later", FIRST, QueueTicket(build="old", not_before=time.time() + 3600))
            await queue.submit("elsewhere", FIRST, QueueTicket(build="old", pool="big"))
            held = await _claimed(queue, Wanted(refused={"old": ""}))
            await anyio.sleep(1.1)
            impatient = Wanted(refused=patient.refused, unfit_after=1.0)
            assert await queue.claim(impatient) is None
            found = await _reasons(queue)
            assert found.pop(RUN) == (QueueStatus.STUCK, "its tools differ")
            assert found.pop("behind") == (QueueStatus.QUEUED, "other tools")
            assert {run_id: standing for run_id, (standing, _) in found.items()} == {
                "held": QueueStatus.RUNNING,
                "later": QueueStatus.QUEUED,
                "elsewhere": QueueStatus.QUEUED,
            }
            await held.aclose()
            assert await queue.put_back(RUN)
            assert await queue.claim(impatient) is None  # it is in the queue for a moment; and a worker fits the others
            assert await queue.runs([QueueStatus.STUCK]) == []
            run_logs = [await _claimed(queue) for _ in range(2)]
            assert [run_log.run_id for run_log in run_logs] == [RUN, "held"]
            for run_log in run_logs:
                await run_log.aclose()

    async def test_a_look_of_a_worker_that_does_not_fit_is_no_sign_of_life(self) -> None:
        """The run is as long in the queue as before."""
        async with self.queue() as (_, queue):
            await queue.submit(RUN, FIRST, QueueTicket(build="old"))
            for _ in range(2):
                await anyio.sleep(0.15)
                run_log = await _claimed(queue)
                run_log.leave(QueueStatus.QUEUED, "its tools differ", is_untouched=True)
                await run_log.aclose()
            assert await queue.claim(Wanted(refused={"old": "its tools differ"}, unfit_after=0.2)) is None
            assert await _reasons(queue) == {RUN: (QueueStatus.STUCK, "its tools differ")}

    # Releasing --------------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        "released",
        [
            (ENDED, QueueStatus.ENDED),
            (WAITS, QueueStatus.WAITING),
            (INTERRUPTED, QueueStatus.QUEUED),
            (STOPPING, QueueStatus.QUEUED),
            (None, QueueStatus.QUEUED),
        ],
        ids=["ended", "waits for people", "interrupted", "stopping", "nothing was written"],
    )
    async def test_the_last_record_says_where_a_released_run_stands(
        self, released: tuple[bytes | None, QueueStatus]
    ) -> None:
        """Only a run that is queued is claimed again, with all its records."""
        last, standing = released
        async with self.queue() as (_, queue):
            await queue.submit(RUN, FIRST, QueueTicket())
            await _ended(queue, last)
            assert [each.standing for each in await queue.runs()] == [standing]
            if standing is not QueueStatus.QUEUED:
                assert await queue.claim(ANY) is None
                return
            again = await _claimed(queue)
            assert len(again.lines) == (1 if last is None else 2)
            await again.aclose()

    async def test_a_run_that_is_opened_by_hand_is_no_exception(self) -> None:
        """It is not claimed in the meantime, and its status follows from its record when it is released."""
        async with self.queue() as (journal, queue):
            await queue.submit(RUN, FIRST, QueueTicket())
            run_log = await journal.open(RUN)
            assert [each.standing for each in await queue.runs()] == [QueueStatus.RUNNING]
            assert await queue.claim(ANY) is None
            await write(run_log, ENDED)
            await run_log.aclose()
            assert [each.standing for each in await queue.runs()] == [QueueStatus.ENDED]

    async def test_a_worker_may_choose_the_standing(self) -> None:
        """Not of a run that has ended; and a run that is stuck can be put back."""
        async with self.queue() as (_, queue):
            await queue.submit(RUN, FIRST, QueueTicket())
            run_log = await _claimed(queue)
            run_log.leave(QueueStatus.STUCK, "its tools are gone")
            await run_log.aclose()
            assert [each.reason for each in await queue.runs([QueueStatus.STUCK])] == ["its tools are gone"]
            assert await queue.claim(ANY) is None
            assert await queue.put_back(RUN)
            assert not await queue.put_back(RUN)
            run_log = await _claimed(queue)
            await write(run_log, ENDED)
            run_log.leave(QueueStatus.QUEUED, "the worker stops")
            await run_log.aclose()
            assert [each.standing for each in await queue.runs()] == [QueueStatus.ENDED]
            with pytest.raises(RunNotFound):
                await queue.put_back("another")

    async def test_a_robbed_worker_changes_no_standing(self) -> None:
        """Its release comes late: the run has another owner then."""
        async with self.queue() as (journal, queue):
            await queue.submit(RUN, FIRST, QueueTicket())
            run_log = await _claimed(queue)
            thief = await journal.open(RUN, steal=True)
            run_log.leave(QueueStatus.STUCK, "late")
            await run_log.aclose()
            assert [each.standing for each in await queue.runs()] == [QueueStatus.RUNNING]
            await write(thief, ENDED)
            await thief.aclose()
            assert [each.standing for each in await queue.runs()] == [QueueStatus.ENDED]

    # Letters ----------------------------------------------------------------------------------------------------------

    async def test_a_letter_puts_a_run_that_waits_back(self) -> None:
        """An answer from anywhere wakes it; a run that has ended stays so."""
        self.need_inbox()
        async with self.queue() as (journal, queue):
            for run_id, last in ((RUN, WAITS), ("over", ENDED)):
                await queue.submit(run_id, FIRST, QueueTicket())
                await _ended(queue, last)
            for run_id in (RUN, "over"):
                await journal.post(run_id, b"yes")
            assert (await _reasons(queue))[RUN] == (QueueStatus.QUEUED, "")  # it does not wait any more
            run_log = await _claimed(queue)
            assert run_log.run_id == RUN
            assert [letter.text for letter in await run_log.backlog()] == [b"yes"]
            await run_log.aclose()
            assert [each.standing for each in await queue.runs()][1] is QueueStatus.ENDED

    async def test_a_letter_that_a_run_has_not_seen_keeps_it_from_waiting(self) -> None:
        """It came between the last read and the release; nothing else would wake the run."""
        self.need_inbox()
        async with self.queue() as (journal, queue):
            await queue.submit(RUN, FIRST, QueueTicket())
            run_log = await _claimed(queue)
            await journal.post(RUN, b"yes")
            await write(run_log, WAITS)
            await run_log.aclose()
            assert await _reasons(queue) == {RUN: (QueueStatus.QUEUED, "")}

    async def test_a_letter_that_a_run_has_seen_does_not(self) -> None:
        """It answers a question that was not asked yet: the run would come back forever."""
        self.need_inbox()
        async with self.queue() as (journal, queue):
            await queue.submit(RUN, FIRST, QueueTicket())
            run_log = await _claimed(queue)
            await journal.post(RUN, b"early")
            assert [letter.text for letter in await take_messages(run_log, 1)] == [b"early"]
            await write(run_log, WAITS)
            await run_log.aclose()
            assert [each.standing for each in await queue.runs()] == [QueueStatus.WAITING]


async def _claimed(queue: RunQueue, wanted: Wanted = ANY) -> ClaimedRunLog:
    run_log = await queue.claim(wanted)
    if run_log is None:  # its row was locked just then, as by a renewal of the former lease that came too late
        await queue.wait(wanted)
        run_log = await queue.claim(wanted)
    assert run_log is not None
    return run_log


async def _reasons(queue: RunQueue) -> dict[str, tuple[QueueStatus, str]]:
    return {each.run_id: (each.standing, each.reason) for each in await queue.runs()}


async def _ended(queue: RunQueue, last: bytes | None) -> None:
    """Claim the next run, write *last*, and release it."""
    run_log = await _claimed(queue)
    if last is not None:
        await write(run_log, last)
    await run_log.aclose()
