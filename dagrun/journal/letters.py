"""What every journal asks of a letter."""

from __future__ import annotations

from typing import Final

from dagrun.errors import JournalFailed

MAX_LETTER: Final = 64 * 1024  # bytes: an answer of a person, not a document


def check_letter(text: bytes) -> None:
    """Refuse a letter that nobody would read.

    Raises:
        JournalFailed: It is too long.
    """
    if len(text) > MAX_LETTER:
        raise JournalFailed(f"a letter may have {MAX_LETTER} bytes, this one has {len(text)}")
