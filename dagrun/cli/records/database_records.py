"""The records of runs in a database of PostgreSQL, which processes on many machines share."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import click

from dagrun.cli.records.record_place import Records, wait
from dagrun.cli.setup.settings import Configuration
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import JournalDamaged, JournalError, JournalFailed, RunNotFound
from dagrun.journal.base import without_password
from dagrun.journal.postgres.journal import PostgresJournal
from dagrun.journal.private_folders import keep_private

if TYPE_CHECKING:
    from dagrun.journal.queue import QueuedRun, QueueStatus
    from dagrun.kernel.model.journal import Held, Line

_AT_A_TIME: Final = 100  # records that are read while others are shown
_DEFAULT: Final = "default"


class DatabaseRecords(Records):
    """The records of runs in one database. Its connections are closed when the command ends.

    Args:
        configuration: The settings that hold.

    Raises:
        MissingExtra: asyncpg is not installed.
    """

    is_own = False  # whoever may write to the database may write any record

    def __init__(self, configuration: Configuration) -> None:
        address = configuration.settings.journal
        assert address is not None
        self.where = without_password(address)
        # A server keeps what it has confirmed, unless the user says that less will do.
        is_said = configuration.origins["durability"].name != _DEFAULT
        durability = configuration.settings.durability if is_said else "power"
        named = configuration.path("artifacts")
        artifacts = None if named is None else Path(os.path.abspath(named))
        if artifacts is not None:
            keep_private(self, artifacts)
        self._journal = PostgresJournal(address, durability=durability, artifacts=artifacts)
        context = click.get_current_context(silent=True)
        if context is not None:  # none while the shell completes a word
            context.call_on_close(partial(wait, self._journal.aclose))

    @property
    def journal(self) -> PostgresJournal:
        """Reads and writes the records, on any loop."""
        return self._journal

    def names(self) -> list[str]:
        """Return the names of the runs; see `Records.names`."""
        return [held.run_id for held in wait(self._journal.runs)]

    def lines(self, run_id: str) -> list[Line]:
        """Return the lines of a record; see `Records.lines`."""
        return wait(lambda: self._journal.read(run_id))

    def held(self, run_id: str) -> Held:
        """Return which process holds a run; see `Records.held`."""
        return wait(lambda: self._journal.held(run_id))

    def each(self, wanted: Collection[str] | None = None) -> Iterator[tuple[Held, list[Line] | JournalError]]:
        """Yield the runs; see `Records.each`."""
        all_held = wait(self._journal.runs)
        chosen = [held for held in all_held if wanted is None or held.run_id in wanted]
        for begin in range(0, len(chosen), _AT_A_TIME):
            some = chosen[begin : begin + _AT_A_TIME]
            found = wait(partial(self._read, some))
            yield from ((held, found[held.run_id]) for held in some if held.run_id in found)

    async def _read(self, some: Sequence[Held]) -> dict[str, list[Line] | JournalError]:
        found: dict[str, list[Line] | JournalError] = {}

        async def read(run_id: str) -> None:
            try:
                found[run_id] = await self._journal.read(run_id)
            except RunNotFound:  # it was deleted a moment ago
                return
            except (JournalDamaged, JournalFailed) as error:
                found[run_id] = error

        async with anyio.create_task_group() as tasks:
            for held in some:
                tasks.start_soon(read, held.run_id)
        return found

    def queued(self, standings: Collection[QueueStatus] = ()) -> list[QueuedRun]:
        """Return the submitted runs; see `Records.queued`."""
        return wait(lambda: self._journal.queue.runs(standings))

    def written_at(self, run_id: str) -> float:
        """Return 0: only the records of a run have their times."""
        return 0.0

    def place(self, run_id: str) -> None:
        """Return `None`: a run has no folder of its own."""

    def make_ready(self, run_id: str) -> None:
        """Make sure that a new run can be recorded; see `Records.make_ready`."""
        try:
            self.held(run_id)
        except RunNotFound:
            return
        raise BadInput(f"there is a run {run_id} in {self.where} already; choose another name by --run-id")

    def _last(self, names: list[str]) -> str:
        """Return the run that was made last."""
        return wait(self._journal.newest) or names[-1]
