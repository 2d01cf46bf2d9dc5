"""Output of tools, printed or logged: cut into lines, escaped, without secrets, limited in rate."""

from __future__ import annotations

import io
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Final

from dagrun.cli.terminal.text import SECRETS
from dagrun.errors import shorten

MAX_LINE: Final = 1_000
PRINTED: Final = "| "  # before a printed line, so that it cannot look like a log record or like our own summary
MAX_LINES: Final = 200  # of a message, and of a traceback
BURST: Final = 1_000  # lines that are written at any rate
RATE: Final = 100.0  # lines a second, beyond the burst


_FORMATTER: Final = logging.Formatter()


class RateLimiter:
    """Writes lines as long as there are not too many, and counts the others.

    Args:
        write: Takes a line, without its line end.
        now: A clock, in seconds.
    """

    def __init__(self, write: Callable[[str], object], now: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._now = now
        self._left = float(BURST)
        self._at = now()
        self._held = 0

    def line(self, text: str) -> None:
        """Write a line, shortened, cleaned of secrets and escaped; or drop it."""
        at = self._now()
        self._left = min(float(BURST), self._left + (at - self._at) * RATE)
        self._at = at
        if self._left < 1:
            self._held += 1
            return
        self._left -= 1
        self.tell()
        # Cleaned before it is cut, because half a secret is not found; but only the part that may be shown, as it could
        # have 100 MB.
        self._write(shorten(SECRETS.clean(text[: 2 * MAX_LINE]) + text[2 * MAX_LINE :], MAX_LINE))

    @property
    def is_open(self) -> bool:
        """Whether the next line would be written."""
        return self._left + (self._now() - self._at) * RATE >= 1

    def tell(self) -> None:
        """Write how many lines were dropped, if any were."""
        held, self._held = self._held, 0
        if held:
            self._write(f"… {held} more lines, not shown: over {RATE:g} a second")


class _Lines(io.RawIOBase):
    """Cuts written bytes into lines for a valve; the raw stream below a text stream."""

    def __init__(self, valve: RateLimiter, descriptor: int | None) -> None:
        self._valve = valve
        self._descriptor = descriptor
        self._rest = b""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        # A tool may pass its standard output to a program that it starts.
        if self._descriptor is None:
            raise io.UnsupportedOperation("fileno")
        return self._descriptor

    def write(self, data: object) -> int:
        written = bytes(data)  # type: ignore[call-overload]
        *lines, rest = (self._rest + written).split(b"\n")
        self._rest = rest[: 2 * MAX_LINE]  # some progress bars never end their line
        for line in lines:
            last = line.removesuffix(b"\r").rpartition(b"\r")[2]  # of a line that was overwritten, only the last text
            self._valve.line(PRINTED + last.decode("utf-8", "backslashreplace"))
        return len(written)

    def finish(self) -> None:
        """Write the last line, if it has no line end."""
        if self._rest:
            self.write(b"\n")


class _LogHandler(logging.Handler):
    """Writes log records as lines; a logged exception is named.

    With ``-v``, the records of dagrun, which a run has redacted, come with tracebacks. Without it, failures of steps
    and planners are not shown, because the table and the summary say them.
    """

    def __init__(self, valve: RateLimiter, *, is_verbose: bool) -> None:
        super().__init__()
        self._valve = valve
        self._is_verbose = is_verbose

    def emit(self, record: logging.LogRecord) -> None:
        if not self._valve.is_open:
            self._valve.line("")  # only counted: formatting it would take time
            return
        if getattr(record, "is_failure", False) and not self._is_verbose:
            return
        if self._is_verbose and record.name.partition(".")[0] == "dagrun":
            self._emit_all(record)
            return
        step = getattr(record, "step", None)
        error = record.exc_info[1] if record.exc_info else None
        parts = (
            record.levelname.lower(),
            f"{step}:" if step else f"{record.name}:",
            _message(record),
            f"({type(error).__name__}: {shorten(SECRETS.hide(str(error)))})" if error is not None else "",
            f"({record.exc_text.splitlines()[-1]})" if record.exc_text and error is None else "",
        )
        self._valve.line(" ".join(part for part in parts if part))

    def _emit_all(self, record: logging.LogRecord) -> None:
        trace = record.exc_text or (_FORMATTER.formatException(record.exc_info) if record.exc_info else "")
        step = getattr(record, "step", None)
        head = f"{record.levelname.lower()} {f'{step}:' if step else f'{record.name}:'} {_message(record)}"
        for line in [*head.splitlines()[:MAX_LINES], *trace.splitlines()[-MAX_LINES:]]:
            self._valve.line(line)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:  # noqa: BLE001  (a wrong format string must not break the run)
        return f"{record.msg!r} cannot be formatted: {error}"


@contextmanager
def guarded(write: Callable[[str], object], level: int = logging.WARNING) -> Iterator[None]:
    """While this is open, pass everything that the process prints or logs to *write*, line by line.

    Args:
        write: Takes a line, in any thread.
        level: The least level of log records.
    """
    valve = RateLimiter(write)
    raw = _Lines(valve, _descriptor())
    stream = io.TextIOWrapper(raw, "utf-8", "backslashreplace", write_through=True)  # type: ignore[type-var]
    handler = _LogHandler(valve, is_verbose=level <= logging.INFO)
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
