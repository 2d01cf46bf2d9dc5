"""The task that writes the records of one run to PostgreSQL: many units in one statement, each whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from dagrun.errors import JournalError, JournalFailed, OwnerLost
from dagrun.journal.anchor import Anchor, AnchorMark
from dagrun.journal.hash_chain import Chain
from dagrun.journal.postgres.connections import Connections
from dagrun.journal.postgres.loop_thread import LoopThread
from dagrun.journal.write_queue import WriteQueue
from dagrun.model.journal import Durability

if TYPE_CHECKING:
    from asyncpg import Connection

MAX_BATCH: Final = 500  # records
PAUSE: Final = 0.01  # seconds to wait for more records while nobody waits for these
RELEASE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class TapeClaim:
    """The right to add to a run.

    Attributes:
        run_id: The run.
        number: Of its row.
        token: Ours.
        seconds: How long the lease goes on after it was renewed.
    """

    run_id: str
    number: int
    token: int
    seconds: float


class PostgresWriter(WriteQueue):
    """Writes in the loop beside what the loop of the run hands over.

    Nothing is acknowledged before it is committed, and the anchor, if there is one, says so.

    Args:
        beside: The loop that it works in.
        links: The connections.
        claim: The right to write.
        anchor: Open for writing, closed at the end; `None` if there is none.
        chain: As far as the records go.
        tell: As for `WriteQueue`; called in the loop beside.
    """

    def __init__(
        self,
        beside: LoopThread,
        links: Connections,
        claim: TapeClaim,
        *,
        anchor: Anchor | None,
        chain: Chain,
        tell: Callable[[], None],
    ) -> None:
        super().__init__(chain.seq, MAX_BATCH, tell)
        self.claim = claim
        self._beside = beside
        self._links = links
        self._anchor = anchor
        self._chain = chain
        self._bell: anyio.Event | None = None

    # In the loop beside -----------------------------------------------------------------------------------------------

    def fail(self, error: JournalError) -> None:
        """Write nothing more."""
        self.failure = self.failure or error
        self._wake()

    async def run(self) -> None:
        """Write until the end."""
        try:
            while (batch := await self._take()) is not None:
                await self._write(batch)
            await self._release()
        except JournalError as error:
            self.failure = error
        except Exception as error:  # noqa: BLE001  (a task that dies in silence would leave the run waiting for ever)
            self.failure = self._links.failure(error)
        finally:
            if not self._is_closing and self.failure is None:
                self.failure = JournalFailed(f"the journal was closed before the tape of run '{self.claim.run_id}'")
            if self._anchor is not None:
                self._anchor.close()
            self.has_ended = True
            self._tell()

    def _ring(self) -> None:
        self._is_dozing = False  # once is enough
        self._beside.soon(self._wake)

    def _wake(self) -> None:
        if self._bell is not None:
            self._bell.set()

    async def _take(self) -> list[bytes] | None:
        """Wait for units, and take as many as fit; `None` at the end."""
        while not self._ends and not self._is_closing:
            self._raise_failure()
            await self._doze(is_idle=True)
        self._raise_failure()
        if not self._ends:
            return None
        if not self._is_urgent:
            # Nobody waits: what comes in the next moment goes along.
            with anyio.move_on_after(PAUSE):
                await self._doze(is_idle=False)
            self._is_dozing = False
        return self._gather()

    async def _doze(self, *, is_idle: bool) -> None:
        # The flags stand before the last look: what comes after the look rings.
        self._bell = anyio.Event()
        self._is_idle = is_idle
        self._is_dozing = True
        if not self._has_reason(is_idle=is_idle):
            await self._bell.wait()
        self._is_dozing = False

    def _has_reason(self, *, is_idle: bool) -> bool:
        if self._is_closing or self.failure is not None:
            return True
        return bool(self._ends) if is_idle else self._is_urgent

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure

    async def _write(self, batch: list[bytes]) -> None:
        chain = self._chain.copy()
        digests: list[str] = []
        for text in batch:
            chain.add(text)
            digests.append(chain.digest)
        texts = [text.decode() for text in batch]
        await self._links.ask(lambda connection: self._add(connection, texts, digests))
        self._chain = chain
        await self._move_anchor(AnchorMark(chain.seq, chain.digest, self.claim.token))
        self._acknowledge(chain.seq)

    async def _add(self, connection: Connection, texts: list[str], digests: list[str]) -> None:
        """Add records behind the last one, or find that they were added when the connection was lost."""
        claim, before = self.claim, self._chain
        seq, digest = before.seq + len(texts), digests[-1]
        done = await connection.execute(
            self._links.sql.append,
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
        if done == f"INSERT 0 {len(texts)}":
            return
        found = await connection.fetchrow(self._links.sql.state, claim.number)
        if found is None:
            raise JournalFailed(f"run '{claim.run_id}' was deleted while it was written")
        if found["token"] != claim.token:
            raise lost(claim.run_id)
        if (found["seq"], found["digest"]) != (seq, digest):
            raise JournalFailed(
                f"run '{claim.run_id}' goes as far as record {found['seq']} in {self._links.place}, and was written "
                f"as far as record {before.seq}: the server has lost records, or somebody has changed them"
            )

    async def _move_anchor(self, mark: AnchorMark) -> None:
        if self._anchor is None:
            return
        try:
            if self._links.durability is Durability.POWER:
                await anyio.to_thread.run_sync(self._anchor.write, mark)
            else:
                self._anchor.write(mark)
            is_there = self._anchor.is_in_place()
        except OSError as error:
            raise JournalFailed(f"cannot write the anchor of run '{self.claim.run_id}': {error.strerror}") from error
        if not is_there:
            raise JournalFailed(f"the anchor of run '{self.claim.run_id}' was replaced while it was written")

    async def _release(self) -> None:
        claim, release = self.claim, self._links.sql.release
        # All is written. If the server is away just now, the lease runs out by itself.
        with suppress(JournalFailed), anyio.move_on_after(RELEASE_SECONDS):
            await self._links.ask(lambda connection: connection.execute(release, claim.number, claim.token))


def lost(run_id: str) -> OwnerLost:
    """The error for an owner whose token is not the last one."""
    return OwnerLost(f"run '{run_id}' was taken over by another process; this one writes nothing more")
