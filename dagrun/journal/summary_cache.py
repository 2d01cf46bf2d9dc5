"""Two files with cached summaries of records, so that the records need not be read again.

1. In the folder of a run: where the run stands. It names the state of the database that it was made from, counts for
   nothing once that has changed, and is deleted with the run.
2. Beside the folders of runs: how long the calls of each tool took.

Both are only a help: whatever is wrong with them fails no run, and what deletes or resumes runs reads their records.
"""

from __future__ import annotations

import json
import logging
import os
import time
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Final

from dagrun.errors import JournalFailed, RecordRefused
from dagrun.journal.run_folder import (
    RunPaths,
    as_failure,
    check_file,
    check_folder,
    make_root,
    read_up_to,
    replace_file,
)
from dagrun.kernel.model.journal import Durability

if TYPE_CHECKING:
    from pathlib import Path

    from dagrun.kernel.decide.durations import Durations

SUMMARY: Final = "standing.json"
MOST: Final = 32 * 1024  # bytes of a summary
# Nanoseconds. The clock of a file system moves in steps of some milliseconds, so a database that was changed a moment
# ago may be changed again without a trace.
UNSURE: Final = 100_000_000
DURATIONS: Final = ".durations.json"  # not a valid run id
MOST_DURATIONS: Final = 2**24  # bytes: enough for 10,000 tools

_LOG: Final = logging.getLogger("dagrun.journal")
_ONE_AT_A_TIME: Final = Lock()  # for the threads of this process; if two processes add at once, one may lose its part


def read_summary(paths: RunPaths) -> bytes | None:
    """Return the cached summary of a run; `None` if there is none, or if its record has changed since."""
    path = paths.folder / SUMMARY
    try:
        check_file(path)
        text = read_up_to(path, MOST)
        mark, _, kept = text.partition(b"\n")
        return kept if len(text) <= MOST and mark == mark_of(paths.state()) else None
    except (OSError, JournalFailed):  # there is none, or it is not safe to use
        return None


def keep_summary(paths: RunPaths, state: tuple[int, ...], text: bytes) -> None:
    """Cache the summary of a run.

    Args:
        paths: The folder of the run.
        state: What `RunPaths.state` returned before the record was read.
        text: The summary; one that is too long is not kept.
    """
    with suppress(OSError):
        is_sure = time.time_ns() - max(state[2::3]) > UNSURE
        text = mark_of(state) + b"\n" + text
        if is_sure and len(text) <= MOST and paths.state() == state:
            replace_file(paths.folder / SUMMARY, text)


def mark_of(state: tuple[int, ...]) -> bytes:
    """Return a state of the files of a run as the first line of the file."""
    return "-".join(map(str, state)).encode()


def read_durations(folder: Path) -> Durations:
    """Return the durations kept in *folder*, the folder of all runs; empty if there is no file.

    Raises:
        JournalFailed: The file is not safe to use (see `check_file`), or cannot be read.
    """
    path, text = folder / DURATIONS, b""
    if os.path.lexists(path):
        check_folder(folder)
        check_file(path)
        with as_failure(f"cannot read {path}"):
            text = read_up_to(path, MOST_DURATIONS)
    return durations_in(text, str(path))


def add_durations(folder: Path, new: Durations, durability: Durability) -> None:
    """Add *new* to the durations kept in *folder*.

    Raises:
        JournalFailed: The file is not safe to use (see `check_file`), or cannot be written.
    """
    with _ONE_AT_A_TIME:
        make_root(folder)
        kept = read_durations(folder)
        kept.merge(new)
        path = folder / DURATIONS
        with as_failure(f"cannot write {path}"):
            replace_file(path, durations_text(kept).encode(), is_synced=durability is Durability.POWER)


def durations_text(kept: Durations) -> str:
    """Return durations as the text of the file."""
    return json.dumps(kept.as_dict())


def durations_in(text: bytes | str, where: str) -> Durations:
    """Return the durations in *text*; empty, with a warning that names *where*, if it cannot be understood."""
    from pydantic_core import from_json  # here, with the durations: a list of runs loads no pydantic

    from dagrun.kernel.decide.durations import Durations

    if not text:
        return Durations()
    try:
        if len(text) > MOST_DURATIONS:
            raise RecordRefused(f"it has more than {MOST_DURATIONS} bytes")
        return Durations.from_dict(from_json(text))
    except ValueError as error:  # raised by `from_json`, too; `RecordRefused` is one
        _LOG.warning("%s: this is not used, and will be rewritten: %s", where, error)
        return Durations()
