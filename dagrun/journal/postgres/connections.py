"""The connections to a PostgreSQL server: a few, shared, and replaced when they are lost.

asyncpg's own pool is slower by a task for each statement (`docs/decisions-archive.md`, 99).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

import anyio

from dagrun.errors import DagrunError, JournalFailed
from dagrun.journal.base import without_password
from dagrun.journal.postgres.statements import Sql, prepare
from dagrun.kernel.model.journal import Durability

if TYPE_CHECKING:
    from asyncpg import Connection

T = TypeVar("T")
FIRST_PAUSE: Final = 0.05  # seconds before the second try; each pause is twice as long as the one before
LONGEST_PAUSE: Final = 2.0
_LOOKS: Final = 5  # a busy pooler may give two clients what looks like sessions of their own, but not so often in a row
_SHARED: Final = (
    "a pooler between lends its sessions for one transaction at a time, and the journal needs sessions of its own, to "
    "listen and to prepare statements; connect directly, or let the pooler keep sessions (for PgBouncer: pool_mode = "
    "session)"
)


class Connections:
    """The connections of one journal.

    Args:
        dsn: The address of the database.
        sql: The statements.
        durability: What a commit must survive.
        most: The most connections that are open at once.
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
        """Run *act* with a connection; if the connection is lost, run it again with another one.

        So *act* must do no harm when it is run twice. A server that was never reached is tried once only: its address
        is probably wrong.

        Raises:
            JournalFailed: The server does not answer, or refuses; the message says why.
        """
        until: float | None = None
        pause = FIRST_PAUSE
        while True:
            try:
                async with self._lend() as connection:
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
    async def _lend(self) -> AsyncIterator[Connection]:
        """Lend a connection to the body."""
        async with self._limit:
            while self._idle and self._idle[-1].is_closed():
                self._idle.pop()
            connection = self._idle.pop() if self._idle else await self.connect()
            try:
                yield connection
            except BaseException as error:
                if is_passing(error):
                    connection.terminate()
                    self._drop_idle()  # they are to the same server
                raise
            finally:
                if connection.is_closed() or connection.is_in_transaction():
                    connection.terminate()
                else:
                    self._idle.append(connection)

    async def connect(self) -> Connection:
        """Return a new connection, for the caller to close; the tables exist.

        Raises:
            JournalFailed: The server cannot keep what the journal promises, or its tables have another format.
        """
        connection = await self._connected()
        try:
            await self._set_up(connection)
            async with self._preparing:
                if not self._is_prepared:
                    await self._refuse_shared_sessions(connection)
                    await prepare(connection, self.sql)
                    self._is_prepared = True
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _connected(self) -> Connection:
        import asyncpg

        connection: Connection = await asyncpg.connect(
            self._dsn,
            timeout=self.patience,
            command_timeout=self.patience,  # a dead connection would wait forever
            server_settings={"application_name": "dagrun"},
        )
        return connection

    async def _refuse_shared_sessions(self, connection: Connection) -> None:
        """Raise an error if two open connections can share a session, or one of them can change its session.

        A pooler makes up the number of the session that it tells a client at first; only then is there more to ask. A
        pooler that gives out what came back last then lends one session to both connections; one that goes around its
        sessions gives a connection another one each time.
        """
        own = await _session(connection)
        if own == connection.get_server_pid():
            return
        other = await self._connected()
        try:
            for _ in range(_LOOKS):
                if await _session(connection) != own or await _session(other) == own:
                    raise JournalFailed(f"cannot use {self.place}: {_SHARED}")
        finally:
            other.terminate()

    async def aclose(self) -> None:
        """Close the idle connections."""
        while self._idle:
            connection = self._idle.pop()
            with suppress(Exception):  # the server is gone: there is nothing to close
                await connection.close(timeout=1)

    def failure(self, error: Exception) -> JournalFailed:
        """Return the error to raise for *error*; its message never contains the password."""
        import asyncpg

        if isinstance(error, asyncpg.InterfaceError) and isinstance(error.__context__, Exception):
            error = error.__context__  # the error that broke the connection, not the one that followed from it
        why = str(error) or type(error).__name__
        if isinstance(error, asyncpg.InvalidSQLStatementNameError | asyncpg.DuplicatePreparedStatementError):
            why = _SHARED  # it has prepared statements in one session, and met another
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
        # Any other value waits at least for the server's own disk, and may have been chosen to wait for more.
        if commit == "off":
            await connection.execute("SET synchronous_commit = on")

    def _drop_idle(self) -> None:
        while self._idle:
            self._idle.pop().terminate()


async def _session(connection: Connection) -> int:
    number: int = await connection.fetchval("SELECT pg_backend_pid()")
    return number


def is_passing(error: BaseException) -> bool:
    """Return whether a new try on another connection may succeed: the server was away or busy, or has rolled back."""
    import asyncpg

    if isinstance(error, asyncpg.DataError | asyncpg.ClientConfigurationError | asyncpg.DatabaseDroppedError):
        return False
    return isinstance(
        error,
        OSError  # `TimeoutError`, too
        | asyncpg.InterfaceError  # "connection is closed"
        | asyncpg.InternalClientError  # the server has closed an idle connection
        | asyncpg.PostgresConnectionError
        | asyncpg.OperatorInterventionError  # the server shuts down, or starts
        | asyncpg.TransactionRollbackError
        | asyncpg.TooManyConnectionsError
        | asyncpg.ReadOnlySQLTransactionError  # the server is a standby, and may be promoted
        | asyncpg.IdleInTransactionSessionTimeoutError
        | asyncpg.LockNotAvailableError,
    )


def _place(dsn: str) -> str:
    """Return the address of the database for messages, without the password."""
    try:
        parts = urlsplit(without_password(dsn))
        where = (parts.netloc.rpartition("@")[2] + parts.path).strip("/")
    except ValueError:
        where = ""
    return f"PostgreSQL at {where}" if where else "PostgreSQL"
