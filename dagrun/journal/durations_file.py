"""How long calls took, in a file beside the folders of the runs: only good to know, and never in the way of a run."""

from __future__ import annotations

import json
import logging
import os
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Final

from pydantic_core import from_json

from dagrun.decide.durations import Durations
from dagrun.errors import RecordRefused
from dagrun.journal.run_folder import FILE_MODE, as_failure, check_file, check_folder, make_root, sync_folder, unseen
from dagrun.model.journal import Durability

FILE: Final = ".durations.json"  # no name of a run
MOST: Final = 2**24  # bytes: as many as 10,000 tools may need

_LOG: Final = logging.getLogger("dagrun.journal")
_ONE_AT_A_TIME: Final = Lock()  # of this process; of two processes, one may lose what it adds


def read(folder: Path) -> Durations:
    """Read what is kept in *folder*, the folder of all runs; nothing, with a warning, if it cannot be understood.

    Raises:
        JournalFailed: The file is none of ours, or cannot be read.
    """
    path = folder / FILE
    if not os.path.lexists(path):
        return Durations()
    check_folder(folder)
    check_file(path)
    with as_failure(f"cannot read {path}"):
        text = _text(path)
    return understood(text, str(path))


def add(folder: Path, new: Durations, durability: Durability) -> None:
    """Add *new* to what is kept.

    Raises:
        JournalFailed: The file is none of ours, or cannot be written.
    """
    with _ONE_AT_A_TIME:
        make_root(folder)
        kept = read(folder)
        kept.merge(new)
        path = folder / FILE
        with as_failure(f"cannot write {path}"):
            _replace(path, as_text(kept).encode(), is_synced=durability is Durability.POWER)


def as_text(kept: Durations) -> str:
    """What is written."""
    return json.dumps(kept.as_dict())


def understood(text: bytes | str, where: str) -> Durations:
    """Read what was written; what cannot be understood counts as nothing, with a warning that says *where* it is."""
    if not text:
        return Durations()
    try:
        if len(text) > MOST:
            raise RecordRefused(f"it has more than {MOST} bytes")
        return Durations.from_dict(from_json(text))
    except ValueError as error:  # of from_json as well
        _LOG.warning("%s: this is not used, and will be written anew: %s", where, error)
        return Durations()


def _text(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        return file.read(MOST + 1)


def _replace(path: Path, text: bytes, *, is_synced: bool) -> None:
    new = unseen(path.parent, "new")
    descriptor = os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    try:
        with open(descriptor, "wb") as file:
            file.write(text)
            if is_synced:
                file.flush()
                os.fsync(descriptor)
        os.rename(new, path)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise
    if is_synced:
        sync_folder(path.parent)
