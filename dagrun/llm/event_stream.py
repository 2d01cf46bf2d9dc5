"""One HTTP call, and the server-sent events of its answer.

At the end of the call, its connection is closed, or free for another call.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import anyio
from pydantic_core import from_json

from dagrun.llm.api_format import DONE, Event
from dagrun.llm.call_errors import CallError, broke_off, call_error_of, no_stream
from dagrun.llm.http_clients import HttpAnswer

# The longest whole answer has less; a longer event would only fill the memory.
MAX_EVENT: Final = 16 * 1024 * 1024


class SseReader:
    """Cuts a stream of bytes into events, without their names: the data of each event names its type.

    Only an event with the name ``error`` is made an object with *type* and *error*, because its data may be any text.

    The libraries of the providers have such a reader, too, but without a ceiling, and behind generators that they leave
    half-read, of which trio warns each time (`docs/decisions-archive.md`, 101).
    """

    __slots__ = ("_after_cr", "_data", "_is_error", "_line", "_size")

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._is_error = False
        self._after_cr = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of the events that *chunk* completes.

        Raises:
            ValueError: An event has more than 16 MiB.
        """
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        if chunk:
            self._after_cr = chunk.endswith(b"\r")
        *lines, rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        events = []
        for line in lines:
            self._line += line  # copies one chunk at most, even if the line is long
            events += self._take(bytes(self._line))
            self._line.clear()
        self._line += rest
        if self._size + len(self._line) > MAX_EVENT:
            raise ValueError(f"an event has more than {MAX_EVENT} bytes")
        return events

    def end(self) -> list[bytes]:
        """Return the data of the last event, if the stream has ended without the empty line after it."""
        return [*self._take(bytes(self._line)), *self._take(b"")]

    def _take(self, line: bytes) -> list[bytes]:
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
            self._size += len(line)
        elif line.startswith(b"event:"):
            self._is_error = line[6:].strip() == b"error"
        if line:
            return []
        is_error, self._is_error = self._is_error, False
        if not self._data:
            return []
        event = b"\n".join(self._data)
        self._data.clear()
        self._size = 0
        return [_error_event(event) if is_error else event]


# Seconds to wait for the end of a stream whose answer is complete: only then can the connection be used again.
_LINGER: Final = 0.1


class Exchange:
    """Reads the events of one answer.

    Attributes:
        is_over: Set by the caller when it has read the whole answer.
        is_stream: Whether the answer is a stream of events, according to its content type; else it is one event.
    """

    def __init__(self, answer: HttpAnswer, deadline: float) -> None:
        self.is_over = False
        self._answer = answer
        self._chunks = answer.aiter_bytes()
        self._deadline = deadline
        kind = str(answer.headers.get("content-type", "")).lower()
        self.is_stream = kind.startswith("text/event-stream")
        self._sse = SseReader()
        if not self.is_stream:
            self._sse.feed(b"data:")  # the body is read as the one line of one event
        self._waiting: deque[bytes] = deque()
        self._is_ended = False

    async def next_event(self) -> Event | None:
        """Return the next event; `None` at the end.

        Raises:
            CallError: The connection is lost, the time is over, or an event is not a JSON object.
        """
        while not self._waiting and not self._is_ended:
            chunk = await self._next_chunk()
            self._is_ended = chunk is None
            try:
                self._waiting.extend(self._sse.end() if chunk is None else self._sse.feed(chunk))
            except ValueError as error:
                raise CallError(f"the answer makes no sense: {error}") from None
        return _parse(self._waiting.popleft(), is_stream=self.is_stream) if self._waiting else None

    async def close(self) -> None:
        """Close the answer, read to its end or not. Cancelling this does no harm."""
        # The body is behind half a dozen generators of three libraries. Only reading further lets all of them end, and
        # in a cancelled scope that takes no time. Generators that are dropped are left to the garbage collector, and
        # trio warns of each.
        with anyio.CancelScope(shield=True) as scope:
            scope.deadline = anyio.current_time() + _LINGER
            if not self.is_over:
                scope.cancel()
            try:
                async for _ in self._chunks:
                    pass
            except Exception:  # noqa: BLE001 -- the answer has been read, and the rest is not wanted
                pass
        with anyio.CancelScope(shield=True):
            await self._answer.aclose()

    async def _next_chunk(self) -> bytes | None:
        scope = anyio.CancelScope(deadline=self._deadline)
        try:
            with scope:
                chunk = await anext(self._chunks, None)
                return chunk if self.is_stream or chunk is None else b" ".join(chunk.splitlines())
        except Exception as error:  # noqa: BLE001 -- raised again as `CallError`
            call_error = call_error_of(error)
            raise broke_off(call_error.reason) if call_error.is_transient else call_error from None
        raise _late()


@asynccontextmanager
async def exchange(post: Callable[[], Awaitable[HttpAnswer]], max_seconds: float) -> AsyncGenerator[Exchange]:
    """Make a call, and close its answer at the end of the block.

    Args:
        post: Makes the call, and returns as soon as the head of the answer has come.
        max_seconds: The longest time for the call and its whole answer.

    Raises:
        CallError: There is no answer, or it is an error.
    """
    deadline = anyio.current_time() + max_seconds
    answer = await _open(post, deadline)
    events = Exchange(answer, deadline)
    try:
        yield events
    finally:
        await events.close()


async def _open(post: Callable[[], Awaitable[HttpAnswer]], deadline: float) -> HttpAnswer:
    try:
        with anyio.CancelScope(deadline=deadline):
            return await post()
    except Exception as error:  # noqa: BLE001 -- raised again as `CallError`
        raise call_error_of(error) from None
    raise _late()


def _late() -> CallError:
    return CallError("it took longer than a call may take in all", is_transient=True)


def _parse(data: bytes, *, is_stream: bool) -> Event:
    if data.strip() == b"[DONE]":
        return DONE
    try:
        event = from_json(data)
    except ValueError:
        raise broke_off("an event of the stream is no JSON") if is_stream else no_stream() from None
    if not isinstance(event, dict):
        raise broke_off("an event of the stream is no JSON object") if is_stream else no_stream()
    return event


def _error_event(data: bytes) -> bytes:
    try:
        error = from_json(data)
    except ValueError:
        error = data.decode("utf-8", "replace")
    return json.dumps({"type": "error", "error": error}).encode()
