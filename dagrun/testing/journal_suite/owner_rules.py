"""Rules of the journal suite for owners: a run has one at a time, and never two that write."""

from __future__ import annotations

import anyio
import pytest

from dagrun.errors import JournalError, OwnerLost, RunExists, RunHeld
from dagrun.extend import RunLog
from dagrun.records import verify
from dagrun.testing.journal_suite.store import (
    RUN,
    Store,
    add,
    shown,
    until,
    write,
    yield_some,
)


class OwnerRules(Store):
    """Runs that are held, stolen and lost."""

    # Owners -----------------------------------------------------------------------------------------------------------

    async def test_a_run_that_is_held_is_not_opened(self) -> None:
        """The error names the run and its owner, and the owner continues."""
        async with self.run_log() as (journal, run_log):
            await write(run_log, b"1")
            with pytest.raises(RunHeld, match=RUN):
                await journal.open(RUN)
            await write(run_log, b"2")
            assert len(await journal.read(RUN)) == 2

    async def test_a_run_that_was_let_go_is_free(self) -> None:
        """It is free at once, without waiting for the end of a lease."""
        async with self.run_log() as (journal, run_log):
            await run_log.aclose()
            await self.reopened(journal)

    async def test_a_run_can_be_stolen(self) -> None:
        """The thief gets all records of the former owner, and holds the run."""
        async with self.run_log() as (journal, run_log):
            await write(run_log, b"1")
            thief = await journal.open(RUN, steal=True)
            assert shown(thief.lines) == [(1, b"1")]
            await write(thief, b"2")
            with pytest.raises(RunHeld):
                await journal.open(RUN)
            await thief.aclose()
            assert shown(await journal.read(RUN)) == [(1, b"1"), (2, b"2")]

    async def test_an_owner_that_was_robbed_writes_nothing(self) -> None:
        """Its records would stand between the records of the new owner."""
        async with self.run_log() as (journal, run_log):
            await write(run_log, b"1")
            thief = await journal.open(RUN, steal=True)
            run_log.append(b"late")
            with pytest.raises(OwnerLost):
                await run_log.durable()
            await write(thief, b"2")
            run_log.append(b"later")
            run_log.flush()
            await thief.aclose()
            await run_log.aclose()
            assert shown(await journal.read(RUN)) == [(1, b"1"), (2, b"2")]

    async def test_what_was_durable_before_the_theft_is_still_so(self) -> None:
        """Only later records are lost: the owner may have used the durable ones."""
        async with self.run_log() as (journal, run_log):
            seq = run_log.append(b"1")
            await run_log.durable()
            thief = await journal.open(RUN, steal=True)
            await run_log.durable(seq)
            await thief.aclose()

    async def test_an_owner_that_was_robbed_is_told_once(self) -> None:
        """By `on_failure`, on the loop, with an `OwnerLost`."""
        async with self.run_log() as (journal, run_log):
            errors: list[JournalError] = []
            run_log.on_failure = errors.append
            thief = await journal.open(RUN, steal=True)
            for _ in range(3):
                run_log.append(b"late")
                with pytest.raises(OwnerLost):
                    await run_log.durable()
            await run_log.aclose()
            await thief.aclose()
            await until(lambda: bool(errors))
            await yield_some()
            assert [type(error) for error in errors] == [OwnerLost]

    async def test_all_who_wait_on_a_robbed_run_log_are_told(self) -> None:
        """No task waits forever for a record that is never written."""
        async with self.run_log() as (journal, run_log):
            thief = await journal.open(RUN, steal=True)
            lost: list[int] = []

            async def step(number: int) -> None:
                seq = run_log.append(b"late")
                run_log.flush()
                with pytest.raises(OwnerLost):
                    await run_log.durable(seq)
                lost.append(number)

            async with anyio.create_task_group() as tasks:
                for number in range(20):
                    tasks.start_soon(step, number)
            assert sorted(lost) == list(range(20))
            await thief.aclose()

    async def test_the_robbed_owner_cannot_let_go_of_what_it_does_not_have(self) -> None:
        """Closing the old run log does not release the run of the new owner."""
        async with self.run_log() as (journal, run_log):
            thief = await journal.open(RUN, steal=True)
            await run_log.aclose()
            with pytest.raises(RunHeld):
                await journal.open(RUN)
            await write(thief, b"1")
            await thief.aclose()

    async def test_a_run_can_be_stolen_from_a_thief(self) -> None:
        """Only the last owner can write."""
        async with self.run_log() as (journal, first):
            run_logs = [first, await journal.open(RUN, steal=True), await journal.open(RUN, steal=True)]
            for run_log in run_logs[:2]:
                run_log.append(b"late")
                with pytest.raises(OwnerLost):
                    await run_log.durable()
            await write(run_logs[2], b"1")
            for each in run_logs:
                await each.aclose()
            assert shown(await journal.read(RUN)) == [(1, b"1")]

    async def test_of_those_who_open_a_free_run_at_once_one_gets_it(self) -> None:
        """The others are refused, and the records are not mixed."""
        got: list[RunLog] = []
        refused: list[RunHeld] = []
        async with self.run_log() as (journal, run_log):
            await run_log.aclose()

            async def take() -> None:
                try:
                    got.append(await journal.open(RUN))
                except RunHeld as error:
                    refused.append(error)

            async with anyio.create_task_group() as tasks:
                for _ in range(5):
                    tasks.start_soon(take)
            assert (len(got), len(refused)) == (1, 4)
            await write(got[0], b"1")
            await got[0].aclose()

    async def test_thieves_in_a_row_never_mix_records(self) -> None:
        """Each writes some records and is robbed in the middle; the records are always one chain."""
        async with self.run_log() as (journal, run_log):
            run_logs, acknowledged = [run_log], 0
            for round_ in range(8):
                for _ in range(5):
                    add(run_logs[-1], b'"%d"' % round_)
                if round_ % 2:
                    await run_logs[-1].durable()
                    acknowledged = 5 * (round_ // 2 + 1)
                run_logs.append(await journal.open(RUN, steal=True))
                assert len(run_logs[-1].lines) >= acknowledged
            for each in run_logs:
                await each.aclose()
            lines = await journal.read(RUN)
            assert verify(RUN, [(line.seq, line.text, line.digest) for line in lines])[1] is None
            assert [line.text for line in lines] == sorted(line.text for line in lines)

    # Other journals on the same place ---------------------------------------------------------------------------------

    async def test_another_journal_has_the_same_runs(self) -> None:
        """Records survive the journal that wrote them."""
        async with self.two() as (journal, other):
            run_log = await journal.create(RUN)
            await write(run_log, b"1")
            await run_log.aclose()
            assert await other.read(RUN) == await journal.read(RUN)
            assert await other.runs() == await journal.runs()

    async def test_another_journal_reads_while_a_run_is_written(self) -> None:
        """It sees all acknowledged records at any time."""
        async with self.two() as (journal, other):
            run_log = await journal.create(RUN)
            for count in range(1, 20):
                await write(run_log, b"1")
                assert len(await other.read(RUN)) == count
            await run_log.aclose()

    async def test_another_journal_respects_the_owner(self) -> None:
        """It cannot open, create or delete a run that is held, and it sees that the run is held."""
        async with self.two() as (journal, other):
            run_log = await journal.create(RUN)
            with pytest.raises(RunHeld):
                await other.open(RUN)
            with pytest.raises(RunHeld):
                await other.delete(RUN)
            with pytest.raises(RunExists):
                await other.create(RUN)
            assert [held.is_held for held in await other.runs()] == [True]
            await write(run_log, b"1")
            await run_log.aclose()

    async def test_another_journal_can_steal(self) -> None:
        """The former owner does not know it yet; its next write is refused."""
        async with self.two() as (journal, other):
            run_log = await journal.create(RUN)
            await write(run_log, b"1")
            thief = await other.open(RUN, steal=True)
            await write(thief, b"2")
            run_log.append(b"late")
            with pytest.raises(OwnerLost):
                await run_log.durable()
            await run_log.aclose()
            await thief.aclose()
            assert shown(await journal.read(RUN)) == [(1, b"1"), (2, b"2")]
