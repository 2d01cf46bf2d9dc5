"""Rules of the journal suite for readers that follow a run which another process writes."""

from __future__ import annotations

import pytest

from dagrun.errors import JournalDamaged, RunNotFound
from dagrun.extend import Journal, SupportsVersions
from dagrun.records import RecordFollower, SupportsFollow
from dagrun.testing.journal_suite.store import RUN, Store, numbered, shown, write


class FollowingRules(Store):
    """Following a record, and telling cheaply which records have changed. A journal need not be able to do either."""

    async def test_a_follower_gets_each_record_once(self) -> None:
        """First all existing records, later the new ones; with the numbers and digests of the whole record."""
        async with self.run_log() as (journal, run_log):
            follower = RecordFollower(journal, RUN)
            await write(run_log, *numbered(3))
            got = await follower.news()
            assert shown(got) == [(1, b'{"n":0}'), (2, b'{"n":1}'), (3, b'{"n":2}')]
            assert await follower.news() == []
            for round_ in range(3):
                await write(run_log, b'"%d"' % round_, b"null")
                got += await follower.news()
            assert await follower.news() == []
            assert got == await journal.read(RUN)
            assert follower.seq == 9

    async def test_a_follower_may_come_before_the_first_record(self) -> None:
        """A run exists before it has a record."""
        async with self.run_log() as (journal, run_log):
            follower = RecordFollower(journal, RUN)
            assert await follower.news() == []
            await write(run_log, b"1", b"2")
            assert shown(await follower.news()) == [(1, b"1"), (2, b"2")]

    async def test_a_follower_goes_on_after_the_run_was_taken_over(self) -> None:
        """Another process resumes the run, and its records follow."""
        async with self.run_log() as (journal, run_log):
            follower = RecordFollower(journal, RUN)
            await write(run_log, b"1")
            await follower.news()
            await run_log.aclose()
            again = await journal.open(RUN)
            await write(again, b"2")
            await again.aclose()
            assert shown(await follower.news()) == [(2, b"2")]

    async def test_a_follower_of_what_is_not_there_is_told(self) -> None:
        """From the beginning, and when the run is deleted meanwhile."""
        async with self.run_log() as (journal, run_log):
            with pytest.raises(RunNotFound):
                await RecordFollower(journal, "missing-run").news()
            follower = RecordFollower(journal, RUN)
            await write(run_log, b"1")
            await follower.news()
            await run_log.aclose()
            await journal.delete(RUN)
            with pytest.raises(RunNotFound):
                await follower.news()

    async def test_a_follower_notices_another_record_in_place_of_its_own(self) -> None:
        """The digest of a new record covers all before it, so a run that was created again does not continue it."""
        async with self.run_log() as (journal, run_log):
            follower = RecordFollower(journal, RUN)
            await write(run_log, b"1")
            await follower.news()
            await run_log.aclose()
            await journal.delete(RUN)
            other = await journal.create(RUN)
            await write(other, b"9")
            await write(other, b"10")
            await other.aclose()
            with pytest.raises(JournalDamaged):
                await follower.news()

    async def test_rows_after_the_last_record_are_none(self) -> None:
        """And those after an earlier one begin with the next one."""
        async with self.run_log() as (journal, run_log):
            rows = self._following(journal)
            await write(run_log, b"1")
            await write(run_log, b"2", b"3")
            assert await rows.rows_after(RUN, 3) == []
            (first, *_) = await rows.rows_after(RUN, 1)
            assert first[0] == 2
            with pytest.raises(RunNotFound):
                await rows.rows_after("missing-run", 0)

    async def test_the_mark_of_a_run_changes_with_its_record(self) -> None:
        """And with no other; there is one for each run."""
        async with self.run_log() as (journal, run_log):
            marking = self._marking(journal)
            other = await journal.create("other")
            await write(other, b"1")
            await write(run_log, b"1")
            before = await marking.marks()
            assert list(before) == [held.run_id for held in await journal.runs()]
            assert await marking.marks() == before
            await write(run_log, b"2")
            after = await marking.marks()
            assert (after[RUN] != before[RUN], after["other"] == before["other"]) == (True, True)
            await other.aclose()

    async def test_who_holds_one_run_is_what_the_list_says(self) -> None:
        """While it is held, and when it is free."""
        async with self.run_log() as (journal, run_log):
            marking = self._marking(journal)
            assert (await marking.held(RUN)).is_held
            assert [await marking.held(RUN)] == await journal.runs()
            await run_log.aclose()
            assert [await marking.held(RUN)] == await journal.runs()
            assert not (await marking.held(RUN)).is_held
            with pytest.raises(RunNotFound):
                await marking.held("missing-run")

    @staticmethod
    def _following(journal: Journal) -> SupportsFollow:
        if not isinstance(journal, SupportsFollow):
            pytest.skip("this journal cannot be followed (SupportsFollow)")
        return journal

    @staticmethod
    def _marking(journal: Journal) -> SupportsVersions:
        if not isinstance(journal, SupportsVersions):
            pytest.skip("this journal has no marks (SupportsVersions)")
        return journal
