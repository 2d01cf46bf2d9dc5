"""The file beside the run folders that keeps how long the calls of each tool took.

The durations are only a help: a file that cannot be understood counts as empty, with a warning, and fails no run.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from threading import Lock
from typing import Final

from pydantic_core import from_json

from dagrun.decide.durations import Durations
from dagrun.errors import RecordRefused
from dagrun.journal.run_folder import as_failure, check_file, check_folder, make_root, read_up_to, replace_file
from dagrun.model.journal import Durability

FILE: Final = ".durations.json"  # not a valid run id
MOST: Final = 2**24  # bytes: enough for 10,000 tools

_LOG: Final = logging.getLogger("dagrun.journal")
_ONE_AT_A_TIME: Final = Lock()  # for the threads of this process; if two processes add at once, one may lose its part


def read(folder: Path) -> Durations:
    """Return the durations kept in *folder*, the folder of all runs; empty if there is no file.

    Raises:
        JournalFailed: The file is not safe to use (see `check_file`), or cannot be read.
    """
    path = folder / FILE
    if not os.path.lexists(path):
        return Durations()
    check_folder(folder)
    check_file(path)
    with as_failure(f"cannot read {path}"):
        text = read_up_to(path, MOST)
    return understood(text, str(path))


def add(folder: Path, new: Durations, durability: Durability) -> None:
    """Add *new* to the durations kept in *folder*.

    Raises:
        JournalFailed: The file is not safe to use (see `check_file`), or cannot be written.
    """
    with _ONE_AT_A_TIME:
        make_root(folder)
        kept = read(folder)
        kept.merge(new)
        path = folder / FILE
        with as_failure(f"cannot write {path}"):
            replace_file(path, as_text(kept).encode(), is_synced=durability is Durability.POWER)


def as_text(kept: Durations) -> str:
    """Return durations as the text of the file."""
    return json.dumps(kept.as_dict())


def understood(text: bytes | str, where: str) -> Durations:
    """Return the durations in *text*; empty, with a warning that names *where*, if it cannot be understood."""
    if not text:
        return Durations()
    try:
        if len(text) > MOST:
            raise RecordRefused(f"it has more than {MOST} bytes")
        return Durations.from_dict(from_json(text))
    except ValueError as error:  # raised by `from_json`, too; `RecordRefused` is one
        _LOG.warning("%s: this is not used, and will be rewritten: %s", where, error)
        return Durations()
