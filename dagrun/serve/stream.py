"""The stream of changes of one run, as server-sent events.

It is read by `fetch`, not by `EventSource`, which cannot send the token. The events: ``snapshot`` (the whole view, if
the cursor is of no use), ``changes``, ``end`` (nothing more will come; with the last drawing), ``again`` (it is to be
opened again, with this cursor), ``bye`` (the server closes), and ``fault`` (the record cannot be read). The id of each
is the cursor after it.

A server that stops waits for its open responses, and tells an application of it only when there are none. So a stream
ends by itself after a few seconds, for browsers to open it again: with every server, and without signals.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

import anyio
from pydantic_core import to_json
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from dagrun.errors import JournalError
from dagrun.serve.catalog import Catalog
from dagrun.serve.feeds import TICK, Feed

PING_EVERY: Final = 15.0  # seconds without news after which a comment is sent, so that nothing on the way hangs up
PATIENCE: Final = 30.0  # seconds for a reader to take the data


class Stream(Response):
    """Answers with the changes of a run, until it ends, the reader goes, or the server closes.

    Args:
        feed: The run.
        catalog: Forgets the feed if its record is damaged.
        after: The cursor of the reader; empty for none.
        closing: Set when the server closes.
        lasts: Seconds after which it ends, to be opened again; infinite for never.
    """

    media_type = "text/event-stream"

    def __init__(self, feed: Feed, catalog: Catalog, after: str, closing: anyio.Event, lasts: float = math.inf) -> None:
        super().__init__(headers={"x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._feed = feed
        self._catalog = catalog
        self._after = feed.cursor_of(after)
        self._closing = closing
        self._ends = anyio.current_time() + lasts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events; a reader that takes none for too long is cut."""
        async with anyio.create_task_group() as tasks:

            async def write(message: Message) -> None:
                with anyio.move_on_after(PATIENCE) as sending:
                    await send(message)
                if sending.cancelled_caught:
                    tasks.cancel_scope.cancel()

            async def until_disconnected() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                tasks.cancel_scope.cancel()

            tasks.start_soon(until_disconnected)
            await write({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async with aclosing(self._events()) as events:
                async for text in events:
                    await write({"type": "http.response.body", "body": text, "more_body": True})
            await write({"type": "http.response.body", "body": b"", "more_body": False})
            tasks.cancel_scope.cancel()

    async def _events(self) -> AsyncGenerator[bytes, None]:
        feed, seen = self._feed, -1
        feed.readers[self] = self._after
        try:
            while True:
                await feed.refresh()
                if feed.version != seen and (news := await self._news(seen)) is not None:
                    text, seen = news
                    yield text
                    continue  # it may have ended while that was sent
                if feed.is_over:  # the server may be gone after it, so that the drawing could not be asked for
                    yield _event("end", feed.cursor, to_json({"svg": await feed.last_drawing()}))
                    return
                if self._closing.is_set() or anyio.current_time() >= self._ends:
                    name = "bye" if self._closing.is_set() else "again"
                    yield _event(name, f"{feed.mark}-{self._after}", b"{}")  # there may be more than it was told
                    return
                # Ticks are those of a clock that all readers share, so that the data is encoded once.
                # At least a moment: the rest of a tick may be too short to move the clock.
                await anyio.sleep(max(TICK / 20, TICK - anyio.current_time() % TICK))
                if feed.version == seen and not await self._has_news():
                    yield b": ping\n\n"
        except JournalError as error:
            self._catalog.forget(feed)
            yield _event("fault", "", to_json({"error": str(error)}))
        finally:
            del feed.readers[self]

    async def _news(self, seen: int) -> tuple[bytes, int] | None:
        """Return the next event, and the version of the feed that the reader then knows; `None` if it is not due."""
        feed, after = self._feed, self._after
        if after is None:
            version = feed.version
            text, seq = await feed.snapshot()
            told = _event("snapshot", f"{feed.mark}-{seq}", text), version
        else:
            frame = feed.frame(after, seen)
            if frame is None:
                return None
            seq = frame.seq
            told = _event("changes", f"{feed.mark}-{seq}", frame.texts[after]), frame.version
        self._after = feed.readers[self] = seq
        return told

    async def _has_news(self) -> bool:
        """Wait until there may be news, or the stream ends; return false if nothing came for a while."""
        with anyio.move_on_after(min(PING_EVERY, self._ends - anyio.current_time())) as waiting:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._cancel_when_closing, tasks.cancel_scope)
                await self._feed.wait()
                tasks.cancel_scope.cancel()
        return not waiting.cancelled_caught

    async def _cancel_when_closing(self, scope: anyio.CancelScope) -> None:
        await self._closing.wait()
        scope.cancel()


def _event(name: str, cursor: str, data: bytes) -> bytes:
    return b"event: %b\nid: %b\ndata: %b\n\n" % (name.encode(), cursor.encode(), data)
