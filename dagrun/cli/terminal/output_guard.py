"""What tools print and log: one line each, nothing that steers a terminal, and not too much of it."""

from __future__ import annotations

import io
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Final

from dagrun.cli.terminal.hidden_secrets import STATE
from dagrun.errors import shorten

MAX_LINE: Final = 1_000
PRINTED: Final = "| "  # so that nothing printed looks like a log record, or like our own summary
BURST: Final = 1_000  # lines
RATE: Final = 100.0  # lines a second after that


class Valve:
    """Lets lines through until there are too many of them, and counts the others.

    Args:
        write: Takes a line, without its end.
        now: A clock in seconds.
    """

    def __init__(self, write: Callable[[str], object], now: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._now = now
        self._left = float(BURST)
        self._at = now()
        self._held = 0

    def line(self, text: str) -> None:
        """Write a line, shortened and with its control characters escaped; or drop it."""
        at = self._now()
        self._left = min(float(BURST), self._left + (at - self._at) * RATE)
        self._at = at
        if self._left < 1:
            self._held += 1
            return
        self._left -= 1
        self.tell()
        # Cleaned before it is cut, as half a secret is not found; but not all of 100 MB, of which nobody sees more.
        self._write(shorten(STATE.cleaned(text[: 2 * MAX_LINE]) + text[2 * MAX_LINE :], MAX_LINE))

    @property
    def is_open(self) -> bool:
        """Whether the next line would be written."""
        return self._left + (self._now() - self._at) * RATE >= 1

    def tell(self) -> None:
        """Say how many lines were dropped, if any were."""
        held, self._held = self._held, 0
        if held:
            self._write(f"… {held} more lines, not shown: over {RATE:g} a second")


class _Lines(io.RawIOBase):
    """Cuts what is written into lines, for a valve. Takes bytes, as it stands at the bottom of a text stream."""

    def __init__(self, valve: Valve, descriptor: int | None) -> None:
        self._valve = valve
        self._descriptor = descriptor
        self._rest = b""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        # A tool may hand its standard output on to a program that it starts.
        if self._descriptor is None:
            raise io.UnsupportedOperation("fileno")
        return self._descriptor

    def write(self, data: object) -> int:
        written = bytes(data)  # type: ignore[call-overload]
        *lines, rest = (self._rest + written).split(b"\n")
        self._rest = rest[: 2 * MAX_LINE]  # a progress bar of another kind never ends its line
        for line in lines:
            last = line.removesuffix(b"\r").rpartition(b"\r")[2]  # of what was drawn over itself
            self._valve.line(PRINTED + last.decode("utf-8", "backslashreplace"))
        return len(written)

    def finish(self) -> None:
        """Write what has no end yet."""
        if self._rest:
            self.write(b"\n")


class _LogHandler(logging.Handler):
    """Hands log records on as lines; what is logged with an exception says which, without its traceback."""

    def __init__(self, valve: Valve) -> None:
        super().__init__()
        self._valve = valve

    def emit(self, record: logging.LogRecord) -> None:
        if not self._valve.is_open:
            self._valve.line("")  # only counted: putting it into words would cost time
            return
        step = getattr(record, "step", None)
        error = record.exc_info[1] if record.exc_info else None
        parts = (
            record.levelname.lower(),
            f"{step}:" if step else f"{record.name}:",
            _message(record),
            f"({type(error).__name__}: {shorten(STATE.hidden(str(error)))})" if error is not None else "",
            f"({record.exc_text.splitlines()[-1]})" if record.exc_text and error is None else "",
        )
        self._valve.line(" ".join(part for part in parts if part))


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:  # noqa: BLE001  (a wrong format string is no reason to fail)
        return f"{record.msg!r} cannot be formatted: {error}"


@contextmanager
def guarded(write: Callable[[str], object], level: int = logging.WARNING) -> Iterator[None]:
    """While this is open, what is printed and logged anywhere in the process goes to *write*, line by line.

    Args:
        write: Takes a line, in any thread.
        level: The least level of log records.
    """
    valve = Valve(write)
    raw = _Lines(valve, _descriptor())
    stream = io.TextIOWrapper(raw, "utf-8", "backslashreplace", write_through=True)  # type: ignore[type-var]
    handler = _LogHandler(valve)
    root = logging.getLogger()
    level_before = root.level
    root.addHandler(handler)
    root.setLevel(level)
    try:
        with redirect_stdout(stream), redirect_stderr(stream):
            yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level_before)
        stream.flush()
        raw.finish()
        valve.tell()


def _descriptor() -> int | None:
    try:
        return sys.stderr.fileno()
    except (OSError, ValueError, AttributeError):
        return None
