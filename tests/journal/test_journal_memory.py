"""The journal in memory does what every journal does, on virtual time."""

from __future__ import annotations

import pytest

from dagrun import Durability, MemoryJournal
from dagrun.extend import Journal
from dagrun.testing.journal_suite import JournalSuite

pytestmark = pytest.mark.anyio


class TestMemoryJournal(JournalSuite):
    """The suite of every journal."""

    survives_reopen = False
    durability = Durability.MEMORY

    async def make_journal(self) -> Journal:
        return MemoryJournal()
