"""The ids of runs: each is the name of a folder, and a word of a command line."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Final

from dagrun.errors import JournalFailed, RunNotFound, shorten
from dagrun.model.codec.event_codec import events_of
from dagrun.model.event import Event
from dagrun.model.journal import Line

_RUN_ID: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")


def is_run_id(text: str) -> bool:
    """Whether a run may be called *text*."""
    return _RUN_ID.fullmatch(text) is not None


def check_run_id(run_id: str) -> None:
    """Refuse an id that no folder may have.

    Raises:
        JournalFailed: It is none; the message says what one is.
    """
    if not is_run_id(run_id):
        rule = "use 1 to 100 of the letters A-Z, a-z, digits, '_', '-' and '.', the first of them no '.'"
        raise JournalFailed(f"'{shorten(run_id)}' cannot be the id of a run: {rule}")


def no_such_run(run_id: str) -> RunNotFound:
    """The error for a run that a journal does not have."""
    return RunNotFound(f"there is no run '{shorten(run_id)}' in this journal")


MAX_LETTER: Final = 64 * 1024  # bytes: an answer of a person, not a document


def check_letter(text: bytes) -> None:
    """Refuse a letter that nobody would read.

    Raises:
        JournalFailed: It is too long.
    """
    if len(text) > MAX_LETTER:
        raise JournalFailed(f"a letter may have {MAX_LETTER} bytes, this one has {len(text)}")


class Readable(ABC):
    """A journal whose records can be read as events."""

    @abstractmethod
    async def read(self, run_id: str) -> list[Line]:
        """Give the records of a run; see `Journal.read`."""

    async def records(self, run_id: str) -> list[Event]:
        """Give the events of a run: what it was opened with, plans and patches, outcomes, verdicts, answers, costs.

        Raises:
            RunNotFound: There is none of this name, or it was killed before its first record.
            JournalDamaged: Its records are not what was written.
        """
        return events_of(run_id, await self.read(run_id))
