"""The records of runs on disk: a folder with a folder for each run. They are read without a loop."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dagrun.cli.records.record_place import Records
from dagrun.cli.setup.settings import COMMAND_LINE, Configuration, project_folder
from dagrun.cli.setup.trust import state_folder
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import DagrunError, JournalDamaged, JournalError, JournalFailed, RunNotFound, shorten
from dagrun.journal.private_folders import keep_private
from dagrun.kernel.model.journal import Held

if TYPE_CHECKING:
    from dagrun.journal.queue import QueuedRun, QueueStatus
    from dagrun.journal.sqlite.journal import SQLiteJournal
    from dagrun.kernel.model.journal import Line

_BUSY_SECONDS: Final = 5.0  # how long to wait for a database that another process has locked


class FolderRecords(Records):
    """The records of runs in one folder.

    Args:
        configuration: The settings that hold.

    Attributes:
        folder: The folder, absolute.

    Raises:
        BadInput: No folder is named, and the user has no home folder.
    """

    def __init__(self, configuration: Configuration) -> None:
        self.folder = _folder_of_runs(configuration)
        self.where = str(self.folder)
        # A folder that is only named for one command may have been made by anybody.
        self.is_own = configuration.origins["runs"].name != COMMAND_LINE
        self._durability = configuration.settings.durability
        keep_private(self, self.folder)

    @cached_property
    def journal(self) -> SQLiteJournal:
        """Reads and writes the records, on a loop. To read them alone, neither it nor a loop is needed."""
        from dagrun.journal.sqlite.journal import SQLiteJournal

        return SQLiteJournal(self.folder, self._durability)

    def place(self, run_id: str) -> Path:
        """Return the folder of a run."""
        return self.folder / run_id

    def names(self) -> list[str]:
        """Return the names of the runs; see `Records.names`."""
        from dagrun.journal.run_folder import run_names

        return run_names(self.folder)

    def lines(self, run_id: str) -> list[Line]:
        """Return the lines of a record; see `Records.lines`."""
        from dagrun.journal.sqlite.reading import read_lines

        return read_lines(self.folder, run_id, _BUSY_SECONDS)

    def held(self, run_id: str) -> Held:
        """Return which process holds a run; see `Records.held`."""
        from dagrun.journal.sqlite.reading import held_run

        return held_run(self.folder, run_id, _BUSY_SECONDS)

    def each(self, wanted: Collection[str] | None = None) -> Iterator[tuple[Held, list[Line] | JournalError]]:
        """Yield the runs; see `Records.each`."""
        for name in self.names():
            if wanted is not None and name not in wanted:
                continue
            try:
                yield self.held(name), self.lines(name)
            except RunNotFound:  # it was deleted a moment ago
                continue
            except (JournalDamaged, JournalFailed) as error:
                yield Held(name), error

    def queued(self, standings: Collection[QueueStatus] = ()) -> list[QueuedRun]:
        """Return no run: none is submitted to a folder."""
        return []

    def written_at(self, run_id: str) -> float:
        """Return the time of the last write into the folder of a run; see `Records.written_at`."""
        return _written_at(self.place(run_id)) / 1e9

    def make_ready(self, run_id: str) -> None:
        """Make sure that a new run can be recorded; see `Records.make_ready`."""
        from dagrun.journal.run_folder import make_root

        advice = "name another folder for the records of runs (--runs DIR), or keep none (--no-journal)"
        try:
            make_root(self.folder)
        except JournalFailed as error:
            raise BadInput(f"{error}; {advice}") from error
        if not os.access(self.folder, os.W_OK | os.X_OK):
            raise BadInput(f"cannot write to {self.folder}; {advice}")
        if os.path.lexists(self.place(run_id)):
            raise BadInput(f"there is a run {run_id} in {self.folder} already; choose another name by --run-id")

    def _last(self, names: list[str]) -> str:
        """Return the run of this project that was written to last.

        Raises:
            BadInput: No run was started in this project.
        """
        newest = sorted(names, key=lambda name: (_written_at(self.place(name)), name), reverse=True)
        if not self.is_own:
            return newest[0]
        project = project_folder(Path.cwd().resolve())
        for name in newest:
            directory = self._directory_of(name)
            if directory is not None and (directory == project or project in directory.parents):
                return name
        elsewhere = self._directory_of(newest[0])
        where = "" if elsewhere is None else f", started in {shorten(str(elsewhere), 200)}"
        raise BadInput(f"no run was started in {project}; the last one elsewhere is {newest[0]}{where}: name it")

    def _directory_of(self, run_id: str) -> Path | None:
        """Return the working directory of the command that began a run; `None` if it is not recorded."""
        from dagrun.journal.sqlite.reading import first_text

        try:
            opening = json.loads(first_text(self.folder, run_id, _BUSY_SECONDS) or b"null")
            found = opening["opening"]["labels"]["directory"]
            return Path(found).resolve() if isinstance(found, str) and "\0" not in found else None
        except (DagrunError, ValueError, KeyError, TypeError, OSError, RecursionError):
            return None


def _folder_of_runs(configuration: Configuration) -> Path:
    named = configuration.path("runs")
    if named is not None:
        return Path(os.path.abspath(named))
    try:
        return state_folder() / "runs"
    except BadInput:
        raise BadInput("there is no home folder for the records of runs: name a folder by --runs DIR") from None


def _written_at(place: Path) -> int:
    """Return the time of the last write into the folder of a run, in nanoseconds since 1970; 0 if it is not known."""
    for name in ("anchor", "journal.db"):
        try:
            return (place / name).lstat().st_mtime_ns
        except OSError:
            continue
    return 0
