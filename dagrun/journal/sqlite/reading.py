"""Read the records of runs from SQLite files, without a loop and without any library but SQLite."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from dagrun.errors import JournalDamaged, JournalFailed
from dagrun.journal import anchor, run_folder
from dagrun.journal.base import is_run_id, no_such_run
from dagrun.journal.lease import holding
from dagrun.journal.run_folder import RunPaths
from dagrun.journal.sqlite import database
from dagrun.kernel.model.journal import Held, Line


def find_run(folder: Path, run_id: str) -> RunPaths:
    """Return the paths of a run.

    Raises:
        RunNotFound: There is no run of this name.
        JournalFailed: The folder of all runs is not safe to use.
    """
    if os.path.lexists(folder):
        run_folder.check_folder(folder)
    paths = RunPaths(folder / run_id)
    if not is_run_id(run_id) or not paths.exists():
        raise no_such_run(run_id)
    return paths


def read_lines(folder: Path, run_id: str, busy_seconds: float) -> list[Line]:
    """Return the records of a run, checked; its owner may add more meanwhile.

    Args:
        folder: The folder of all runs.
        run_id: The name of the run.
        busy_seconds: How long to wait for a database that another process has locked.

    Raises:
        RunNotFound: There is no run of this name.
        JournalDamaged: The records were changed or damaged.
        JournalFailed: The records cannot be read.
    """
    paths = find_run(folder, run_id)
    paths.check()
    # The anchor is read before the records: the owner may move it while they are read.
    mark = anchor.read(paths.anchor)
    with database.open_for_reading(run_id, paths.database, busy_seconds) as connection:
        connection.execute("BEGIN")
        return verified(run_id, connection, mark)


def first_text(folder: Path, run_id: str, busy_seconds: float) -> bytes:
    """Return the first record of a run, unchecked: enough to find a run, whose records are then read and checked.

    Raises:
        RunNotFound: There is no run of this name.
        JournalDamaged: The database was changed or damaged.
        JournalFailed: The records cannot be read.
    """
    paths = find_run(folder, run_id)
    paths.check()
    with database.open_for_reading(run_id, paths.database, busy_seconds) as connection:
        row = connection.execute("SELECT CAST(text AS BLOB) FROM records WHERE seq = 1").fetchone()
    return row[0] if row is not None and isinstance(row[0], bytes) else b""


def verified(run_id: str, connection: sqlite3.Connection, mark: anchor.AnchorMark | None) -> list[Line]:
    """Return the records, compared with the anchor.

    Raises:
        JournalDamaged: The records were changed or damaged.
    """
    lines, fault = database.records(run_id, connection)
    fault = fault or anchor.check(lines, mark)
    if fault is not None:
        raise JournalDamaged(run_id, fault.seq, fault.reason)
    return lines


def held_runs(folder: Path, busy_seconds: float) -> list[Held]:
    """Return all runs of a folder with the processes that hold them, in the order of their names.

    Raises:
        JournalFailed: The folder cannot be read.
    """
    return [held_run(folder, name, busy_seconds) for name in run_folder.run_names(folder)]


def held_run(folder: Path, run_id: str, busy_seconds: float) -> Held:
    """Return which process holds a run; a damaged run is held by none.

    Raises:
        RunNotFound: There is no run of this name.
    """
    try:
        paths = find_run(folder, run_id)
        paths.check()
        with database.open_for_reading(run_id, paths.database, busy_seconds) as connection:
            holder = holding(connection)
    except (JournalDamaged, JournalFailed):
        return Held(run_id)  # a reader of the run gets the error
    return Held(run_id, str(holder.owner) if holder.owner else "", holder.is_held)
