"""Submitted runs on the page: the pool of each, its worker or why it has none; and the orders about them."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any, Final

import anyio
from starlette.responses import JSONResponse, Response

from dagrun.api.submitting import cancel
from dagrun.errors import JournalError, RunNotFound
from dagrun.journal.queue import QueuedRun, Queues, QueueStatus, RunQueue
from dagrun.model.journal import Journal
from dagrun.serve.guard import problem

# Those that have ended are not looked at: there may be very many, and their records say all of them.
_OPEN: Final = tuple(standing for standing in QueueStatus if standing is not QueueStatus.ENDED)
_LATEST: Final = 2.0**37  # seconds since 1970: later, calendars have no more years
_PATIENCE: Final = 5.0  # seconds for a worker that has just claimed a run to take note of an order
STILL_HELD: Final = "a worker that does not answer still holds this run: try again when its lease has expired"
NOT_BACK: Final = "only a submitted run that is stuck or waits is put back into the queue"


class QueueRows:
    """Where submitted runs stand.

    Args:
        journal: The journal with the runs; `None` if there are only runs of this process.
    """

    def __init__(self, journal: Journal | None) -> None:
        self._journal = journal
        self._queue: RunQueue | None = None if journal is None else _queue_of(journal)

    async def open_rows(self) -> dict[str, QueuedRun]:
        """Return the submitted runs that have not ended, by id; none if they cannot be read: the rest is on record."""
        if self._queue is None:
            return {}
        try:
            return {row.run_id: row for row in await self._queue.runs(_OPEN)}
        except JournalError:
            return {}

    async def put_back(self, run_id: str) -> Response:
        """Put a run that is stuck or waits back into the queue: 202; 409 if it is neither."""
        try:
            if self._queue is not None and await self._queue.put_back(run_id):
                return JSONResponse({"taken": True}, 202)
        except RunNotFound:  # it is there, and was not submitted
            pass
        return problem(409, NOT_BACK)

    async def cancel(self, run_id: str, reason: str, by: str) -> Response | None:
        """Cancel a submitted run that no process carries out: 202, and the next worker ends it; `None` if it is none.

        409 if a process that has ended still holds it: nobody waits at a page for the end of a lease.
        """
        if self._journal is None or run_id not in await self.open_rows():
            return None
        with anyio.move_on_after(_PATIENCE):
            is_cancelled = await cancel(run_id, journal=self._journal, reason=reason, by=by)
            return JSONResponse({"taken": True}, 202) if is_cancelled else None
        return problem(409, STILL_HELD)


def _queue_of(journal: Journal) -> RunQueue | None:
    return journal.queue if isinstance(journal, Queues) else None


def queue_facts(row: QueuedRun | None) -> dict[str, Any] | None:
    """Return where a run stands in the queue as plain JSON; `None` if it is not there."""
    return {**row.as_dict(), "words": _words(row)} if row is not None else None


def _words(row: QueuedRun) -> str:
    begin = row.ticket.not_before
    later = f"not before {datetime.fromtimestamp(begin):%Y-%m-%d %H:%M}" if time.time() < begin < _LATEST else ""
    takeovers = f"{row.takeovers} takeover{'s' * (row.takeovers != 1)}" if row.takeovers else ""
    return ", ".join(filter(None, (f"pool {row.ticket.pool}", row.owner, takeovers, later)))
