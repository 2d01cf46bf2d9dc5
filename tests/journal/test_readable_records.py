"""The tests of runs read the records that they leave behind, and see one that is damaged."""

import pytest

import dagrun
from dagrun import MemoryJournal, Plan, Step
from dagrun.errors import JournalDamaged
from readable_records import records_are_read_again

pytestmark = pytest.mark.anyio


@dagrun.tool(effect="pure")
async def one() -> int:
    """Return 1."""
    return 1


async def leave_a_record(journal: MemoryJournal) -> None:
    await dagrun.run(Plan(steps=[Step(id="a", tool="one")]), tools=[one], journal=journal, run_id="r")


async def test_a_good_record_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with records_are_read_again(monkeypatch):
        await leave_a_record(MemoryJournal())


async def damage_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = MemoryJournal()
    with records_are_read_again(monkeypatch):
        await leave_a_record(journal)
        del journal._runs["r"].texts[1]


async def test_a_record_without_the_begin_of_a_call_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(JournalDamaged):
        await damage_a_record(monkeypatch)


async def test_a_deleted_record_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = MemoryJournal()
    with records_are_read_again(monkeypatch):
        await leave_a_record(journal)
        await journal.delete("r")
