"""The store of recorded runs, a folder or a database: runs are found by what users type, and read one by one.

The records in a folder are read without a loop: a list of runs appears at once. Those in a database, which processes on
many machines share, are read on a loop, many at a time.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from dagrun.cli.setup.settings import COMMAND_LINE, DEFAULT, Configuration, project_folder
from dagrun.cli.setup.trust import state_folder
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import DagrunError, JournalDamaged, JournalError, JournalFailed, RunNotFound, hint, shorten
from dagrun.journal.base import without_password
from dagrun.journal.private_folders import keep_private
from dagrun.kernel.model.journal import Held

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from dagrun import Event, PostgresJournal, Replayed, SQLiteJournal
    from dagrun.journal.queue import QueuedRun, QueueStatus
    from dagrun.kernel.model.journal import Line

LAST: Final = "last"  # names the run of this project that was written to last
_MAX_NAMED: Final = 10
_BUSY_SECONDS: Final = 5.0  # how long to wait for a database that another process has locked
_AT_A_TIME: Final = 100  # records that are read while others are shown

T = TypeVar("T")


def open_runs(configuration: Configuration) -> RunStore:
    """Return the store of runs that the settings select.

    Raises:
        BadInput: No place is named, and the user has no home folder.
        MissingExtra: They are in a database, and asyncpg is not installed.
    """
    return (RunStore if configuration.settings.journal is None else SharedRunStore)(configuration)


def open_shared_runs(configuration: Configuration) -> RunStore:
    """Return the store of runs in a database, for commands about runs that workers carry out.

    Raises:
        BadInput: The settings name a folder, or nothing.
        MissingExtra: asyncpg is not installed.
    """
    if configuration.settings.journal is None:
        raise BadInput(
            "workers take runs from PostgreSQL, and none from a folder: name the database by --journal"
            " postgresql://USER@HOST/NAME, or DAGRUN_JOURNAL; without one, dagrun run carries a run out in this process"
        )
    return SharedRunStore(configuration)


def check_new_id(run_id: str | None) -> str:
    """Return the name of a new run: *run_id*, or a new name if that is `None`: the time in UTC, so that names sort.

    Raises:
        BadInput: A run may not have this name.
    """
    from dagrun.journal.base import is_run_id

    if run_id is None:
        return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    if not is_run_id(run_id) or run_id == LAST:
        raise BadInput(
            f"--run-id {shorten(run_id, 100)}: use 1 to 100 of the letters A-Z, a-z, digits, '_', '-' and '.', the"
            f" first of them no '.'; and not '{LAST}'"
        )
    return run_id


def wait(function: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Call an async function in a loop of its own, and return its result."""
    import anyio

    return anyio.run(function)


class RunStore:
    """The recorded runs of one folder, which has a folder for each of them.

    Args:
        configuration: The settings that hold.

    Attributes:
        where: The place, for people.
        is_own: Whether only the user writes records there, so that the code that they name may be imported.

    Raises:
        BadInput: No folder is named, and the user has no home folder.
    """

    where: str
    is_own: bool

    def __init__(self, configuration: Configuration) -> None:
        self._folder = _folder_of_runs(configuration)
        self.where = str(self._folder)
        # A folder that is only named for one command may have been made by anybody.
        self.is_own = configuration.origins["runs"].name != COMMAND_LINE
        self._durability = configuration.settings.durability
        keep_private(self, self._folder)

    @cached_property
    def journal(self) -> SQLiteJournal | PostgresJournal:
        """Reads and writes the records, on any loop."""
        from dagrun import SQLiteJournal

        return SQLiteJournal(self._folder, self._durability)

    def names(self) -> list[str]:
        """Return the names of the runs, sorted.

        Raises:
            JournalFailed: They cannot be read.
        """
        from dagrun.journal.run_folder import run_names

        return run_names(self._folder)

    def lines(self, run_id: str) -> list[Line]:
        """Return the lines of a record.

        Raises:
            RunNotFound: There is no such run.
            JournalDamaged: The record was changed or damaged.
            JournalFailed: The record cannot be read.
        """
        from dagrun.journal.sqlite.reading import read_lines

        return read_lines(self._folder, run_id, _BUSY_SECONDS)

    def held(self, run_id: str) -> Held:
        """Return which process holds a run.

        Raises:
            RunNotFound: There is no such run.
        """
        from dagrun.journal.sqlite.reading import held_run

        return held_run(self._folder, run_id, _BUSY_SECONDS)

    def each(self, wanted: Iterable[str] | None = None) -> Iterator[tuple[Held, list[Line] | JournalError]]:
        """Yield runs in the order of their names: which process holds each, and its lines, or why they cannot be read.

        Args:
            wanted: The names of the runs; `None` for all.

        Raises:
            JournalFailed: The runs cannot be listed.
        """
        for name in self.names() if wanted is None else sorted(set(wanted)):
            try:
                yield self.held(name), self.lines(name)
            except RunNotFound:  # it was deleted a moment ago
                continue
            except (JournalDamaged, JournalFailed) as error:
                yield Held(name), error

    def queued(self, statuses: Collection[QueueStatus] = ()) -> list[QueuedRun]:
        """Return the submitted runs with their queue status; all, or those with one of *statuses*.

        Raises:
            JournalFailed: They cannot be read.
        """
        return []  # none is submitted to a folder

    def written_at(self, run_id: str) -> float:
        """Return when the record was written last, in seconds since 1970; 0 if that is known from its lines alone."""
        return _written_at(self._folder / run_id) / 1e9

    def folder_of(self, run_id: str) -> Path | None:
        """Return the folder of a run; `None` if it has none."""
        return self._folder / run_id

    def make_ready(self, run_id: str) -> None:
        """Make sure that a new run can be recorded.

        Raises:
            BadInput: There is a run of this name, or the place takes no records.
        """
        from dagrun.journal.run_folder import make_root

        advice = "name another folder for the records of runs (--runs DIR), or keep none (--no-journal)"
        try:
            make_root(self._folder)
        except JournalFailed as error:
            raise BadInput(f"{error}; {advice}") from error
        if not os.access(self._folder, os.W_OK | os.X_OK):
            raise BadInput(f"cannot write to {self._folder}; {advice}")
        if os.path.lexists(self._folder / run_id):
            raise self._exists(run_id)

    def _exists(self, run_id: str) -> BadInput:
        return BadInput(f"there is a run {run_id} in {self.where} already; choose another name by --run-id")

    def _last(self, names: list[str]) -> str:
        """Return the run of this project that was written to last.

        Raises:
            BadInput: No run was started in this project.
        """
        newest = sorted(names, key=lambda name: (_written_at(self._folder / name), name), reverse=True)
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
            opening = json.loads(first_text(self._folder, run_id, _BUSY_SECONDS) or b"null")
            found = opening["opening"]["labels"]["directory"]
            return Path(found).resolve() if isinstance(found, str) and "\0" not in found else None
        except (DagrunError, ValueError, KeyError, TypeError, OSError, RecursionError):
            return None

    # The same for every place

    def find(self, text: str) -> str:
        """Return the run named by *text*: a name, a unique beginning of one, or ``last``.

        The standard error says which run is the last one. In a place that the user has named for this command, it is
        the last one there; else it is the last that was started in this project.

        Raises:
            BadInput: There is no such run, or more than one.
        """
        names = self.names()
        if text in names:
            return text
        if not names:
            raise BadInput(f"there are no runs in {self.where} (--runs or --journal names another place)")
        if text == LAST:
            last = self._last(names)
            click.echo(f"last: {last}", err=True)
            return last
        fitting = [name for name in names if text and name.startswith(text)]
        if len(fitting) == 1:
            return fitting[0]
        if not fitting:
            raise BadInput(
                f"there is no run {shorten(text, 100)} in {self.where}{hint(text, names)}; dagrun runs lists them"
            )
        shown = ", ".join(fitting[:_MAX_NAMED])
        more = f" and {len(fitting) - _MAX_NAMED} more" if len(fitting) > _MAX_NAMED else ""
        raise BadInput(f"{len(fitting)} runs begin with {shorten(text, 100)}: {shown}{more}")

    def in_queue(self, run_id: str) -> QueuedRun | None:
        """Return a run with its queue status; `None` if it was not submitted, or has ended."""
        from dagrun.journal.queue import QueueStatus

        still_open = [status for status in QueueStatus if status is not QueueStatus.ENDED]
        return next((row for row in self.queued(still_open) if row.run_id == run_id), None)

    def replay(self, run_id: str) -> Replayed:
        """Return the state of a run from its record; sealed parts stay sealed.

        Raises:
            BadInput: The run was ended before its first record.
            RunNotFound: There is no such run.
            JournalDamaged: The record was changed or damaged.
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
        from dagrun.features.redacted_records.sealing import Sealer

        key = record_key()
        return self._replay(run_id, unseal=None if key is None else Sealer(key, run_id).open)

    def shown(self, run_id: str) -> Replayed:
        """Return the state of a run as it may be shown: without the personal data that the recorded policy names.

        Raises:
            BadInput: As for `replay`, like the errors that are not named here.
        """
        from dagrun.features.redacted_records.records import shown_events

        return self._replay(run_id, shown_events)

    def good_part(self, run_id: str, damage: JournalDamaged) -> Replayed:
        """Return the state of a run after the last record before *damage*, as `shown` does.

        Raises:
            JournalDamaged: There is no good part, or it is damaged in another way.
        """
        from dagrun.api.replaying import replayed
        from dagrun.codec import events_of
        from dagrun.features.redacted_records.records import shown_events
        from dagrun.journal.hash_chain import verify

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
        from dagrun.codec import events_of

        lines = self.lines(run_id)
        if not lines:
            raise BadInput(f"run {run_id} was ended before its first record, so nothing is known of it: start it again")
        return replayed(run_id, change(events_of(run_id, lines, unseal)))


class SharedRunStore(RunStore):
    """The recorded runs of one database. Its connections are closed when the command ends.

    Raises:
        MissingExtra: asyncpg is not installed.
    """

    journal: PostgresJournal

    def __init__(self, configuration: Configuration) -> None:
        from dagrun import PostgresJournal

        address = configuration.settings.journal
        assert address is not None
        self.where = without_password(address)
        self.is_own = False  # anybody with write access to the database may write any record
        # A server keeps what it has confirmed, unless the user says that less will do.
        is_said = configuration.origins["durability"].name != DEFAULT
        durability = configuration.settings.durability if is_said else "power"
        named = configuration.path("artifacts")
        artifacts = None if named is None else Path(os.path.abspath(named))
        if artifacts is not None:
            keep_private(self, artifacts)
        self.journal = PostgresJournal(address, durability=durability, artifacts=artifacts)
        context = click.get_current_context(silent=True)
        if context is not None:  # none while the shell completes a word
            context.call_on_close(partial(wait, self.journal.aclose))

    def names(self) -> list[str]:
        """Return the names of the runs."""
        return [held.run_id for held in wait(self.journal.runs)]

    def lines(self, run_id: str) -> list[Line]:
        """Return the lines of a record."""
        return wait(lambda: self.journal.read(run_id))

    def held(self, run_id: str) -> Held:
        """Return which process holds a run."""
        return wait(lambda: self.journal.held(run_id))

    def each(self, wanted: Iterable[str] | None = None) -> Iterator[tuple[Held, list[Line] | JournalError]]:
        """Yield the runs, which are read many at a time."""
        names = None if wanted is None else frozenset(wanted)
        chosen = [held for held in wait(self.journal.runs) if names is None or held.run_id in names]
        for begin in range(0, len(chosen), _AT_A_TIME):
            some = chosen[begin : begin + _AT_A_TIME]
            found = wait(partial(self._read, [held.run_id for held in some]))
            yield from ((held, found[held.run_id]) for held in some if held.run_id in found)

    async def _read(self, some: Iterable[str]) -> dict[str, list[Line] | JournalError]:
        import anyio

        found: dict[str, list[Line] | JournalError] = {}

        async def read(run_id: str) -> None:
            try:
                found[run_id] = await self.journal.read(run_id)
            except RunNotFound:  # it was deleted a moment ago
                return
            except (JournalDamaged, JournalFailed) as error:
                found[run_id] = error

        async with anyio.create_task_group() as tasks:
            for run_id in some:
                tasks.start_soon(read, run_id)
        return found

    def queued(self, statuses: Collection[QueueStatus] = ()) -> list[QueuedRun]:
        """Return the submitted runs."""
        return wait(lambda: self.journal.queue.runs(statuses))

    def written_at(self, run_id: str) -> float:
        """Return 0: only the records of a run have their times."""
        return 0.0

    def folder_of(self, run_id: str) -> None:
        """Return `None`: a run has no folder of its own."""

    def make_ready(self, run_id: str) -> None:
        """Make sure that a new run can be recorded."""
        try:
            self.held(run_id)
        except RunNotFound:
            return
        raise self._exists(run_id)

    def _last(self, names: list[str]) -> str:
        """Return the run that was made last."""
        return wait(self.journal.newest) or names[-1]


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
