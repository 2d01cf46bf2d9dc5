"""Signals: the first one stops the run, the second one ends the process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextvars import copy_context
from types import FrameType, TracebackType
from typing import Any, Final, Self

_NAMES: Final = ("SIGINT", "SIGTERM", "SIGHUP")
_SHOW_CURSOR: Final = "\x1b[?25h\n"


def exit_hard(code: int) -> None:
    """End the process at once, without waiting for threads and tasks that would not stop."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue
    os._exit(code)


def name_of(number: int) -> str:
    """Return the name of a signal for people."""
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


def next_in_loop(function: Callable[[int], object]) -> Callable[[int], object]:
    """Return a function for a signal handler: it makes the running loop call *function*, in the present context.

    A handler runs between any two instructions; with uvloop, also in another context, in which no loop seems to run.
    """
    loop, context = asyncio.get_running_loop(), copy_context()
    return lambda number: loop.call_soon_threadsafe(function, number, context=context)


class Interrupts:
    """Catches Ctrl-C, SIGTERM and SIGHUP during a run. Signals that are ignored (by ``nohup``) stay ignored.

    A handler is called between two instructions of the main thread, also while a tool blocks the event loop.

    Attributes:
        first: The number of the first signal; `None` if there was none.
    """

    def __init__(self) -> None:
        self.first: int | None = None
        self._stop: Callable[[int], object] | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (getattr(signal, name) for name in _NAMES if hasattr(signal, name)):
                before = signal.getsignal(number)
                if before not in (signal.SIG_IGN, None):
                    self._before[number] = before
                    signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def on_first(self, stop: Callable[[int], object]) -> None:
        """Set the handler of the first signal, called with its number, between two instructions of the main thread."""
        self._stop = stop
        if self.first is not None:
            stop(self.first)

    def exit_code(self, code: int) -> int:
        """Return the exit code of a run that ended with *code*; the signal's, if a signal cancelled the run."""
        return 128 + self.first if self.first is not None and code == 128 + signal.SIGINT else code

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.first is not None:
            if os.isatty(2):  # a live table has hidden the cursor
                os.write(2, _SHOW_CURSOR.encode())
            os._exit(128 + number)
        self.first = number
        if self._stop is not None:
            self._stop(number)
