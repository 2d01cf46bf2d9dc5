"""Followers of a run in PostgreSQL: its owner notifies them of new records, so that nobody polls.

1. A follower tells the owner of the run, on the channel of its messages, and the owner remembers it for a while. So a
   run that nobody follows costs its owner nothing.
2. An owner that is followed tells the channel of new records after each batch, and when it has released the run.
3. The owner may have changed, or not have listened yet. So a follower says again that it follows, the sooner the less
   time has passed without news; where no process is at the run, it looks once a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio
from anyio.lowlevel import current_token

from dagrun.journal.base import is_run_id, no_such_run
from dagrun.kernel.runtime.backend import call_soon

if TYPE_CHECKING:
    from asyncpg import Connection

    from dagrun.journal.postgres.lease_keeper import LeaseKeeper
    from dagrun.journal.postgres.queue import JournalAccess

_MOST: Final = 5.0  # seconds until a follower says so again
_UNHELD: Final = 1.0  # seconds between two looks at a run at which no process is, or of which no connection can tell


class Followers:
    """Waits for records of runs that other processes write.

    Args:
        journal: What the journal lends.
    """

    def __init__(self, journal: JournalAccess) -> None:
        self._journal = journal

    async def wait(self, run_id: str, seq: int, seconds: float) -> bool:
        """Wait until a run has records after *seq*, or its owner notifies; for *seconds* at most.

        Returns:
            Whether there is something new, as far as is known.

        Raises:
            RunNotFound: There is no such run.
            JournalFailed: The server does not answer.
        """
        loop, news, follow = current_token(), anyio.Event(), self._journal.sql.news.follow
        keepers: list[LeaseKeeper] = []

        def notify() -> None:
            call_soon(loop, news.set)

        async def look(connection: Connection) -> float:
            if not keepers:  # before the owner hears of it: what it tells then rings
                keepers.append(self._journal.keeper())
                keepers[0].follow(run_id, notify)
            row = await connection.fetchrow(follow, run_id) if is_run_id(run_id) else None
            if row is None:
                raise no_such_run(run_id)
            if row["seq"] > seq:
                notify()
            return min(seconds, _MOST if row["is_running"] and keepers[0].is_listening else _UNHELD)

        try:
            with anyio.move_on_after(await self._journal.ask(look)):
                await news.wait()
        finally:
            for keeper in keepers:
                keeper.unfollow(run_id, notify)
        return news.is_set()
