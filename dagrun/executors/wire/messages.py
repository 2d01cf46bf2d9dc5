"""The messages of a call: one byte for the kind of the message, then its data."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, Protocol

from dagrun.kernel.model.executor import ResultRefused, ToolCall

# While the call runs: the function is about to be called; a report of the tool.
BEGUN: Final = b"b"
REPORT: Final = b"r"
# The answer: the value as JSON; the value, and the artifacts that the call has saved; a failure; that the call was
# stopped, and has ended; that it was stopped, and has never begun; that it was stopped, and still runs.
VALUE: Final = b"v"
VALUE_WITH_FILES: Final = b"w"
FAILURE: Final = b"f"
STOPPED: Final = b"s"
NEVER_BEGUN: Final = b"n"
STILL_RUNS: Final = b"t"

# The most bytes of a message without a value. A failure may hold an answer of a model, 64 KiB, escaped.
MAX_NOTE: Final = 1 << 19
MAX_TRACEBACK: Final = 1 << 16
MAX_TEXT: Final = 1000  # characters of a progress message
MAX_FILES: Final = 16 << 20  # bytes of the artifacts that travel with a request or an answer

LENGTH: Final = struct.Struct(">Q")
_VALUES: Final = (VALUE, VALUE_WITH_FILES)
_LAST: Final = frozenset((*_VALUES, FAILURE, STOPPED, NEVER_BEGUN, STILL_RUNS))
_PIECE: Final = 1 << 16


def is_answer(message: bytes) -> bool:
    """Whether *message* is the last one of its call."""
    return message[:1] in _LAST


def has_begun(message: bytes) -> bool:
    """Whether *message* announces that the function of the call is about to be called."""
    return message[:1] == BEGUN


def check_size(kind: bytes, size: int, call: ToolCall) -> None:
    """Refuse a message with *size* bytes of data that is larger than the call may send.

    Raises:
        ResultRefused: It is too large.
    """
    limit = call.output_limit if kind in _VALUES else MAX_NOTE
    if kind == VALUE_WITH_FILES:
        limit += MAX_FILES + MAX_NOTE
    if size > limit:
        raise ResultRefused(f"the worker of {call.tool.name} wants to answer with {size} bytes, the ceiling is {limit}")


class _Bytes(Protocol):
    async def send(self, item: bytes, /) -> None: ...

    async def receive(self, max_bytes: int = ..., /) -> bytes: ...


class MessageStream:
    """Messages over a byte stream, such as a socket of anyio; a cancelled receiver loses nothing.

    Args:
        stream: The stream. Its exceptions are passed on.
    """

    __slots__ = ("_come", "_stream")

    def __init__(self, stream: _Bytes) -> None:
        self._stream = stream
        self._come = bytearray()

    async def send(self, message: bytes) -> None:
        """Send one message, or a request."""
        await self._stream.send(framed(message))

    async def receive(self, call: ToolCall | None = None) -> bytes:
        """Return the next message.

        Args:
            call: The call that it is about, whose limits it must keep; `None` on the side that makes the calls.

        Raises:
            ResultRefused: The message is too large. It is not read.
            Exception: The stream has ended.
        """
        come = self._come
        while True:
            if len(come) > LENGTH.size:  # the kind is there too
                [size] = LENGTH.unpack_from(come)
                end = LENGTH.size + size
                if call is not None:
                    check_size(bytes(come[LENGTH.size : LENGTH.size + 1]), size - 1, call)
                if len(come) >= end:
                    message = bytes(come[LENGTH.size : end])
                    del come[:end]
                    return message
            come += await self._stream.receive(_PIECE)


def parts_of(data: bytes) -> Iterator[bytes]:
    """Yield the parts of *data*, each written by `framed`.

    Raises:
        ValueError: It is not made of such parts.
    """
    at = 0
    while at < len(data):
        size = LENGTH.unpack_from(data, at)[0] if at + LENGTH.size <= len(data) else len(data)
        at += LENGTH.size + size
        if at > len(data):
            raise ValueError("the last part is cut off")
        yield data[at - size : at]


def framed(message: bytes) -> bytes:
    """Return *message* with its length in front, as `MessageStream` sends it."""
    return LENGTH.pack(len(message)) + message
