"""The records of one run in PostgreSQL, and the letters for it, seen from the loop of the run."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

import anyio
from anyio.lowlevel import EventLoopToken, current_token

from dagrun.errors import JournalError, JournalFailed
from dagrun.journal.postgres_writer import Writer
from dagrun.journal.waiting import Waiting
from dagrun.model.journal import Durability, Letter, Line
from dagrun.runtime.backend import call_soon


class Post(Protocol):
    """The letters of a run, where they are kept."""

    async def fetch(self, seen: Sequence[str]) -> list[Letter]:
        """The oldest letters but those that were *seen*; not more at a time than fit into memory."""
        ...

    async def discard(self, letter: str) -> None:
        """Throw a letter away; one that is not there is no error."""
        ...


class PostgresTape:
    """The records of one run, in the hands of the one who may add to them.

    Args:
        run_id: The run.
        durability: What its acknowledged records survive.
        lines: The records that are there.
        artifacts: The folder for its files, if there is one.
        post: The letters for it.
        start: Starts the writer, given what it calls to be heard, and what is called when there may be letters.
    """

    def __init__(
        self,
        run_id: str,
        durability: Durability,
        lines: Sequence[Line],
        artifacts: Path | None,
        *,
        post: Post,
        start: Callable[[Callable[[], None], Callable[[], None]], Writer],
    ) -> None:
        self.run_id = run_id
        self.durability = durability
        self.lines = lines
        self.artifacts = artifacts
        self.on_failure: Callable[[JournalError], None] = _ignore
        self._post = post
        self._inbox = _Inbox(post.fetch)
        self._loop: EventLoopToken = current_token()
        self._unit: list[bytes] = []
        self._last = len(lines)
        self._waiting = Waiting()
        self._ended = anyio.Event()
        self._is_closed = False
        self._writer = start(
            lambda: call_soon(self._loop, self._hear), lambda: call_soon(self._loop, self._inbox.knock)
        )

    def append(self, text: bytes) -> int:
        """Add a record, and give its number."""
        self._unit.append(text)
        self._last += 1
        return self._last

    def flush(self) -> None:
        """Hand on what was added since the last time: it becomes durable together, all of it or nothing."""
        if not self._unit:
            return
        unit, self._unit = self._unit, []
        if not self._is_closed and not self._writer.has_ended:
            self._writer.put(unit)

    async def durable(self, seq: int | None = None) -> None:
        """Wait until record *seq* is durable; by default, the last one that was added.

        Raises:
            JournalFailed: It could not be written, or came after the tape was closed.
            OwnerLost: Somebody else has taken the run over; nothing of it was written.
            ValueError: There is no such record.
        """
        self.flush()
        if seq is None:
            seq = self._last
            self._raise_failure()
        elif seq > self._last:
            raise ValueError(f"record {seq} was never added; the last one is {self._last}")
        writer = self._writer
        while writer.acknowledged < seq:
            if writer.has_ended:
                # What was acknowledged before the end is durable all the same.
                if writer.acknowledged < seq:
                    self._raise_failure()
                    raise JournalFailed(f"the tape of run '{self.run_id}' is closed: record {seq} came too late")
                return
            event = self._waiting.event(seq)
            writer.hurry()
            # It may have become durable just before the writer was asked to tell.
            if writer.acknowledged < seq and not writer.has_ended:
                await event.wait()

    def letters(self) -> AsyncIterator[Letter]:
        """The letters that others have left, each once, oldest first; waits for more."""
        return self._inbox

    async def backlog(self) -> list[Letter]:
        """The letters that lie there now, oldest first; `letters` does not give them again.

        Raises:
            JournalFailed: They cannot be read.
        """
        return await self._inbox.backlog()

    async def discard(self, letter: str) -> None:
        """Throw a letter away.

        Raises:
            JournalFailed: It cannot be deleted.
        """
        await self._post.discard(letter)
        self._inbox.forget(letter)

    async def aclose(self) -> None:
        """Write what is left, and let go of the run."""
        self.flush()
        if not self._is_closed:
            self._is_closed = True
            self._inbox.close()
            self._writer.close()
        with anyio.CancelScope(shield=True):  # it takes no longer than the server, or the patience with it
            await self._ended.wait()

    def _hear(self) -> None:
        """Look at what the writer has done."""
        writer = self._writer
        has_ended = writer.has_ended
        self._waiting.wake(writer.acknowledged)
        if has_ended:
            self._waiting.wake_all()
            was_told = self._ended.is_set()
            self._ended.set()
            if writer.failure is not None and not was_told:
                self.on_failure(writer.failure)
        elif self._waiting.first:
            writer.hurry()
            # It may have gone on between the look and the request.
            self._waiting.wake(writer.acknowledged)

    def _raise_failure(self) -> None:
        failure = self._writer.failure
        if failure is not None and self._writer.has_ended:
            # A new one each time: many tasks may raise it at once.
            raise type(failure)(*failure.args) from failure


class _Inbox:
    """The letters of a run, as its owner gets them: an iterator that waits for more, until it is closed."""

    def __init__(self, fetch: Callable[[Sequence[str]], Awaitable[list[Letter]]]) -> None:
        self._fetch = fetch
        self._has_post = anyio.Event()
        self._is_closed = False
        self._seen: set[str] = set()
        self._ready: deque[Letter] = deque()

    def __aiter__(self) -> _Inbox:
        return self

    async def __anext__(self) -> Letter:
        while not self._ready:
            if self._is_closed:
                raise StopAsyncIteration
            # Before the look: a letter that comes after it is knocked for.
            has_post = self._has_post = anyio.Event()
            if not await self._look():
                await has_post.wait()
        return self._ready.popleft()

    async def backlog(self) -> list[Letter]:
        while await self._look():
            pass
        letters = list(self._ready)
        self._ready.clear()
        return letters

    def forget(self, letter: str) -> None:
        self._seen.discard(letter)

    def knock(self) -> None:
        self._has_post.set()

    def close(self) -> None:
        self._is_closed = True
        self.knock()

    async def _look(self) -> bool:
        """Fetch what is new; say whether there was anything."""
        new = [letter for letter in await self._fetch(list(self._seen)) if letter.id not in self._seen]
        self._seen.update(letter.id for letter in new)
        self._ready += new
        return bool(new)


def _ignore(_: JournalError) -> None:
    """What a failure calls that nobody wants to hear of."""
