"""Lines that a person types at the terminal, read in the event loop, without a thread.

A thread that waits for a line cannot be stopped, and Python waits for it at the end of the process. The event loop can
wait for a terminal as for a socket: other tasks run meanwhile, and a signal gets through at any time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO

import anyio

# The longest line of a terminal, in bytes. It drops what is typed beyond that, without a message.
LONGEST: Final = 1023 if sys.platform == "darwin" else 4095


class LineTooLong(ValueError):
    """The terminal has dropped the end of a line."""


class Keyboard:
    """Reads lines from a terminal.

    Args:
        descriptor: The file descriptor of the terminal, preferably non-blocking.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = b""

    async def line(self) -> str | None:
        """Return the next line, without its line end; `None` at the end of the input.

        Raises:
            LineTooLong: The end of the line was lost.
            UnicodeDecodeError: The line is not UTF-8.
        """
        while b"\n" not in self._rest:
            await anyio.wait_readable(self._descriptor)
            try:
                typed = os.read(self._descriptor, LONGEST + 1)
            except BlockingIOError:  # another reader was faster
                continue
            except OSError:  # the terminal is gone
                typed = b""
            if not typed:
                rest, self._rest = self._rest, b""
                return rest.decode() if rest else None
            self._rest += typed
        line, _, self._rest = self._rest.partition(b"\n")
        if len(line) >= LONGEST:
            raise LineTooLong(f"this terminal takes no line of more than {LONGEST:,} bytes")
        return line.decode()

    def forget(self) -> None:
        """Drop unread input: it was meant for something else."""
        self._rest = b""
        if sys.platform == "win32":
            return
        import termios

        try:
            termios.tcflush(self._descriptor, termios.TCIFLUSH)
        except termios.error:  # no terminal, or it is gone
            return


@contextmanager
def open_keyboard(descriptor: int) -> Iterator[Keyboard]:
    """Open the terminal behind *descriptor* again: the flags of a descriptor that others share must not change."""
    own = _open(descriptor)
    try:
        yield Keyboard(own)
    finally:
        os.close(own)


def terminal_of(stream: TextIO | None) -> int | None:
    """Return the descriptor of a stream, if it is a terminal that the event loop can wait for; otherwise `None`."""
    if sys.platform == "win32" or stream is None or stream.closed:
        return None
    try:
        return stream.fileno() if stream.isatty() else None
    except (OSError, ValueError, AttributeError):
        return None


def _open(descriptor: int) -> int:
    try:
        return os.open(os.ttyname(descriptor), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:  # the terminal has no name, as in some containers
        return os.dup(descriptor)
