"""What keeps a connection of its own: it renews the leases of a journal's runs, and hears of letters for them.

Both are needed: a line that is dead says nothing, and a renewal that fails is how it is found out.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio

from dagrun.errors import JournalError
from dagrun.journal.postgres.connections import FIRST_PAUSE, LONGEST_PAUSE, Connections, is_passing
from dagrun.journal.postgres.writer import PostgresWriter, lost

if TYPE_CHECKING:
    from asyncpg import Connection


class Keeper:
    """Works in the loop beside, from the first tape until the journal is closed.

    Args:
        links: Makes the connection.
        seconds: Of a lease.
    """

    def __init__(self, links: Connections, seconds: float) -> None:
        self._links = links
        self._seconds = seconds
        self._kept: dict[int, tuple[PostgresWriter, Callable[[], None]]] = {}  # by the number of the run
        self._bell = anyio.Event()
        self.is_running = False

    def add(self, writer: PostgresWriter, knock: Callable[[], None]) -> None:
        """Renew the lease of a run from now on.

        Args:
            writer: Of the run; it is told when the lease is lost.
            knock: Called when there may be letters.
        """
        former = self._kept.get(writer.claim.number)
        if former is not None:
            former[0].fail(lost(writer.claim.run_id))
        self._kept[writer.claim.number] = writer, knock

    def remove(self, writer: PostgresWriter) -> None:
        """Renew it no longer."""
        kept = self._kept.get(writer.claim.number)
        if kept is not None and kept[0] is writer:
            del self._kept[writer.claim.number]

    async def run(self) -> None:
        """Keep the connection, and make it anew for as long as it takes: a run that writes nothing needs no server."""
        pause = FIRST_PAUSE
        while True:
            try:
                connection = await self._links.connect()
            except Exception as error:  # noqa: BLE001
                self._judge(error)
                await anyio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
                continue
            pause = FIRST_PAUSE
            try:
                await self._keep(connection)
            except Exception as error:  # noqa: BLE001
                self._judge(error)
            finally:
                connection.terminate()
            await anyio.sleep(pause)

    def _judge(self, error: Exception) -> None:
        """Tell everybody, if there is no hope that it works later."""
        if is_passing(error):
            return
        failure: JournalError = error if isinstance(error, JournalError) else self._links.failure(error)
        for writer, _ in list(self._kept.values()):
            writer.fail(failure)

    async def _keep(self, connection: Connection) -> None:
        connection.add_termination_listener(lambda _: self._bell.set())
        await connection.add_listener(self._links.sql.channel, self._hear)
        # What was posted while nobody listened.
        for _, knock in list(self._kept.values()):
            knock()
        while not connection.is_closed():
            await self._renew(connection)
            self._bell = anyio.Event()
            if connection.is_closed():
                return
            with anyio.move_on_after(self._seconds / 3):
                await self._bell.wait()

    async def _renew(self, connection: Connection) -> None:
        mine = {number: writer for number, (writer, _) in self._kept.items()}
        if not mine:
            return
        tokens = [writer.claim.token for writer in mine.values()]
        rows = await connection.fetch(self._links.sql.renew, list(mine), tokens, self._seconds)
        for number in mine.keys() - {row["number"] for row in rows}:
            # It may have let go of the run meanwhile.
            kept = self._kept.get(number)
            if kept is not None and kept[0] is mine[number]:
                kept[0].fail(lost(kept[0].claim.run_id))

    def _hear(self, _connection: object, _pid: int, _channel: str, payload: Any) -> None:
        # Anybody may say anything on a channel.
        with suppress(ValueError):
            kept = self._kept.get(int(payload))
            if kept is not None:
                kept[1]()
