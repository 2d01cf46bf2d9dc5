"""Where the data tools read and write: below the folder of the run's files, and the data sets of this package."""

from __future__ import annotations

import os
from contextlib import suppress
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Final

from dagrun import ToolError
from dagrun_tools import confined
from dagrun_tools.files import rules

# Folders where a file may be that is not below the folder of the run's files, as in PATH; set by the command line.
READ_FROM: Final = "DAGRUN_READ_FROM"
SAMPLES: Final = "sample:"


def checked_name(name: str) -> PurePosixPath:
    """Check that *name* is a path that tools may use, as written.

    Raises:
        ToolError: It is absolute, leads upwards, or is no path of a file.
    """
    return PurePosixPath(*confined.parts_of(name))


def read_bytes(name: str, limit: int) -> bytes:
    """Read a file, or a data set of this package (``sample:texas_housing_sales``).

    Args:
        name: Below the folder of the run's files.
        limit: The most bytes that it may have.

    Raises:
        ToolError: There is no such file, it must not be read, or it is too large.
    """
    if name.startswith(SAMPLES):
        return _sample(name.removeprefix(SAMPLES))
    current, *others = [rules.get().root, *map(Path, filter(None, os.environ.get(READ_FROM, "").split(os.pathsep)))]
    try:
        return confined.read(current, name, limit)
    except ToolError as error:
        if not others or not isinstance(error.__cause__, FileNotFoundError):
            raise
    for folder in others[:-1]:
        with suppress(ToolError):
            return confined.read(folder, name, limit)
    return confined.read(others[-1], name, limit)


def _sample(name: str) -> bytes:
    folder = files("dagrun_tools") / "data"
    known = {entry.name.partition(".")[0]: entry for entry in folder.iterdir() if ".csv" in entry.name}
    if name not in known:
        raise ToolError(f"there is no sample {name!r}; there is {', '.join(sorted(known))}")
    return known[name].read_bytes()


def write_bytes(name: str, data: bytes) -> str:
    """Write a file, all of it or nothing; a file of that name is replaced.

    Args:
        name: Below the folder of the run's files; missing folders on the way are made.
        data: What goes into it.

    Returns:
        The name, tidied.

    Raises:
        ToolError: It must not be written.
    """
    confined.write(rules.get().root, name, data, overwrite=True)
    return str(checked_name(name))
