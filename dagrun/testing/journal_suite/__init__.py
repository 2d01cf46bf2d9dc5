"""One suite for every journal: whoever writes a store of his own runs it, and knows that runs will be safe in it.

    import pytest
    from dagrun.testing.journal_suite import JournalSuite

    class TestMyJournal(JournalSuite):
        async def make_journal(self) -> Journal:
            return MyJournal(...)  # with no runs in it

Tests are run by anyio's pytest plugin, on the backends of the ``anyio_backend`` fixture. What a store cannot do it says
by the flags of `JournalSuite`; the tests of it are skipped then, with the reason.
"""

from __future__ import annotations

from dagrun.testing.journal_suite.letters import LetterRules
from dagrun.testing.journal_suite.owners import Owners
from dagrun.testing.journal_suite.records import RecordRules
from dagrun.testing.journal_suite.store import ODD_TEXTS, RUN, add, numbered, shown, take_letters, write
from dagrun.testing.journal_suite.waiting import WaitingRules

__all__ = ["ODD_TEXTS", "RUN", "JournalSuite", "add", "numbered", "shown", "take_letters", "write"]


class JournalSuite(RecordRules, WaitingRules, Owners, LetterRules):
    """What every journal has to do. Derive a class whose name begins with ``Test``, and give it a journal.

    Its attributes are those of `dagrun.testing.journal_suite.store.Store`, which say what a store cannot do.
    """
