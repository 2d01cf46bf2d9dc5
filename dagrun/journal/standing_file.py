"""The file in the folder of a run that keeps where the run stands, so that lists of runs need not read its record.

It is only a help. It says of which state of the database it was written, and counts for nothing once that has changed;
it is deleted with the run, and whatever is wrong with it, the record is read. It is no place for what must be true:
what deletes or resumes runs reads their records.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Final

from dagrun.errors import JournalFailed
from dagrun.journal.run_folder import RunPaths, check_file, read_up_to, replace_file

FILE: Final = "standing.json"
MOST: Final = 32 * 1024  # bytes
# Nanoseconds. The clock of a file system moves in steps of some milliseconds, so a database that was changed a moment
# ago may be changed once more without a trace.
UNSURE: Final = 100_000_000


def read(paths: RunPaths) -> bytes | None:
    """Return the cached summary of a run; `None` if there is none, or if its record has changed since."""
    path = paths.folder / FILE
    try:
        check_file(path)
        text = read_up_to(path, MOST)
        mark, _, kept = text.partition(b"\n")
        return kept if len(text) <= MOST and mark == mark_of(paths.state()) else None
    except (OSError, JournalFailed):  # there is none, or it is not safe to use
        return None


def keep(paths: RunPaths, state: tuple[int, ...], text: bytes) -> None:
    """Keep where a run stands.

    Args:
        paths: The folder of the run.
        state: What `RunPaths.state` returned before the record was read.
        text: What is to be kept; one that is too long is not.
    """
    with suppress(OSError):
        is_sure = time.time_ns() - max(state[2::3]) > UNSURE
        text = mark_of(state) + b"\n" + text
        if is_sure and len(text) <= MOST and paths.state() == state:
            replace_file(paths.folder / FILE, text)


def mark_of(state: tuple[int, ...]) -> bytes:
    """Return a state of the files of a run as the first line of the file."""
    return "-".join(map(str, state)).encode()
