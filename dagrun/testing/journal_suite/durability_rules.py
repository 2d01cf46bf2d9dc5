"""Rules of the journal suite for durable records, and for runs that are closed and resumed."""

from __future__ import annotations

import anyio
import pytest

from dagrun.errors import JournalFailed
from dagrun.records import verify
from dagrun.testing.journal_suite.store import (
    RUN,
    Store,
    give_up,
    numbered,
    shown,
    write,
)


class DurabilityRules(Store):
    """Waiting for records, closing runs, and resuming them."""

    # Durable ----------------------------------------------------------------------------------------------------------

    async def test_durable_flushes_first(self) -> None:
        """Otherwise it would wait forever for records that were never flushed."""
        async with self.run_log() as (journal, run_log):
            run_log.append(b"1")
            await run_log.durable()
            assert len(await journal.read(RUN)) == 1

    async def test_durable_waits_for_the_record_that_is_named(self) -> None:
        """And for a record that is durable already, it does not wait."""
        async with self.run_log() as (journal, run_log):
            first = run_log.append(b"1")
            run_log.flush()
            await run_log.durable(first)
            assert len(await journal.read(RUN)) >= 1
            await run_log.durable(first)

    async def test_nothing_was_added_and_all_is_durable(self) -> None:
        """Without records, there is nothing to wait for."""
        async with self.run_log() as (_, run_log):
            await run_log.durable()
            await run_log.durable(0)

    async def test_a_record_that_was_never_added_is_not_waited_for(self) -> None:
        """Such a wait is a fault of the program, and waiting would hide the fault."""
        async with self.run_log() as (_, run_log):
            await write(run_log, b"1")
            with pytest.raises(ValueError, match="2"):
                await run_log.durable(2)

    async def test_many_may_wait_at_once(self) -> None:
        """Each for a record of its own, and several for one record."""
        async with self.run_log() as (journal, run_log):
            served: list[int] = []

            async def step(number: int) -> None:
                seq = run_log.append(b"%d" % number)
                run_log.flush()
                await run_log.durable(seq)
                await run_log.durable(max(1, seq - 3))
                assert len(await journal.read(RUN)) >= seq
                served.append(number)

            async with anyio.create_task_group() as tasks:
                for number in range(50):
                    tasks.start_soon(step, number)
            assert sorted(served) == list(range(50))

    async def test_who_stops_waiting_harms_nobody(self) -> None:
        """The record is written anyway, and others continue to wait for it."""
        async with self.run_log() as (journal, run_log):
            others: list[int] = []

            async def wait(seq: int) -> None:
                await run_log.durable(seq)
                others.append(seq)

            async with anyio.create_task_group() as tasks:
                for _ in range(20):
                    seq = run_log.append(b"1")
                    run_log.flush()
                    tasks.start_soon(wait, seq)
                    await give_up(run_log, seq)
            assert sorted(others) == list(range(1, 21))
            assert len(await journal.read(RUN)) == 20

    async def test_a_wait_that_is_cancelled_can_be_done_again(self) -> None:
        """The cancelled wait has changed nothing."""
        async with self.run_log() as (_, run_log):
            seq = run_log.append(b"1")
            await give_up(run_log, seq)
            await run_log.durable(seq)

    async def test_each_durable_record_is_there_for_readers(self) -> None:
        """Acknowledged means that another reader finds the record."""
        async with self.run_log() as (journal, run_log):
            for count in range(1, 30):
                await write(run_log, b"%d" % count)
                assert len(await journal.read(RUN)) == count

    # Closing and resuming ---------------------------------------------------------------------------------------------

    async def test_closing_writes_what_is_left(self) -> None:
        """Also records that were appended and not flushed."""
        async with self.run_log() as (journal, run_log):
            run_log.append(b"1")
            run_log.flush()
            run_log.append(b"2")
            await run_log.aclose()
            assert shown(await journal.read(RUN)) == [(1, b"1"), (2, b"2")]

    async def test_closing_twice_is_closing(self) -> None:
        """Code that cleans up need not know whether the run log is closed already."""
        async with self.run_log() as (_, run_log):
            await run_log.aclose()
            await run_log.aclose()

    async def test_a_cancelled_task_can_close(self) -> None:
        """A run that is cancelled still writes its end."""
        async with self.run_log() as (journal, run_log):
            run_log.append(b"1")
            with anyio.CancelScope() as scope:
                scope.cancel()
                await run_log.aclose()
            (await self.reopened(journal)).flush()
            assert shown(await journal.read(RUN)) == [(1, b"1")]

    async def test_after_the_end_nothing_is_added(self) -> None:
        """Appending raises no error, but waiting for the record does."""
        async with self.run_log() as (journal, run_log):
            await write(run_log, b"1")
            await run_log.aclose()
            run_log.append(b"2")
            run_log.flush()
            with pytest.raises(JournalFailed):
                await run_log.durable()
            assert shown(await journal.read(RUN)) == [(1, b"1")]

    async def test_a_run_goes_on_where_it_was(self) -> None:
        """With its records, their numbers and their chain."""
        async with self.run_log() as (journal, run_log):
            await write(run_log, *numbered(5))
            await run_log.aclose()
            before = await journal.read(RUN)
            again = await journal.open(RUN)
            assert list(again.lines) == before
            assert again.append(b"6") == 6
            await again.durable()
            await again.aclose()
            after = await journal.read(RUN)
            assert after[:5] == before
            assert verify(RUN, [(line.seq, line.text, line.digest) for line in after])[1] is None

    async def test_a_run_can_be_opened_again_and_again(self) -> None:
        """Each time it has all earlier records."""
        async with self.run_log() as (journal, run_log):
            await run_log.aclose()
            for count in range(6):
                again = await journal.open(RUN)
                assert len(again.lines) == count
                await write(again, b"%d" % count)
                await again.aclose()
            assert len(await journal.read(RUN)) == 6

    async def test_the_lines_of_a_run_log_are_those_of_its_opening(self) -> None:
        """They do not grow while the run log writes."""
        async with self.run_log() as (_, run_log):
            await write(run_log, b"1")
            assert list(run_log.lines) == []
