"""Interrupts: a KeyboardInterrupt or SystemExit that a signal of the host has raised while foreign code ran.

A tool may raise either by itself, which hurts only its step. But Python raises what a signal handler raises in the
frame that happens to run, and that ends the run, and is for the host.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from functools import partial
from opcode import opmap
from traceback import walk_tb
from types import CodeType
from typing import Any, Final

_RAISE: Final = opmap["RAISE_VARARGS"]


class HostInterrupted(Exception):
    """A signal has interrupted the host while code in the run was running.

    Attributes:
        cause: What the signal handler has raised.
    """

    def __init__(self, cause: BaseException) -> None:
        super().__init__(cause)
        self.cause = cause


def interrupt_in(error: BaseException) -> BaseException | None:
    """Return the exception of a signal handler that *error* is, or has in it as a group; `None` if there is none."""
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(interrupt_in, error.exceptions)), None)
    if isinstance(error, HostInterrupted):
        return error.cause
    if not isinstance(error, KeyboardInterrupt | SystemExit):
        return None
    if threading.current_thread() is not threading.main_thread():
        return None  # signals are handled in the main thread
    frames = list(walk_tb(error.__traceback__))
    handlers = set(_handlers())
    if any(frame.f_code in handlers for frame, _ in frames):
        return error
    return error if isinstance(error, KeyboardInterrupt) and not _is_raised_by_code(error) else None


def _handlers() -> Iterator[CodeType]:
    """Yield the code of the signal handlers that are written in Python."""
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        while isinstance(handler, partial):
            handler = handler.func
        handler = getattr(handler, "__func__", handler)
        if isinstance(code := getattr(handler, "__code__", None), CodeType):
            yield code


def _is_raised_by_code(error: BaseException) -> bool:
    """Whether a statement has raised *error*: Python's own handler of Ctrl-C raises between two instructions."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_code[trace.tb_lasti] == _RAISE
