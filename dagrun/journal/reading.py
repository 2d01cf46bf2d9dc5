"""Reading runs back: what our journals give besides the texts of records."""

from __future__ import annotations

from abc import ABC, abstractmethod

from dagrun.model.event import Event
from dagrun.model.journal import Line
from dagrun.model.records import events_of


class Readable(ABC):
    """A journal whose records can be read as events."""

    @abstractmethod
    async def read(self, run_id: str) -> list[Line]:
        """Give the records of a run; see `Journal.read`."""

    async def records(self, run_id: str) -> list[Event]:
        """Give the events of a run: what it was opened with, plans and patches, outcomes, verdicts, answers, costs.

        Raises:
            RunNotFound: There is none of this name, or it was killed before its first record.
            JournalDamaged: Its records are not what was written.
        """
        return events_of(run_id, await self.read(run_id))
