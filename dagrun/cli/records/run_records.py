"""The records of runs on disk: a folder with a folder for each run; found by what users type."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from dagrun.cli.setup.settings import COMMAND_LINE, Configuration, configure, project_folder
from dagrun.cli.setup.trust import state_folder
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import DagrunError, shorten
from dagrun.journal.private_folders import keep_private

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from dagrun.api.replaying import Replayed
    from dagrun.errors import JournalDamaged
    from dagrun.journal.sqlite.journal import SQLiteJournal
    from dagrun.model.event import Event
    from dagrun.model.journal import Held, Line

_BUSY_SECONDS: Final = 5.0  # how long to wait for a database that another process has locked

LAST: Final = "last"  # names the run of this project that was written to last
_MAX_NAMED: Final = 10

T = TypeVar("T")


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


def folder_of_runs(configuration: Configuration) -> Path:
    """Return the folder of the records of runs.

    Raises:
        BadInput: No folder is named, and the user has no home folder.
    """
    named = configuration.path("runs")
    if named is not None:
        return Path(os.path.abspath(named))
    try:
        return state_folder() / "runs"
    except BadInput:
        raise BadInput("there is no home folder for the records of runs: name a folder by --runs DIR") from None


class Records:
    """The records of runs in one folder.

    Args:
        configuration: The settings that hold.

    Attributes:
        folder: The folder, absolute.
        is_own: Whether it is where the user keeps records, by default or by a setting.
    """

    def __init__(self, configuration: Configuration) -> None:
        self.folder = folder_of_runs(configuration)
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
        """Return the names of the runs, sorted.

        Raises:
            JournalFailed: The folder is no folder of records, or cannot be read.
        """
        from dagrun.journal.run_folder import run_names

        return run_names(self.folder)

    def find(self, text: str) -> str:
        """Return the name of the run that *text* stands for: its name, the beginning of only this name, or ``last``.

        The standard error says which run is the last one. In a folder that the user has named for this command, it is
        the last of the folder; else it is the last that was started in this project.

        Raises:
            BadInput: There is no such run, or more than one.
        """
        names = self.names()
        if text in names:
            return text
        if not names:
            raise BadInput(f"there are no runs in {self.folder} (--runs names another folder)")
        if text == LAST:
            last = self._last(names)
            click.echo(f"last: {last}", err=True)
            return last
        fitting = [name for name in names if text and name.startswith(text)]
        if len(fitting) == 1:
            return fitting[0]
        if not fitting:
            raise BadInput(
                f"there is no run {shorten(text, 100)} in {self.folder}{_near(text, names)}; dagrun runs lists them"
            )
        shown = ", ".join(fitting[:_MAX_NAMED])
        more = f" and {len(fitting) - _MAX_NAMED} more" if len(fitting) > _MAX_NAMED else ""
        raise BadInput(f"{len(fitting)} runs begin with {shorten(text, 100)}: {shown}{more}")

    def _last(self, names: list[str]) -> str:
        """Return the run of this project that was written to last.

        Raises:
            BadInput: No run was started in this project.
        """
        newest = sorted(names, key=lambda name: (written_at(self.place(name)), name), reverse=True)
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
        """Return where the command was called that began a run; `None` if its record does not say."""
        from dagrun.journal.sqlite.reading import first_text

        try:
            opening = json.loads(first_text(self.folder, run_id, _BUSY_SECONDS) or b"null")
            found = opening["opening"]["labels"]["directory"]
            return Path(found).resolve() if isinstance(found, str) and "\0" not in found else None
        except (DagrunError, ValueError, KeyError, TypeError, OSError, RecursionError):
            return None

    def replay(self, run_id: str) -> Replayed:
        """Return the state of a run as its record has it; what is sealed stays so.

        Raises:
            BadInput: The run was ended before its first record.
            RunNotFound: There is no such run.
            JournalDamaged: The record is not what was written.
            JournalFailed: The record cannot be read.
        """
        return self._replay(run_id)

    def whole(self, run_id: str) -> Replayed:
        """Return the state of a run with all that was sealed in its record, if there is a key for it.

        Raises:
            BadInput: As for `replay`, like the errors that are not named here.
            ContractError: The key is malformed.
            WrongRecordKey: It is not the key of the run.
        """
        from dagrun.cli.setup.secrets import record_key
        from dagrun.runtime.record.sealing import Sealer

        key = record_key()
        return self._replay(run_id, unseal=None if key is None else Sealer(key, run_id).open)

    def shown(self, run_id: str) -> Replayed:
        """Return the state of a run as it may be shown: without the personal data that the recorded policy names.

        Raises:
            BadInput: As for `replay`, like the errors that are not named here.
        """
        from dagrun.model.redaction.records import shown_events

        return self._replay(run_id, shown_events)

    def good_part(self, run_id: str, damage: JournalDamaged) -> Replayed:
        """Return the state of a run after the last record before *damage*, as `shown` does.

        Raises:
            JournalDamaged: There is no good part, or it is damaged in another way.
        """
        from dagrun.api.replaying import replayed
        from dagrun.journal.hash_chain import verify
        from dagrun.model.codec.event_codec import events_of
        from dagrun.model.redaction.records import shown_events

        lines, _ = verify(run_id, wait(lambda: self.journal.rows_after(run_id, 0)))
        good = [line for line in lines if line.seq < damage.seq]
        if not good:
            raise damage
        return replayed(run_id, shown_events(events_of(run_id, good)))

    def _replay(
        self,
        run_id: str,
        change: Callable[[list[Event]], list[Event]] = list,
        unseal: Callable[[str], bytes] | None = None,
    ) -> Replayed:
        from dagrun.api.replaying import replayed
        from dagrun.model.codec.event_codec import events_of

        lines = self.lines(run_id)
        if not lines:
            raise BadInput(f"run {run_id} was ended before its first record, so nothing is known of it: start it anew")
        return replayed(run_id, change(events_of(run_id, lines, unseal)))

    def lines(self, run_id: str) -> list[Line]:
        """Return the lines of a record.

        Raises:
            RunNotFound: There is no such run.
            JournalDamaged: The record is not what was written.
            JournalFailed: The record cannot be read.
        """
        from dagrun.journal.sqlite.reading import read_lines

        return read_lines(self.folder, run_id, _BUSY_SECONDS)

    def all_held(self) -> list[Held]:
        """Return which process holds each run, in the order of the names of the runs.

        Raises:
            JournalFailed: The folder cannot be read.
        """
        from dagrun.journal.sqlite.reading import held_runs

        return held_runs(self.folder, _BUSY_SECONDS)

    def held(self, run_id: str) -> Held:
        """Return which process holds a run.

        Raises:
            RunNotFound: There is no such run.
        """
        from dagrun.journal.sqlite.reading import held_run

        return held_run(self.folder, run_id, _BUSY_SECONDS)


def wait(function: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Call an async function in a loop of its own, and return its result."""
    import anyio

    return anyio.run(function)


def written_at(place: Path) -> int:
    """Return the time of the last write into the folder of a run, in nanoseconds since 1970; 0 if it is not known."""
    for name in ("anchor", "journal.db"):
        try:
            return (place / name).lstat().st_mtime_ns
        except OSError:
            continue
    return 0


def _near(text: str, names: list[str]) -> str:
    from dagrun.model.toolbox import hint

    return hint(text, names)


def complete_run(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of runs that begin with *incomplete*, for the completion of the shell; never an error."""
    try:
        names = Records(configure({"runs": context.params.get("runs")})).names()
    except Exception:  # noqa: BLE001  (a traceback would appear in the middle of the typed line)
        return []
    return [name for name in [LAST, *reversed(names)] if name.startswith(incomplete)]


run_argument: Final = click.argument("run", metavar="RUN", shell_complete=complete_run)
runs_option: Final = click.option(
    "--runs",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="The folder of the records of runs; or set DAGRUN_RUNS.  [default: a folder of the user]",
)
