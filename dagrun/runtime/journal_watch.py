"""The end of a run that cannot be written down any more: before more happens that is not on record."""

from __future__ import annotations

import anyio
from anyio.abc import TaskGroup

from dagrun.errors import JournalError
from dagrun.model.journal import Tape
from dagrun.model.outcome import Status
from dagrun.runtime.record.record import Record
from dagrun.runtime.upcalls import Upcalls, weakly


class JournalWatch:
    """Ends one run when its journal has failed.

    Args:
        record: Shows what comes of it.
        up: Ends the run, and tells when an event cannot be written.

    Attributes:
        failure: Why nothing can be written any more, if that is so.
    """

    def __init__(self, record: Record, up: Upcalls) -> None:
        self.failure: JournalError | None = None
        self._record = record
        self._up = up
        self._news = anyio.Event()
        up.failed = self._note

    def open(self, tasks: TaskGroup, tape: Tape) -> None:
        """Begin to watch *tape*, which outlives the run."""
        tape.on_failure = weakly(self._note)
        tasks.start_soon(self._work, name="dagrun journal")

    def close(self) -> None:
        """Watch no more: the run has ended. A failure is noted still."""
        self._news.set()

    def _note(self, error: JournalError) -> None:
        """Take why it has failed: this may be amid a change, or in a callback in which no task may start."""
        self.failure = self.failure or error  # at once: nothing more may be acknowledged
        self._news.set()

    async def _work(self) -> None:
        await self._news.wait()
        if self.failure is not None:
            self._up.stop(Status.FAILED, str(self.failure))
            self._record.deliver()
