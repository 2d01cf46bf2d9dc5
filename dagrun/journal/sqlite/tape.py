"""The records of one run in a file of SQLite, seen from the loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio.to_thread

from dagrun.journal.run_folder import Place
from dagrun.journal.sqlite import inbox
from dagrun.journal.sqlite.writer import SQLiteWriter
from dagrun.journal.tape import BufferedTape
from dagrun.model.journal import Durability, Line


class SQLiteTape(BufferedTape[inbox.Inbox, SQLiteWriter]):
    """The records of one run, in the hands of the one who may add to them.

    Args:
        run_id: The run.
        durability: What its acknowledged records survive.
        place: Its folder.
        lines: The records that are there.
        start: Starts the writer, given what it calls to be heard.
    """

    def __init__(
        self,
        run_id: str,
        durability: Durability,
        place: Place,
        lines: Sequence[Line],
        start: Callable[[Callable[[], None]], SQLiteWriter],
    ) -> None:
        super().__init__(run_id, durability, lines, place.artifacts, inbox=inbox.Inbox(place), start=start)
        self._place = place

    async def discard(self, letter: str) -> None:
        """Throw a letter away.

        Raises:
            JournalFailed: It cannot be deleted.
        """
        await anyio.to_thread.run_sync(inbox.discard, self._place, letter)

    async def aclose(self) -> None:
        """Write what is left, and let go of the run."""
        await super().aclose()
        self._writer.join()
