"""Server-sent events: bytes in, the data of whole events out."""

from __future__ import annotations

from typing import Final

# A whole answer of the longest kind has less; what has more is no answer, and would fill the memory.
MAX_EVENT: Final = 16 * 1024 * 1024


class SseReader:
    """Cuts a stream of bytes into events. Their names are left out: the events of all providers say what they are.

    The library of the provider has one of these, too, inside of generators that it leaves half-read; trio complains
    about every one of them.
    """

    __slots__ = ("_after_cr", "_data", "_line", "_size")

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._after_cr = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of the events that *chunk* completes.

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
            self._line += line  # never more than one chunk is copied, however long the line grows
            events += self._take(bytes(self._line))
            self._line.clear()
        self._line += rest
        if self._size + len(self._line) > MAX_EVENT:
            raise ValueError(f"an event has more than {MAX_EVENT} bytes")
        return events

    def end(self) -> list[bytes]:
        """The data of the last event, if the stream has ended without the empty line behind it."""
        return [*self._take(bytes(self._line)), *self._take(b"")]

    def _take(self, line: bytes) -> list[bytes]:
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
            self._size += len(line)
        if line or not self._data:
            return []
        event = b"\n".join(self._data)
        self._data.clear()
        self._size = 0
        return [event]
