"""Files of the data tools: those below the folder of the run's files, and the data sets of this package."""

from __future__ import annotations

import os
from contextlib import suppress
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Final

from dagrun import ToolError
from dagrun_tools.files import confined_files
from dagrun_tools.files.file_tools import rules

# More folders to read from, written as in PATH; the command line sets the variable.
READ_FROM: Final = "DAGRUN_READ_FROM"
SAMPLES: Final = "sample:"


def checked_name(name: str) -> PurePosixPath:
    """Check that tools may use *name* as a path, and return it.

    Raises:
        ToolError: The path is absolute, leads upwards, or is not a path of a file.
    """
    return PurePosixPath(*confined_files.parts_of(name))


def read_bytes(name: str, limit: int) -> bytes:
    """Read a file, or a data set of this package (``sample:texas_housing_sales``).

    Args:
        name: A path below the folder of the run's files.
        limit: The most bytes that the file may have.

    Raises:
        ToolError: The file does not exist, must not be read, or is too large.
    """
    if name.startswith(SAMPLES):
        return _sample(name.removeprefix(SAMPLES))
    current, *others = [rules.get().root, *map(Path, filter(None, os.environ.get(READ_FROM, "").split(os.pathsep)))]
    try:
        return confined_files.read(current, name, limit)
    except ToolError as error:
        if not others or not isinstance(error.__cause__, FileNotFoundError):
            raise
    for folder in others[:-1]:
        with suppress(ToolError):
            return confined_files.read(folder, name, limit)
    return confined_files.read(others[-1], name, limit)


def _sample(name: str) -> bytes:
    folder = files("dagrun_tools") / "data"
    known = {entry.name.partition(".")[0]: entry for entry in folder.iterdir() if ".csv" in entry.name}
    if name not in known:
        raise ToolError(f"there is no sample {name!r}; there is {', '.join(sorted(known))}")
    return known[name].read_bytes()


def write_bytes(name: str, data: bytes) -> str:
    """Write a file, whole or not at all; an existing file of that name is replaced.

    Args:
        name: A path below the folder of the run's files; missing folders are made.
        data: The content.

    Returns:
        The path, without a leading ``./``.

    Raises:
        ToolError: The file must not be written.
    """
    confined_files.write(rules.get().root, name, data, overwrite=True)
    return str(checked_name(name))
