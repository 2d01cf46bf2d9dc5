"""The conformance suite of journals: a store that passes it is safe for runs.

    import pytest
    from dagrun.testing.journal_suite import JournalSuite

    class TestMyJournal(JournalSuite):
        async def make_journal(self) -> Journal:
            return MyJournal(...)  # with no runs in it

In: a journal without runs, from `make_journal`. Out: tests, which anyio's pytest plugin runs on the backends of the
``anyio_backend`` fixture. The flags of `JournalSuite` say what a store cannot do; those tests are skipped with the
reason.

Open `store.py` first: it has the store under test and the helpers. The other files hold the rules, by subject. The
suite uses a journal only through its protocol (`dagrun.kernel.model.journal`).
"""

from __future__ import annotations

from dagrun.testing.journal_suite.durability_rules import DurabilityRules
from dagrun.testing.journal_suite.following_rules import FollowingRules
from dagrun.testing.journal_suite.letter_rules import InboxRules
from dagrun.testing.journal_suite.owner_rules import OwnerRules
from dagrun.testing.journal_suite.queue_rules import QueueRules
from dagrun.testing.journal_suite.record_rules import RecordRules
from dagrun.testing.journal_suite.store import ODD_TEXTS, RUN, add, numbered, shown, take_messages, write

__all__ = ["ODD_TEXTS", "RUN", "JournalSuite", "add", "numbered", "shown", "take_messages", "write"]


class JournalSuite(RecordRules, FollowingRules, DurabilityRules, OwnerRules, InboxRules, QueueRules):
    """The rules of every journal. Derive a class whose name begins with ``Test``, and define `make_journal`.

    Its attributes are those of `dagrun.testing.journal_suite.store.Store`, which say what a store cannot do.
    """
