"""The task that renews the leases of a journal's runs, and listens for their messages.

Both use one connection, apart from the shared ones. They belong together: a dead connection delivers neither messages
nor an error, and only a failed renewal shows that it is dead.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import anyio

from dagrun.errors import JournalError
from dagrun.journal.postgres.connections import FIRST_PAUSE, LONGEST_PAUSE, Connections, is_passing
from dagrun.journal.postgres.writer import PostgresWriter, lost
from dagrun.journal.write_queue import Callback

if TYPE_CHECKING:
    from asyncpg import Connection

FOLLOWED: Final = 30.0  # seconds for which an owner tells of its records after it has heard of a follower


class LeaseKeeper:
    """Renews leases in the thread of the journal, from its first run log until it is closed.

    Args:
        connections: Makes the connection.
        seconds: How long a lease lasts.
    """

    def __init__(self, connections: Connections, seconds: float) -> None:
        self._connections = connections
        self._seconds = seconds
        self._runs: dict[int, tuple[PostgresWriter, Callback]] = {}  # by the number of the run
        self._lost_connection = anyio.Event()
        self._on_queue: list[Callable[[str | None], None]] = []
        self._followers: dict[str, list[Callback]] = {}  # by the id of the run
        self.is_listening = False

    def follow(self, run_id: str, notify: Callback) -> None:
        """Call *notify* on each notification by the owner of a run, in any process; in the thread of the journal."""
        self._followers.setdefault(run_id, []).append(notify)

    def unfollow(self, run_id: str, notify: Callback) -> None:
        """Call *notify* no more."""
        self._followers[run_id].remove(notify)
        if not self._followers[run_id]:
            del self._followers[run_id]

    def listen(self, notify: Callable[[str | None], None]) -> None:
        """Call *notify* in the thread of the journal with the pool whenever a run is queued; `None` may be any pool."""
        self._on_queue.append(notify)

    def unlisten(self, notify: Callable[[str | None], None]) -> None:
        """Call *notify* no more."""
        self._on_queue.remove(notify)

    def add(self, writer: PostgresWriter, notify_message: Callback) -> None:
        """Renew the lease of a run from now on.

        Args:
            writer: The writer of the run; it fails when the lease is lost.
            notify_message: Called when there may be messages.
        """
        former = self._runs.get(writer.claim.number)
        if former is not None:
            former[0].fail(lost(writer.claim.run_id))
        self._runs[writer.claim.number] = writer, notify_message

    def remove(self, writer: PostgresWriter) -> None:
        """Stop renewing the lease of a run."""
        kept = self._runs.get(writer.claim.number)
        if kept is not None and kept[0] is writer:
            del self._runs[writer.claim.number]

    async def run(self) -> None:
        """Renew and listen until cancelled; connect again, forever, when the connection is lost.

        A run that writes nothing needs no server, so a server that is away fails no run here.
        """
        pause = FIRST_PAUSE
        while True:
            try:
                connection = await self._connections.connect()
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
                self.is_listening = False
                connection.terminate()
            await anyio.sleep(pause)

    def _judge(self, error: Exception) -> None:
        """Fail all writers if no later try can succeed."""
        if is_passing(error):
            return
        failure: JournalError = error if isinstance(error, JournalError) else self._connections.failure(error)
        for writer, _ in list(self._runs.values()):
            writer.fail(failure)

    async def _keep(self, connection: Connection) -> None:
        """Renew and listen until the connection is lost."""
        connection.add_termination_listener(lambda _: self._lost_connection.set())
        await connection.add_listener(self._connections.sql.channel, self._on_message)
        await connection.add_listener(self._connections.sql.news.channel, self._on_news)
        await connection.add_listener(self._connections.sql.queue.channel, self._on_queued)
        self.is_listening = True
        # Letters may have been posted, and runs queued, while there was no connection.
        for _, notify_message in list(self._runs.values()):
            notify_message()
        for notify in list(self._on_queue):
            notify(None)
        while not connection.is_closed():
            await self._renew(connection)
            self._lost_connection = anyio.Event()
            if connection.is_closed():
                return
            with anyio.move_on_after(self._seconds / 3):
                await self._lost_connection.wait()

    async def _renew(self, connection: Connection) -> None:
        writers = {number: writer for number, (writer, _) in self._runs.items()}
        if not writers:
            return
        tokens = [writer.claim.token for writer in writers.values()]
        rows = await connection.fetch(self._connections.sql.renew, list(writers), tokens, self._seconds)
        for number in writers.keys() - {row["number"] for row in rows}:
            # The writer may have released the run meanwhile.
            kept = self._runs.get(number)
            if kept is not None and kept[0] is writers[number]:
                kept[0].fail(lost(kept[0].claim.run_id))

    def _on_queued(self, _connection: object, _pid: int, _channel: str, payload: Any) -> None:
        for notify in list(self._on_queue):
            notify(str(payload))

    def _on_news(self, _connection: object, _pid: int, _channel: str, payload: Any) -> None:
        for notify in list(self._followers.get(str(payload), ())):
            notify()

    def _on_message(self, _connection: object, _pid: int, _channel: str, payload: Any) -> None:
        # Any client of the server may send anything on the channel.
        with suppress(ValueError):
            number = int(payload)
            kept = self._runs.get(abs(number))
            if kept is None:
                return
            if number < 0:  # no message: somebody follows the run
                kept[0].followed_until = time.monotonic() + FOLLOWED
            else:
                kept[1]()
