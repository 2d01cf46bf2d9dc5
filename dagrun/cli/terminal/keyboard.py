"""Lines from the terminal that the standard input is, read in the event loop: no thread, nothing that keeps a process.

A tool that waits for a line in a thread cannot be told to stop, and Python waits for that thread at its end. A terminal
can be waited for like a socket; the loop goes on meanwhile, and a signal gets through at any time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO

import anyio

# Terminals hand out no longer lines: what is typed beyond that is dropped, without a word.
LONGEST: Final = 1023 if sys.platform == "darwin" else 4095


class LineTooLong(ValueError):
    """The terminal has dropped the end of a line."""


class Keyboard:
    """Reads what a person types, line by line.

    Args:
        descriptor: Of a terminal; best one that does not block.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = b""

    async def line(self) -> str | None:
        """The next line, without its end; `None` if nobody will type any more.

        Raises:
            LineTooLong: The end of the line was lost.
            UnicodeDecodeError: It is not UTF-8.
        """
        while b"\n" not in self._rest:
            await anyio.wait_readable(self._descriptor)
            try:
                typed = os.read(self._descriptor, LONGEST + 1)
            except BlockingIOError:  # somebody else was faster
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
        """Drop what was typed and not read yet: it was meant for something else."""
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
    """Open the terminal that *descriptor* is on, for ourselves: others who share it should not find it changed."""
    own = _open(descriptor)
    try:
        yield Keyboard(own)
    finally:
        os.close(own)


def terminal_of(stream: TextIO | None) -> int | None:
    """The descriptor of a stream that is a terminal and can be waited for; `None` if it is not."""
    if sys.platform == "win32" or stream is None or stream.closed:
        return None
    try:
        return stream.fileno() if stream.isatty() else None
    except (OSError, ValueError, AttributeError):
        return None


def _open(descriptor: int) -> int:
    try:
        return os.open(os.ttyname(descriptor), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:  # it has no name here, as in some containers
        return os.dup(descriptor)
