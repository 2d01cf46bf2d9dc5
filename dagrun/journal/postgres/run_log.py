"""The run log of one run in PostgreSQL, and its inbox, used on the loop of the run."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
from anyio.lowlevel import current_token

from dagrun.journal.postgres.statements import Sql
from dagrun.journal.postgres.writer import PostgresWriter
from dagrun.journal.queue import QueueStatus
from dagrun.journal.run_log import BufferedRunLog
from dagrun.journal.write_queue import Callback
from dagrun.kernel.model.journal import Durability, InboxMessage, Line
from dagrun.kernel.runtime.backend import call_soon

if TYPE_CHECKING:
    from asyncpg import Connection

# Does something with a connection, in the thread of the journal.
Ask: TypeAlias = "Callable[[Callable[[Connection], Awaitable[Any]]], Awaitable[Any]]"


class PostgresRunLog(BufferedRunLog["_Inbox", PostgresWriter]):
    """The records of one run, held by its owner.

    Args:
        run_id: The run.
        durability: What an acknowledged record survives.
        lines: The records that were there when the run was opened.
        artifacts: The folder for the files of the run, if there is one.
        answer_key: The secret that each answer must carry.
        ask: Reaches the database.
        sql: The statements.
        start: Starts the writer. Its arguments: the `notify` of `WriteQueue`, and what to call when there may be
            messages.
    """

    def __init__(
        self,
        run_id: str,
        durability: Durability,
        lines: Sequence[Line],
        artifacts: Path | None,
        *,
        answer_key: str,
        ask: Ask,
        sql: Sql,
        start: Callable[[Callback, Callback], PostgresWriter],
    ) -> None:
        messages, loop = _Inbox(self._fetch), current_token()

        def begin(notify: Callback) -> PostgresWriter:
            return start(notify, lambda: call_soon(loop, messages.notify))

        self._ask = ask
        self._sql = sql
        super().__init__(run_id, durability, lines, artifacts, answer_key=answer_key, inbox=messages, start=begin)

    async def discard(self, message: str) -> None:
        """Delete a message; one that does not exist is no error.

        Raises:
            JournalFailed: The message cannot be deleted.
        """
        claim = self._writer.claim
        await self._ask(lambda connection: connection.execute(self._sql.discard, claim.number, message, claim.token))
        self._inbox.forget(message)

    def leave(self, standing: QueueStatus, reason: str, *, is_untouched: bool = False) -> None:
        """Choose the queue status of a submitted run for its release; see `dagrun.journal.queue.ClaimedRunLog`."""
        if self._writer.left is not None:
            self._writer.left.leave(standing, reason, is_untouched=is_untouched)

    async def aclose(self) -> None:
        """Write the last records, and release the run."""
        self._writer.seen_messages = self._inbox.seen
        await super().aclose()

    async def _fetch(self, seen: Sequence[str]) -> list[InboxMessage]:
        """Return the oldest messages except those *seen*, as many as fit into memory."""
        run = self._writer.claim.number
        rows = await self._ask(lambda connection: connection.fetch(self._sql.letters, run, seen))
        return [InboxMessage(row["id"], row["text"]) for row in rows]


class _Inbox:
    """The inbox of a run for its owner: an iterator that waits for more, until it is closed."""

    def __init__(self, fetch: Callable[[Sequence[str]], Awaitable[list[InboxMessage]]]) -> None:
        self._fetch = fetch
        self._has_post = anyio.Event()
        self._is_closed = False
        self._seen: set[str] = set()
        self._ready: deque[InboxMessage] = deque()

    def __aiter__(self) -> _Inbox:
        return self

    async def __anext__(self) -> InboxMessage:
        while not self._ready:
            if self._is_closed:
                raise StopAsyncIteration
            # Made before the messages are fetched: a message that comes later sets this event.
            has_post = self._has_post = anyio.Event()
            if not await self._fetch_new():
                await has_post.wait()
        return self._ready.popleft()

    async def backlog(self) -> list[InboxMessage]:
        while await self._fetch_new():
            pass
        messages = list(self._ready)
        self._ready.clear()
        return messages

    @property
    def seen(self) -> list[str]:
        """The messages that were returned, or are about to be, and are still in the inbox."""
        ready = {message.id for message in self._ready}
        return [message for message in self._seen if message not in ready]

    def forget(self, message: str) -> None:
        self._seen.discard(message)

    def notify(self) -> None:
        self._has_post.set()

    def close(self) -> None:
        self._is_closed = True
        self.notify()

    async def _fetch_new(self) -> bool:
        """Fetch new messages; return whether there were any."""
        new = [message for message in await self._fetch(list(self._seen)) if message.id not in self._seen]
        self._seen.update(message.id for message in new)
        self._ready += new
        return bool(new)
