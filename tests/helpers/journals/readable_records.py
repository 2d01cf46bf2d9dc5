"""What a test has left in a journal in memory can be read again, without the tools and the types of the run.

And its summary says what its graph says.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dagrun import MemoryJournal
from dagrun.journal.memory import MemoryRunLog
from replayed_records import play
from summary_checks import expect_summary

_MOST = 100  # of one test: a rig has thousands, which take their time and memory
_create = MemoryJournal.create
_kept: list[tuple[MemoryJournal, str]] = []


async def _noted(journal: MemoryJournal, run_id: str) -> MemoryRunLog:
    run_log = await _create(journal, run_id)
    if len(_kept) < _MOST:
        _kept.append((journal, run_id))
    return run_log


@contextmanager
def records_are_read_again(monkeypatch: pytest.MonkeyPatch, plays: int = 0) -> Iterator[None]:
    """Read the first hundred records that are begun inside, at the end.

    Args:
        monkeypatch: Takes note of the records.
        plays: How many of them are played, too; see `replayed_records`.

    Raises:
        JournalDamaged: One cannot be read.
        AssertionError: The summary of one has other figures than its graph.
    """
    _kept.clear()
    monkeypatch.setattr(MemoryJournal, "create", _noted)
    try:
        yield
        for number, (journal, run_id) in enumerate(list(_kept)):
            kept = journal._runs.get(run_id)  # it may have been deleted
            if kept is not None and (lines := list(kept.lines())):
                expect_summary(run_id, lines)
                if number < plays:
                    play(run_id, lines)
    finally:
        _kept.clear()
