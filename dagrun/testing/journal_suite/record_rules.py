"""Rules of the journal suite for records: they are numbered, chained, and kept unchanged."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from dagrun.errors import JournalFailed, RunExists, RunNotFound
from dagrun.extend import RunLog
from dagrun.records import verify
from dagrun.testing.journal_suite.store import (
    ODD_TEXTS,
    RUN,
    Store,
    add,
    numbered,
    shown,
    write,
    yield_some,
)


class RecordRules(Store):
    """Creating runs, and adding records."""

    # Creating, reading, listing ---------------------------------------------------------------------------------------

    async def test_a_new_run_has_no_records(self) -> None:
        """Neither for its owner nor for a reader."""
        async with self.run_log() as (journal, run_log):
            assert list(run_log.lines) == []
            assert await journal.read(RUN) == []

    async def test_the_level_is_what_was_asked_for(self) -> None:
        """For the journal and for each run log, because a run decides by it how long it waits."""
        async with self.run_log() as (journal, run_log):
            assert journal.durability is self.durability
            assert run_log.durability is self.durability

    async def test_a_run_log_knows_its_run(self) -> None:
        """By the id with which it was created."""
        async with self.run_log("another.run_2") as (_, run_log):
            assert run_log.run_id == "another.run_2"

    async def test_records_come_back_as_they_were_written(self) -> None:
        """With equal texts, numbered from 1."""
        async with self.run_log() as (journal, run_log):
            await write(run_log, b'{"a":1}', b'{"b":2}')
            await write(run_log, b'{"c":3}')
            assert shown(await journal.read(RUN)) == [(1, b'{"a":1}'), (2, b'{"b":2}'), (3, b'{"c":3}')]

    async def test_records_are_chained(self) -> None:
        """By the digests of `dagrun.journal.hash_chain`, which `dagrun runs --verify` computes again."""
        async with self.run_log() as (journal, run_log):
            await write(run_log, *numbered(20))
            lines = await journal.read(RUN)
            good, fault = verify(RUN, [(line.seq, line.text, line.digest) for line in lines])
            assert fault is None
            assert good == lines

    async def test_equal_records_of_two_runs_have_different_digests(self) -> None:
        """The chain begins with the id of the run, so that records cannot be moved to another run."""
        async with self.journal() as journal:
            for run_id in ("a", "b"):
                run_log = await journal.create(run_id)
                await write(run_log, b"1")
                await run_log.aclose()
            assert (await journal.read("a"))[0].digest != (await journal.read("b"))[0].digest

    async def test_a_run_cannot_be_created_twice(self) -> None:
        """Not while it is written, and not later; its records are left alone."""
        async with self.run_log() as (journal, run_log):
            await write(run_log, b"1")
            with pytest.raises(RunExists, match=RUN):
                await journal.create(RUN)
            await run_log.aclose()
            with pytest.raises(RunExists):
                await journal.create(RUN)
            assert shown(await journal.read(RUN)) == [(1, b"1")]

    async def test_of_two_who_create_a_run_at_once_one_does(self) -> None:
        """The others get an error: the run exists."""
        made: list[RunLog] = []
        refused: list[RunExists] = []
        async with self.journal() as journal:

            async def create() -> None:
                try:
                    made.append(await journal.create(RUN))
                except RunExists as error:
                    refused.append(error)

            async with anyio.create_task_group() as tasks:
                for _ in range(5):
                    tasks.start_soon(create)
            assert (len(made), len(refused)) == (1, 4)
            await write(made[0], b"1")
            await made[0].aclose()
            assert shown(await journal.read(RUN)) == [(1, b"1")]

    @pytest.mark.parametrize("run_id", ["", ".", "..", ".hidden", "a/b", "../a", "a\\b", "a b", "a\n", "é", "a" * 101])
    async def test_a_run_cannot_be_called_anything(self, run_id: str) -> None:
        """Ids become names of folders and words of command lines."""
        async with self.journal() as journal:
            with pytest.raises(JournalFailed):
                await journal.create(run_id)
            with pytest.raises(RunNotFound):
                await journal.read(run_id)
            assert await journal.runs() == []

    @pytest.mark.parametrize("run_id", ["a", "-", "_", "A.b-c_9", "0", "a" * 100, "a..b"])
    async def test_a_run_may_be_called(self, run_id: str) -> None:
        """Any name that is safe for a folder."""
        async with self.run_log(run_id) as (journal, run_log):
            await write(run_log, b"1")
            assert shown(await journal.read(run_id)) == [(1, b"1")]
            assert [held.run_id for held in await journal.runs()] == [run_id]

    async def test_what_is_not_there_is_not_found(self) -> None:
        """Whichever method asks for it."""
        async with self.journal() as journal:
            for act in (journal.read, journal.open, journal.delete):
                with pytest.raises(RunNotFound, match="missing-run"):
                    await act("missing-run")
            with pytest.raises(RunNotFound):
                await journal.open("missing-run", steal=True)
            with pytest.raises(RunNotFound):
                await journal.post("missing-run", b"{}")
            assert await journal.runs() == []

    async def test_runs_are_listed_by_name(self) -> None:
        """In whichever order they were created."""
        async with self.journal() as journal:
            for run_id in ("b", "c", "a", "B"):
                await (await journal.create(run_id)).aclose()
            assert [held.run_id for held in await journal.runs()] == ["B", "a", "b", "c"]

    async def test_the_list_says_who_holds_a_run(self) -> None:
        """And that it has no holder after it was released."""
        async with self.run_log() as (journal, run_log):
            (held,) = await journal.runs()
            assert held.is_held
            assert held.owner
            await run_log.aclose()
            (held,) = await journal.runs()
            assert (held.is_held, held.owner) == (False, "")

    # Adding -----------------------------------------------------------------------------------------------------------

    async def test_append_gives_the_numbers_in_order(self) -> None:
        """At once, before anything is written: the number of a record is the number of its event."""
        async with self.run_log() as (_, run_log):
            assert [run_log.append(b"1") for _ in range(3)] == [1, 2, 3]
            run_log.flush()
            assert run_log.append(b"1") == 4
            await run_log.durable()
            assert run_log.append(b"1") == 5

    async def test_an_empty_flush_is_nothing(self) -> None:
        """A run flushes after every change, also if there is no new record."""
        async with self.run_log() as (journal, run_log):
            for _ in range(10):
                run_log.flush()
            await run_log.durable()
            assert await journal.read(RUN) == []

    async def test_what_was_not_flushed_is_not_written(self) -> None:
        """A reader never sees a part of a change."""
        async with self.run_log() as (journal, run_log):
            await write(run_log, b"1")
            run_log.append(b"2")
            await yield_some()
            assert shown(await journal.read(RUN)) == [(1, b"1")]

    async def test_a_unit_is_seen_whole_or_not_at_all(self) -> None:
        """A reader never finds only a part of the records that were flushed together."""
        async with self.run_log() as (journal, run_log):
            units = [7, 1, 300, 2, 450, 30, 5]
            ends = [sum(units[:count]) for count in range(len(units) + 1)]
            seen: set[int] = set()

            async def watch() -> None:
                while True:
                    seen.add(len(await journal.read(RUN)))
                    await anyio.lowlevel.checkpoint()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watch)
                for unit in units:
                    add(run_log, *numbered(unit))
                    await anyio.lowlevel.checkpoint()
                await run_log.durable()
                tasks.cancel_scope.cancel()
            assert seen <= set(ends)
            assert len(await journal.read(RUN)) == ends[-1]

    async def test_many_small_units_keep_their_order(self) -> None:
        """However the journal puts them into transactions."""
        async with self.run_log() as (journal, run_log):
            texts = numbered(1500)
            for text in texts:
                run_log.append(text)
                run_log.flush()
            await run_log.durable()
            assert [line.text for line in await journal.read(RUN)] == texts

    async def test_a_unit_may_be_long(self) -> None:
        """A splice of a thousand steps is one change."""
        async with self.run_log() as (journal, run_log):
            texts = numbered(3000)
            await write(run_log, *texts)
            assert [line.text for line in await journal.read(RUN)] == texts

    @pytest.mark.parametrize("text", ODD_TEXTS.values(), ids=ODD_TEXTS.keys())
    async def test_no_text_is_changed(self, text: bytes) -> None:
        """It is stored byte for byte, because the digest is computed from these bytes."""
        async with self.run_log() as (journal, run_log):
            await write(run_log, text, b"null")
            assert [line.text for line in await journal.read(RUN)] == [text, b"null"]

    async def test_a_big_record_is_kept(self) -> None:
        """The output of a tool may have a mebibyte."""
        async with self.run_log() as (journal, run_log):
            text = b'"' + "ä€".encode() * (self.big // 5) + b'"'
            await write(run_log, b"1", text, b"2")
            assert [line.text for line in await journal.read(RUN)] == [b"1", text, b"2"]

    async def test_several_big_records_are_kept(self) -> None:
        """Also if they are flushed one by one, faster than they can be written."""
        async with self.run_log() as (journal, run_log):
            texts = [b'"%b"' % (str(number).encode() * (self.big // 2)) for number in range(8)]
            for text in texts:
                run_log.append(text)
                run_log.flush()
            await run_log.durable()
            assert [line.text for line in await journal.read(RUN)] == texts
