"""The records of runs on disk: a folder with a folder for each run; found by what users type."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from dagrun.cli.setup.secrets import record_key
from dagrun.cli.setup.trust import state_folder
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import shorten

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from dagrun.api.replaying import Replayed
    from dagrun.cli.setup.settings import Configuration
    from dagrun.errors import JournalDamaged
    from dagrun.journal.sqlite.journal import SQLiteJournal
    from dagrun.model.event import Event
    from dagrun.model.journal import Held

LAST: Final = "last"  # names the run that was written to last
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
        journal: Reads and writes the records.
    """

    def __init__(self, configuration: Configuration) -> None:
        from dagrun.journal.sqlite.journal import SQLiteJournal

        self.folder = folder_of_runs(configuration)
        self.journal: SQLiteJournal = SQLiteJournal(self.folder, configuration.settings.durability)

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

        Raises:
            BadInput: There is no such run, or more than one.
        """
        names = self.names()
        if text in names:
            return text
        if not names:
            raise BadInput(f"there are no runs in {self.folder} (--runs names another folder)")
        if text == LAST:
            return max(names, key=lambda name: (written_at(self.place(name)), name))
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

        lines = wait(lambda: self.journal.read(run_id))
        if not lines:
            raise BadInput(f"run {run_id} was ended before its first record, so nothing is known of it: start it anew")
        return replayed(run_id, change(events_of(run_id, lines, unseal)))

    def held(self) -> dict[str, Held]:
        """Return which process holds each run, by the name of the run."""
        return {held.run_id: held for held in wait(self.journal.runs)}


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
        from dagrun.cli.setup.settings import configure

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
