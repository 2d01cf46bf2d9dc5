"""Connections to a server of PostgreSQL: a few that are shared, made anew when the server was away for a moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

import anyio

from dagrun.errors import DagrunError, JournalFailed
from dagrun.journal.postgres.statements import Sql, prepare
from dagrun.model.journal import Durability

if TYPE_CHECKING:
    from asyncpg import Connection

T = TypeVar("T")
FIRST_PAUSE: Final = 0.05  # seconds before another try; each is twice as long as the one before
LONGEST_PAUSE: Final = 2.0


class Connections:
    """The connections of one journal.

    Args:
        dsn: Where the server is.
        sql: The statements.
        durability: What has to be true of a commit.
        most: Connections that are open at once.
        patience: Seconds for which a server that does not answer is tried again.
    """

    def __init__(self, dsn: str, sql: Sql, durability: Durability, *, most: int, patience: float) -> None:
        self.place = _place(dsn)
        self.patience = patience
        self.sql = sql
        self._dsn = dsn
        self.durability = durability
        self._limit = asyncio.Semaphore(most)
        self._idle: list[Connection] = []
        self._preparing = asyncio.Lock()
        self._is_prepared = False

    async def ask(self, act: Callable[[Connection], Awaitable[T]]) -> T:
        """Do *act* with a connection, and again with another one if that was lost: it must do no harm twice.

        A server that was never reached is tried once: the address is wrong, more likely than not.

        Raises:
            JournalFailed: The server does not answer, or does not do it; the message says why.
        """
        until: float | None = None
        pause = FIRST_PAUSE
        while True:
            try:
                async with self.link() as connection:
                    return await act(connection)
            except Exception as error:
                if isinstance(error, DagrunError):
                    raise
                until = until or time.monotonic() + self.patience  # from the first failure on
                if not self._is_prepared or not is_passing(error) or time.monotonic() + pause > until:
                    raise self.failure(error) from error
            await anyio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    @asynccontextmanager
    async def link(self) -> AsyncIterator[Connection]:
        """One of the connections, for as long as the body runs."""
        async with self._limit:
            while self._idle and self._idle[-1].is_closed():
                self._idle.pop()
            connection = self._idle.pop() if self._idle else await self.connect()
            try:
                yield connection
            except BaseException as error:
                if is_passing(error):
                    connection.terminate()
                    self._drop_idle()  # they are of the same server
                raise
            finally:
                if connection.is_closed() or connection.is_in_transaction():
                    connection.terminate()
                else:
                    self._idle.append(connection)

    async def connect(self) -> Connection:
        """A new connection, for the caller to close; the tables are there.

        Raises:
            JournalFailed: The server cannot do what is asked of it.
        """
        import asyncpg

        connection: Connection = await asyncpg.connect(
            self._dsn,
            timeout=self.patience,
            command_timeout=self.patience,  # a line that is dead says nothing at all
            server_settings={"application_name": "dagrun"},
        )
        try:
            await self._set_up(connection)
            async with self._preparing:
                if not self._is_prepared:
                    await prepare(connection, self.sql)
                    self._is_prepared = True
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def aclose(self) -> None:
        """Close the connections that nobody uses."""
        while self._idle:
            connection = self._idle.pop()
            with suppress(Exception):  # the server is gone: there is nothing to close
                await connection.close(timeout=1)

    def failure(self, error: Exception) -> JournalFailed:
        """Say what could not be done, and why; no word of the password."""
        import asyncpg

        if isinstance(error, asyncpg.InterfaceError) and isinstance(error.__context__, Exception):
            error = error.__context__  # what broke the connection, and not what could not be done with it then
        why = str(error) or type(error).__name__
        return JournalFailed(f"cannot use {self.place}: {why}")

    async def _set_up(self, connection: Connection) -> None:
        ((encoding, fsync, commit),) = await connection.fetch(
            "SELECT current_setting('server_encoding'), current_setting('fsync'), current_setting('synchronous_commit')"
        )
        if encoding != "UTF8":
            raise JournalFailed(f"{self.place} stores text as {encoding}; records need a database with encoding UTF8")
        if self.durability is Durability.PROCESS:
            await connection.execute("SET synchronous_commit = off")
            return
        if fsync != "on":
            raise JournalFailed(
                f"{self.place} runs with fsync = off and loses data in a power cut; switch it on, or ask for "
                "durability='process'"
            )
        # Any other value waits for the server's own disk at least, and may have been chosen to wait for more.
        if commit == "off":
            await connection.execute("SET synchronous_commit = on")

    def _drop_idle(self) -> None:
        while self._idle:
            self._idle.pop().terminate()


def is_passing(error: BaseException) -> bool:
    """Whether the same may work later, on another connection: the server was away, busy, or has undone it all."""
    import asyncpg

    if isinstance(error, asyncpg.DataError | asyncpg.ClientConfigurationError | asyncpg.DatabaseDroppedError):
        return False
    return isinstance(
        error,
        OSError  # time that ran out, too
        | asyncpg.InterfaceError  # "connection is closed"
        | asyncpg.InternalClientError  # the server has said good-bye when nothing was asked
        | asyncpg.PostgresConnectionError
        | asyncpg.OperatorInterventionError  # it shuts down, or starts
        | asyncpg.TransactionRollbackError
        | asyncpg.TooManyConnectionsError
        | asyncpg.ReadOnlySQLTransactionError  # a standby, until it is none
        | asyncpg.IdleInTransactionSessionTimeoutError
        | asyncpg.LockNotAvailableError,
    )


def _place(dsn: str) -> str:
    """The database in words, without the password."""
    try:
        parts = urlsplit(dsn)
        where = (parts.netloc.rpartition("@")[2] + parts.path).strip("/")
    except ValueError:
        where = ""
    return f"PostgreSQL at {where}" if where else "PostgreSQL"
