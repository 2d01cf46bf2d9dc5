"""The folders of records: no tool that works on files may read or write anything in them.

1. The folder of all runs of each journal that this process has made is private, wherever it lies.
2. A folder that looks like the folder of a run is private, whoever has made it: this also holds in worker processes,
   and for the runs of other programs.
3. All that lies below a private folder is private.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Final
from weakref import finalize

# By number; a plain dict, as tools ask in many threads.
_FOLDERS: Final[dict[int, tuple[str, ...]]] = {}
_NUMBERS: Final = count()
_OF_A_RUN: Final = ("journal.db", "inbox")
_MAX_DEPTH: Final = 1000


def keep_private(owner: object, *folders: Path) -> None:
    """Make *folders* private for as long as *owner* exists. They need not exist yet."""
    # Absolute: a run may change the current folder.
    number = next(_NUMBERS)
    _FOLDERS[number] = tuple(os.path.abspath(folder) for folder in folders)
    finalize(owner, _FOLDERS.pop, number, None)


def is_private_folder(folder: Path | int, *, with_parents: bool = True) -> bool:
    """Return whether *folder* belongs to the records of runs, so that tools for files must not use it.

    Call it for every folder that a path leads through, after links were followed.

    Args:
        folder: A folder that exists: its path, or an open descriptor of it.
        with_parents: Whether the folders above it count, too. Leave that out only for a folder that was entered from
            one that was checked.

    Returns:
        True also if the folder cannot be looked at.
    """
    try:
        if not isinstance(folder, int):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                return is_private_folder(descriptor, with_parents=with_parents)
            finally:
                os.close(descriptor)
        named = set(_named())
        places = _upwards(folder) if with_parents else iter([(".", os.fstat(folder))])
        return any(_is_marked(folder, place, status, named) for place, status in places)
    except OSError:
        return True


def _named() -> Iterator[tuple[int, int]]:
    """Yield the current device and inode of each private folder: it may be made or replaced later."""
    for folders in list(_FOLDERS.values()):
        for folder in folders:
            try:
                status = os.stat(folder)
            except OSError:
                continue
            yield status.st_dev, status.st_ino


def _upwards(folder: int) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the folder and the folders above it, up to the root: the path from the folder, and its status."""
    place, status = ".", os.fstat(folder)
    for _ in range(_MAX_DEPTH):
        yield place, status
        place = f"{place}/.."
        above = os.stat(place, dir_fd=folder)
        if os.path.samestat(above, status):
            return
        status = above
    raise OSError(f"more than {_MAX_DEPTH} folders")


def _is_marked(folder: int, place: str, status: os.stat_result, named: set[tuple[int, int]]) -> bool:
    if (status.st_dev, status.st_ino) in named:
        return True
    return all(_exists(folder, f"{place}/{name}") for name in _OF_A_RUN)


def _exists(folder: int, path: str) -> bool:
    try:
        os.stat(path, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
