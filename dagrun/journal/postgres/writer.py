"""The task that writes the records of one run to PostgreSQL, many units in one statement.

Each unit becomes durable as a whole or not at all.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio
import anyio.to_thread

from dagrun.errors import JournalError, JournalFailed, OwnerLost
from dagrun.journal.anchor import Anchor, AnchorMark
from dagrun.journal.hash_chain import Chain
from dagrun.journal.postgres import queue_statements
from dagrun.journal.postgres.connections import Connections
from dagrun.journal.postgres.loop_thread import LoopThread
from dagrun.journal.queue import Release
from dagrun.journal.write_queue import Callback, WriteQueue
from dagrun.kernel.model.journal import Durability, Line

if TYPE_CHECKING:
    from asyncpg import Connection

MAX_BATCH: Final = 500  # records
PAUSE: Final = 0.01  # seconds to wait for more records while no task waits for these
RELEASE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class RunLogClaim:
    """The right of this process to add records to a run.

    Attributes:
        run_id: The run.
        number: The number of its row.
        token: The token of this owner.
        seconds: How long the lease lasts after each renewal.
    """

    run_id: str
    number: int
    token: int
    seconds: float


# A run that was taken over: the right to add to it, its records, its anchor, its answer key, and, if it was submitted,
# how it is released.
TakenRun: TypeAlias = tuple[RunLogClaim, list[Line], Anchor | None, str, Release | None]


class PostgresWriter(WriteQueue):
    """Writes the records of one run, in a task of the journal's thread.

    It acknowledges a record only after it is committed, and after the anchor, if there is one, is written.

    Args:
        loop_thread: The thread whose loop runs the task.
        connections: The connections.
        claim: The right to write.
        anchor: Open for writing, closed by the writer; `None` if there is none.
        chain: The hash chain of the records so far.
        notify: As for `WriteQueue`; called in the journal's thread.
        left: How a submitted run is released; `None` for a run that was not submitted.

    Attributes:
        seen_messages: The messages that the run has seen when its run log is closed.
        followed_until: Until when somebody wants to be told of new records, by the monotonic clock.
    """

    def __init__(
        self,
        loop_thread: LoopThread,
        connections: Connections,
        claim: RunLogClaim,
        *,
        anchor: Anchor | None,
        chain: Chain,
        notify: Callback,
        left: Release | None = None,
    ) -> None:
        super().__init__(chain.seq, MAX_BATCH, claim.seconds, notify)
        self.claim = claim
        self._loop_thread = loop_thread
        self._connections = connections
        self._anchor = anchor
        self._chain = chain
        self.left = left
        self.seen_messages: list[str] = []
        self.followed_until = 0.0
        self._wakeup: anyio.Event | None = None

    def _wake_writer(self) -> None:  # called in the thread of the run
        self._is_waiting = False  # one wake-up is enough
        self._loop_thread.call_soon(self._wake)

    # In the journal's thread ------------------------------------------------------------------------------------------

    def fail(self, error: JournalError) -> None:
        """End without writing anything more."""
        self.failure = self.failure or error
        self._wake()

    async def run(self) -> None:
        """Write until the run log is closed, or the writer fails."""
        try:
            while (batch := await self._take()) is not None:
                await self._write(batch)
            await self._release()
        except JournalError as error:
            self.failure = error
        except Exception as error:  # noqa: BLE001  (a task that ends silently would leave the run waiting for ever)
            self.failure = self._connections.failure(error)
        finally:
            if not self._is_closing and self.failure is None:
                self.failure = JournalFailed(f"the journal was closed before the run log of run '{self.claim.run_id}'")
            if self._anchor is not None:
                self._anchor.close()
            self.has_ended = True
            self._notify()

    def _wake(self) -> None:
        if self._wakeup is not None:
            self._wakeup.set()

    async def _take(self) -> list[bytes] | None:
        """Wait for units, and take a batch of them; `None` at the end.

        The batch is empty where the loop wants to know whether the run is still held.
        """
        while not self._ends and not self._is_closing:
            self._raise_failure()
            if self._wants_look:
                return []
            await self._wait(is_idle=True)
        self._raise_failure()
        if not self._ends:
            return None
        if not self._is_urgent:
            # No task waits: records that come soon are written along.
            with anyio.move_on_after(PAUSE):
                await self._wait(is_idle=False)
            self._is_waiting = False
        return self._gather()

    async def _wait(self, *, is_idle: bool) -> None:
        # The flags are set before the last look at the queue: see rule 3 of `write_queue`.
        self._wakeup = anyio.Event()
        self._is_idle = is_idle
        self._is_waiting = True
        if not self._has_work(is_idle=is_idle):
            await self._wakeup.wait()
        self._is_waiting = False

    def _has_work(self, *, is_idle: bool) -> bool:
        if self._is_closing or self.failure is not None or self._wants_look:
            return True
        return bool(self._ends) if is_idle else self._is_urgent

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure

    async def _write(self, batch: list[bytes]) -> None:
        look = self._begin_look()
        if not batch:
            await self._connections.ask(self._renew)
            self._end_look(look)
            return
        chain = self._chain.copy()
        digests: list[str] = []
        for text in batch:
            chain.add(text)
            digests.append(chain.digest)
        texts = [text.decode() for text in batch]
        await self._connections.ask(lambda connection: self._add(connection, texts, digests))
        self._end_look(look)
        self._chain = chain
        if self.left is not None:
            self.left.last = batch[-1]
        await self._move_anchor(AnchorMark(chain.seq, chain.digest, self.claim.token))
        self._acknowledge(chain.seq)
        await self._tell()

    async def _tell(self) -> None:
        """Notify the followers of the run of new records."""
        if time.monotonic() < self.followed_until:
            tell, run_id = self._connections.sql.news.tell, self.claim.run_id
            with suppress(JournalFailed):  # they look by themselves, a little later
                await self._connections.ask(lambda connection: connection.execute(tell, run_id))

    async def _add(self, connection: Connection, texts: list[str], digests: list[str]) -> None:
        """Add records after the last one, unless they were added before a connection was lost."""
        claim, before = self.claim, self._chain
        seq, digest = before.seq + len(texts), digests[-1]
        status = await connection.execute(
            self._connections.sql.append,
            claim.number,
            claim.token,
            seq,
            digest,
            claim.seconds,
            before.seq,
            before.digest,
            texts,
            digests,
        )
        if status == f"INSERT 0 {len(texts)}":
            return
        row = await connection.fetchrow(self._connections.sql.state, claim.number)
        if row is None:
            raise JournalFailed(f"run '{claim.run_id}' was deleted while it was written")
        if row["token"] != claim.token:
            raise lost(claim.run_id)
        if (row["seq"], row["digest"]) != (seq, digest):
            raise JournalFailed(
                f"run '{claim.run_id}' goes as far as record {row['seq']} in {self._connections.place}, and was "
                f"written as far as record {before.seq}: the server has lost records, or somebody has changed them"
            )

    async def _renew(self, connection: Connection) -> None:
        """Renew the lease.

        Raises:
            OwnerLost: Another process has taken the run over.
        """
        claim, sql = self.claim, self._connections.sql
        if not await connection.fetch(sql.renew, [claim.number], [claim.token], claim.seconds):
            raise lost(claim.run_id)

    async def _move_anchor(self, mark: AnchorMark) -> None:
        if self._anchor is None:
            return
        try:
            if self._connections.durability is Durability.POWER:
                await anyio.to_thread.run_sync(self._anchor.write, mark)
            else:
                self._anchor.write(mark)
            is_there = self._anchor.is_in_place()
        except OSError as error:
            raise JournalFailed(f"cannot write the anchor of run '{self.claim.run_id}': {error.strerror}") from error
        if not is_there:
            raise JournalFailed(f"the anchor of run '{self.claim.run_id}' was replaced while it was written")

    async def _release(self) -> None:
        claim, release = self.claim, self._connections.sql.release
        # All records are written. If the server is away now, the lease expires by itself.
        with suppress(JournalFailed), anyio.move_on_after(RELEASE_SECONDS):
            if self.left is not None:
                await self._connections.ask(self._release_to_queue)
            else:
                await self._connections.ask(lambda connection: connection.execute(release, claim.number, claim.token))
            await self._tell()

    async def _release_to_queue(self, connection: Connection) -> None:
        assert self.left is not None
        claim = (self.claim.number, self.claim.token)
        await queue_statements.release(connection, self._connections.sql.queue, claim, self.left, self.seen_messages)


def lost(run_id: str) -> OwnerLost:
    """Return the error for an owner that has lost its run: a newer token exists."""
    return OwnerLost(f"run '{run_id}' was taken over by another process; this one writes nothing more")
