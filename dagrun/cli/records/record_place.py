"""The store of runs for commands, a folder or a database: runs are found by what users type."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import shorten

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from dagrun.api.replaying import Replayed
    from dagrun.errors import JournalDamaged, JournalError
    from dagrun.journal.postgres.journal import PostgresJournal
    from dagrun.journal.queue import QueuedRun, QueueStatus
    from dagrun.journal.sqlite.journal import SQLiteJournal
    from dagrun.kernel.model.event import Event
    from dagrun.kernel.model.journal import Held, Line

LAST: Final = "last"  # names the run of this project that was written to last
_MAX_NAMED: Final = 10

T = TypeVar("T")


class Records(ABC):
    """The records of runs in one place: a folder, or a database.

    Attributes:
        where: The place, for people.
        is_own: Whether only the user writes records there, so that the code that they name may be imported.
    """

    where: str
    is_own: bool

    @property
    @abstractmethod
    def journal(self) -> PostgresJournal | SQLiteJournal:
        """Reads and writes the records, on a loop."""

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of the runs, sorted.

        Raises:
            JournalFailed: They cannot be read.
        """

    @abstractmethod
    def lines(self, run_id: str) -> list[Line]:
        """Return the lines of a record.

        Raises:
            RunNotFound: There is no such run.
            JournalDamaged: The record was changed or damaged.
            JournalFailed: The record cannot be read.
        """

    @abstractmethod
    def held(self, run_id: str) -> Held:
        """Return which process holds a run.

        Raises:
            RunNotFound: There is no such run.
        """

    @abstractmethod
    def each(self, wanted: Collection[str] | None = None) -> Iterator[tuple[Held, list[Line] | JournalError]]:
        """Yield runs in the order of their names: which process holds each, and its lines, or why they cannot be read.

        Args:
            wanted: The names of the runs; `None` for all.

        Raises:
            JournalFailed: The runs cannot be listed.
        """

    @abstractmethod
    def queued(self, standings: Collection[QueueStatus] = ()) -> list[QueuedRun]:
        """Return the submitted runs with their queue status; all, or those with one of *standings*.

        Raises:
            JournalFailed: They cannot be read.
        """

    @abstractmethod
    def written_at(self, run_id: str) -> float:
        """Return when the record was written last, in seconds since 1970; 0 if that is known from its lines alone."""

    @abstractmethod
    def place(self, run_id: str) -> Path | None:
        """Return the folder of a run; `None` if it has none."""

    @abstractmethod
    def make_ready(self, run_id: str) -> None:
        """Make sure that a new run can be recorded.

        Raises:
            BadInput: There is a run of this name, or the place takes no records.
        """

    @abstractmethod
    def _last(self, names: list[str]) -> str:
        """Return the run for the name ``last``.

        Raises:
            BadInput: There is none.
        """

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
                f"there is no run {shorten(text, 100)} in {self.where}{_near(text, names)}; dagrun runs lists them"
            )
        shown = ", ".join(fitting[:_MAX_NAMED])
        more = f" and {len(fitting) - _MAX_NAMED} more" if len(fitting) > _MAX_NAMED else ""
        raise BadInput(f"{len(fitting)} runs begin with {shorten(text, 100)}: {shown}{more}")

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
        from dagrun.features.redacted_records.records import shown_events
        from dagrun.journal.hash_chain import verify
        from dagrun.kernel.model.codec.event_codec import events_of

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
        from dagrun.kernel.model.codec.event_codec import events_of

        lines = self.lines(run_id)
        if not lines:
            raise BadInput(f"run {run_id} was ended before its first record, so nothing is known of it: start it again")
        return replayed(run_id, change(events_of(run_id, lines, unseal)))


def wait(function: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Call an async function in a loop of its own, and return its result."""
    import anyio

    return anyio.run(function)


def _near(text: str, names: list[str]) -> str:
    from dagrun.kernel.model.toolbox import hint

    return hint(text, names)
