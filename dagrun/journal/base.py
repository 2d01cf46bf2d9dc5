"""The parts that all journals share: valid run ids, the size of messages, and records read as events."""

from __future__ import annotations

import re
import secrets
import warnings
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Final

from dagrun.errors import AnswerRefused, JournalFailed, RunNotFound, shorten
from dagrun.kernel.model.journal import InboxMessage, Line

if TYPE_CHECKING:
    from dagrun.kernel.model.event import Event


def _spelled(word: str) -> str:
    """Return a pattern for a key of a query, in which each letter may be percent-encoded, in either case."""
    return "".join(f"(?:{letter}|%{ord(letter):x}|%{ord(letter.upper()):x})" for letter in word)


# All between the name of the user and the host: a password may hold signs that belong elsewhere in an address.
_PASSWORD: Final = re.compile(
    rf"(?i)(postgres(?:ql)?://[^:@/?#]*):.*@|([?&](?:{_spelled('ssl')})?{_spelled('password')}=)[^&#]*"
)
# A run id is the name of a folder, and a word on a command line.
_RUN_ID: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")


def is_run_id(text: str) -> bool:
    """Return whether *text* is a valid run id."""
    return _RUN_ID.fullmatch(text) is not None


def without_password(text: str) -> str:
    """Return the address of a database, or a text with one, without the password in it."""
    return _PASSWORD.sub(lambda found: f"{found[1]}@" if found[1] is not None else f"{found[2]}…", text)


def check_run_id(run_id: str) -> None:
    """Refuse an invalid run id.

    Raises:
        JournalFailed: *run_id* is invalid; the message says which ids are valid.
    """
    if not is_run_id(run_id):
        rule = "use 1 to 100 of the letters A-Z, a-z, digits, '_', '-' and '.', the first of them no '.'"
        raise JournalFailed(f"'{shorten(run_id)}' cannot be the id of a run: {rule}")


def no_such_run(run_id: str) -> RunNotFound:
    """Return the error for a run that a journal does not have."""
    return RunNotFound(f"there is no run '{shorten(run_id)}' in this journal")


ANSWER_KEY_LENGTH: Final = 64  # hex digits: 256 bits


def new_answer_key() -> str:
    """Return a new answer key of a run; see `Journal.answer_key`."""
    return secrets.token_hex(ANSWER_KEY_LENGTH // 2)


MAX_MESSAGE: Final = 64 * 1024  # bytes: a message is a person's answer, not a document


def check_message(text: bytes) -> None:
    """Refuse a message that is too long.

    Raises:
        JournalFailed: The message has more than `MAX_MESSAGE` bytes.
    """
    if len(text) > MAX_MESSAGE:
        raise JournalFailed(f"a message may have {MAX_MESSAGE} bytes, this one has {len(text)}")


def check_first(text: bytes, others: Iterable[bytes]) -> None:
    """Refuse an answer to a question that has another answer in the inbox.

    A message with another key is from no person, and does not count.

    Raises:
        AnswerRefused: There is an answer; the message says which.
    """
    from dagrun.kernel.model.question import (  # its models of messages would slow the start of commands
        answer_in,
        standing,
    )

    mine = answer_in(text)
    if mine is None:
        return
    for other in filter(None, map(answer_in, others)):
        if (other.question, other.key) == (mine.question, mine.key) and other.answer != mine.answer:
            raise AnswerRefused(standing(other.answer))


class Readable(ABC):
    """A journal whose records can be read as events."""

    @abstractmethod
    async def read(self, run_id: str) -> list[Line]:
        """Return the records of a run; see `Journal.read`."""

    async def records(self, run_id: str) -> list[Event]:
        """Return the events of a run: its opening, plans and patches, outcomes, verdicts, answers, costs.

        Raises:
            RunNotFound: There is no run of this name, or it was killed before its first record.
            JournalDamaged: The records were changed or damaged.
        """
        from dagrun.codec import events_of  # here: to list runs, no record is decoded

        return events_of(run_id, await self.read(run_id))


class HasLetters(ABC):
    """A run log whose inbox has its name of release 0.2, too: journals of that time wrap run logs of ours."""

    @abstractmethod
    def inbox(self) -> AsyncIterator[InboxMessage]:
        """Return the messages that arrive; see `RunLog.inbox`."""

    def letters(self) -> AsyncIterator[InboxMessage]:
        """Return the inbox, by the name of release 0.2."""
        warnings.warn("run_log.letters is now inbox; letters is removed in 0.4", DeprecationWarning, stacklevel=2)
        return self.inbox()
