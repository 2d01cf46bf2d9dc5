"""The ids of runs: each is the name of a folder, and a word of a command line."""

from __future__ import annotations

import re
from typing import Final

from dagrun.errors import JournalFailed, RunNotFound, shorten

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
