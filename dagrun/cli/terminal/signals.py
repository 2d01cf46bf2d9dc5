"""Signals: the first one asks the run to stop, the second one stops the program."""

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
    """End the process at once: threads and tasks that would not stop are not waited for."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue
    os._exit(code)


def name_of(number: int) -> str:
    """What people call a signal."""
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


def next_in_loop(function: Callable[[int], object]) -> Callable[[int], object]:
    """Make of *function* what a signal may call: the running loop calls it next, with the present context variables.

    A signal comes in the middle of anything, and with uvloop in another context, in which no loop seems to be running.
    """
    loop, context = asyncio.get_running_loop(), copy_context()
    return lambda number: loop.call_soon_threadsafe(function, number, context=context)


class Interrupts:
    """Catches Ctrl-C, SIGTERM and SIGHUP while a run goes on. Signals that are ignored (``nohup``) stay so.

    The handlers are called between two instructions of the main thread, also while a tool blocks the event loop.

    Attributes:
        first: The number of the first signal that came; `None` so far.
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
        """Say what the first signal does; called with its number, in the main thread, in the middle of anything."""
        self._stop = stop
        if self.first is not None:
            stop(self.first)

    def exit_code(self, code: int) -> int:
        """The exit code of a run that ended with *code*: a cancelled one says which signal it was."""
        return 128 + self.first if self.first is not None and code == 128 + signal.SIGINT else code

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.first is not None:
            if os.isatty(2):  # a live table has hidden the cursor
                os.write(2, _SHOW_CURSOR.encode())
            os._exit(128 + number)
        self.first = number
        if self._stop is not None:
            self._stop(number)
