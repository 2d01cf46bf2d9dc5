"""The standard error during a run: a live table on a terminal, and the output of tools, cut into lines and escaped."""

from __future__ import annotations

import io
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TextIO

import anyio

from dagrun import Event
from dagrun.cli.terminal.text import SECRETS, is_drawable
from dagrun.errors import shorten
from dagrun.kernel.model.event import (
    AttemptEnded,
    AttemptStarted,
    HandedOn,
    PlannerCalled,
    Reviewed,
    RunEnded,
    Spliced,
    StepSettled,
)

if TYPE_CHECKING:
    from dagrun.cli.terminal.live_table import LiveTable


SECONDS: Final = 0.25  # between two drawings of the table
MAX_HELD: Final = 1_000  # lines that wait while a question is open


class Display:
    """Shows a run on the standard error. Without a terminal, it only shows lines of tools, and faults of planners.

    Args:
        live: The table; `None` for no table.
        log_level: The least level of log records that are shown.
        tells_faults: Whether a line reports each call of the planner that gave no answer.

    Attributes:
        stream: The standard error, before the output of tools is redirected.
    """

    def __init__(self, live: LiveTable | None, log_level: int, *, tells_faults: bool = True) -> None:
        self._live = live
        self._tells_faults = tells_faults
        self._log_level = log_level
        self.stream: TextIO | None = sys.stderr
        self._fault: PlannerCalled | None = None  # not reported yet
        self._stack = ExitStack()
        self._lock = threading.RLock()  # reentrant: a destructor that runs while a line is written may print
        self._held: deque[str] | None = None  # lines that wait; `None` while no question is open
        self._dropped = 0

    def __enter__(self) -> Self:
        # The table first, so that it closes last: the last lines of tools are written above it.
        if self._live is not None:
            self._stack.enter_context(self._live)
        self._stack.enter_context(guarded(self.line, self._log_level))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop showing the run; the last rows of the table stay on the screen."""
        self._stack.close()

    def on_event(self, event: Event) -> None:
        """Note an event."""
        if self._live is not None:
            self._live.table.on_event(event)
        if self._tells_faults:
            self._note_fault(event)

    def remember(self, events: Iterable[Event]) -> None:
        """Note earlier events of a resumed run: they are counted, and not reported again."""
        if self._live is not None:
            for event in events:
                self._live.table.on_event(event)

    def _note_fault(self, event: Event) -> None:
        """Report why a call of the planner gave no answer, or was not followed in every part.

        A reason for which the run ends is left to its summary.
        """
        match event:
            case PlannerCalled():
                self._tell_fault()
                if event.fault:
                    self._fault = event
            case HandedOn():
                self._fault = None  # the reason says the same
                reason = shorten(event.reason, 1_000) or event.why.replace("_", " ")
                self.line(f"planner {event.planner} hands on to {event.next_planner}: {reason}")
            case AttemptStarted():
                self._tell_fault()
            case Spliced():
                for problem in event.refused:
                    self.line(f"planner, change {event.revision}, refused: {problem}")
            case RunEnded():
                fault = self._fault.fault.partition(": ") if self._fault is not None else ("", "", "")
                if (fault[2] or fault[0]) in event.reason:
                    self._fault = None
                self._tell_fault()

    def _tell_fault(self) -> None:
        event, self._fault = self._fault, None
        if event is not None:
            self.line(f"planner, call {event.number}, after {event.seconds:.1f} s: {shorten(event.fault, 1_000)}")

    def step_written(self) -> None:
        """Note a step that the planner has written, but that is not in the run yet."""
        if self._live is not None:
            self._live.table.step_written()

    def written_anew(self) -> None:
        """Note that the steps that the planner has written so far no longer count."""
        if self._live is not None:
            self._live.table.written = 0

    def line(self, text: str) -> None:
        """Write a line, or keep it until the open question is answered; in any thread."""
        with self._lock:
            if self._held is None:
                self._line(text)
            else:
                self._dropped += len(self._held) == MAX_HELD
                self._held.append(text)

    def write(self, text: str) -> None:
        """Write *text* unchanged."""
        if self.stream is not None:
            self.stream.write(SECRETS.hide(text))
            self.stream.flush()

    @contextmanager
    def paused(self) -> Iterator[Callable[[str], object]]:
        """Draw nothing and keep lines back while this is open; yield a function that writes to the terminal."""
        with self._lock:
            self._held = deque(maxlen=MAX_HELD)
        if self._live is not None:
            self._live.pause()
        try:
            yield self.write
        finally:
            if self._live is not None:
                self._live.resume()
            self._catch_up()

    def _catch_up(self) -> None:
        with self._lock:
            held, dropped = self._held or (), self._dropped
            self._held, self._dropped = None, 0
            if dropped:
                self._line(f"… {dropped} more lines, not shown: too many while a question was open")
            for text in held:
                self._line(text)

    def _line(self, text: str) -> None:
        if self._live is not None and self._live.is_open:
            self._live.line(SECRETS.hide(text))
        else:
            self.write(text + "\n")

    async def keep_fresh(self) -> None:
        """Redraw the table every `SECONDS`, until it is closed."""
        while self._live is not None and self._live.is_open:
            await anyio.sleep(SECONDS)
            self._tell_fault()
            self._live.refresh()


class StepLines:
    """Writes a line for each step that has ended, to show progress in a pipe, where no table is drawn.

    It must be made before the run, as the standard error is redirected meanwhile.
    """

    def __init__(self) -> None:
        self._stream = sys.stderr

    def on_event(self, event: Event) -> None:
        """Write a line, if a step has ended or the plan has changed."""
        match event:
            case AttemptEnded() | Reviewed() if not event.state.is_settled and event.outcome.failure is not None:
                recovery = str(event.decision.recovery).replace("_", " ")
                self._write(event, f"{event.step}: {recovery} after {event.outcome.failure.message}")
            case AttemptEnded() | Reviewed() | StepSettled() if event.state.is_settled:
                self._write(event, f"{event.step}: {event.state}")
            case Spliced():
                self._write(event, f"the plan was changed: {event.reason}")

    def _write(self, event: Event, text: str) -> None:
        if self._stream is not None:
            self._stream.write(SECRETS.hide(f"{event.at:7.2f} s  {shorten(text)}\n"))
            self._stream.flush()


def make_display(*, is_shown: bool, log_level: int) -> Display:
    """Make a display that fits the standard error.

    Args:
        is_shown: Whether a table may be drawn, and faults of planners be reported.
        log_level: The least level of log records that are shown.
    """
    if not (is_shown and is_drawable(sys.stderr)):
        return Display(None, log_level, tells_faults=is_shown)
    from dagrun.cli.terminal.live_table import LiveTable
    from dagrun.observe.progress import ProgressTable

    return Display(LiveTable(ProgressTable()), log_level)


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
