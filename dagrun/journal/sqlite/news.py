"""Changes in the records of runs of other processes, found without opening their databases."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import anyio

from dagrun.journal import run_folder, summary_cache
from dagrun.journal.run_folder import RunPaths
from dagrun.journal.sqlite import database
from dagrun.kernel.model.journal import StoredRow

_MOST: Final = 1_000  # runs that are remembered


def marks(folder: Path) -> dict[str, str]:
    """Return the state of the files of each run in *folder*, as text.

    Raises:
        JournalFailed: The folder cannot be read.
    """
    found: dict[str, str] = {}
    for name in run_folder.run_names(folder):
        try:
            found[name] = summary_cache.mark_of(RunPaths(folder / name).state()).decode()
        except OSError:
            continue  # it was deleted a moment ago
    return found


def state_of(mark: str) -> tuple[int, ...]:
    """Return the state of a run's files from a mark."""
    return tuple(int(part) for part in mark.split("-"))


class NewRecords:
    """Reads new records of runs.

    Args:
        busy_seconds: How long to wait for a database that another process has locked.
    """

    def __init__(self, busy_seconds: float) -> None:
        self._busy_seconds = busy_seconds
        # By run: the state of the files, and the number of the last record, when there was nothing new after it.
        self._silent: dict[Path, tuple[tuple[int, ...], int]] = {}

    async def rows_after(self, paths: RunPaths, seq: int) -> list[StoredRow]:
        """Return the records of a run after record *seq*.

        Raises:
            JournalDamaged: The database was changed or damaged.
            JournalFailed: The records cannot be read.
        """
        # Before the records are read: the next call finds records written meanwhile.
        with run_folder.as_failure(f"cannot look at {paths.database}"):
            state = paths.state()
        if self._silent.get(paths.folder) == (state, seq):
            return []
        rows = await anyio.to_thread.run_sync(self._read, paths, seq)
        if not rows and time.time_ns() - max(state[2::3]) > summary_cache.UNSURE:
            if len(self._silent) >= _MOST:
                self._silent.clear()
            self._silent[paths.folder] = (state, seq)
        return rows

    def _read(self, paths: RunPaths, seq: int) -> list[StoredRow]:
        paths.check()
        with database.open_for_reading(paths.folder.name, paths.database, self._busy_seconds) as connection:
            return database.rows_after(connection, seq)
