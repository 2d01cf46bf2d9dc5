"""The records of one run in PostgreSQL, and the letters for it, seen from the loop of the run."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

import anyio
from anyio.lowlevel import current_token

from dagrun.journal.postgres.writer import PostgresWriter
from dagrun.journal.tape import BufferedTape
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


class PostgresTape(BufferedTape["_Inbox", PostgresWriter]):
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
        start: Callable[[Callable[[], None], Callable[[], None]], PostgresWriter],
    ) -> None:
        letters, loop = _Inbox(post.fetch), current_token()

        def begin(hear: Callable[[], None]) -> PostgresWriter:
            return start(hear, lambda: call_soon(loop, letters.knock))

        super().__init__(run_id, durability, lines, artifacts, inbox=letters, start=begin)
        self._post = post

    async def discard(self, letter: str) -> None:
        """Throw a letter away.

        Raises:
            JournalFailed: It cannot be deleted.
        """
        await self._post.discard(letter)
        self._inbox.forget(letter)


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
