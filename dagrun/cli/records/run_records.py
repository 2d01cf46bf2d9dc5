"""The records of runs in a folder or a database, and the names of new runs."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dagrun.cli.records.record_place import LAST
from dagrun.cli.setup.settings import Configuration
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import shorten

if TYPE_CHECKING:
    from dagrun.cli.records.record_place import Records


def new_run_id() -> str:
    """Return a name for a run: the time in UTC, so that names sort, and four random hex digits."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def check_new_id(run_id: str | None) -> str:
    """Return the name of a new run: *run_id*, or a new name if that is `None`.

    Raises:
        BadInput: A run may not have this name.
    """
    from dagrun.journal.base import is_run_id

    if run_id is None:
        return new_run_id()
    if not is_run_id(run_id) or run_id == LAST:
        raise BadInput(
            f"--run-id {shorten(run_id, 100)}: use 1 to 100 of the letters A-Z, a-z, digits, '_', '-' and '.', the"
            f" first of them no '.'; and not '{LAST}'"
        )
    return run_id


def open_records(configuration: Configuration) -> Records:
    """Return the store of runs that the settings select.

    Raises:
        BadInput: No place is named, and the user has no home folder.
        MissingExtra: They are in a database, and asyncpg is not installed.
    """
    if configuration.settings.journal is not None:
        from dagrun.cli.records.database_records import DatabaseRecords

        return DatabaseRecords(configuration)
    from dagrun.cli.records.folder_records import FolderRecords

    return FolderRecords(configuration)


def open_shared_records(configuration: Configuration) -> Records:
    """Return the records of runs in a database, for commands about runs that workers carry out.

    Raises:
        BadInput: The settings name a folder, or nothing.
        MissingExtra: asyncpg is not installed.
    """
    if configuration.settings.journal is None:
        raise BadInput(
            "workers take runs from PostgreSQL, and none from a folder: name the database by --journal"
            " postgresql://USER@HOST/NAME, or DAGRUN_JOURNAL; without one, dagrun run carries a run out in this process"
        )
    return open_records(configuration)
