"""The few things that differ between asyncio and trio, in one place."""

from __future__ import annotations

import asyncio
import math
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from typing import Any

import anyio
import anyio.lowlevel
from anyio.lowlevel import EventLoopToken


def clock() -> Callable[[], float]:
    """The clock of the running loop, in seconds; a fraction of the price of asking anyio each time."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        import trio

        return trio.current_time
    # asyncio's own loops read this clock. So does uvloop's, but once per turn and in whole milliseconds: whoever blocks
    # the loop would not be late. Others, the virtual one, say, have a clock of their own.
    is_plain = getattr(loop.time, "__func__", None) is asyncio.BaseEventLoop.time
    return time.monotonic if is_plain or _is_monotonic_of_uvloop(loop) else loop.time


def _is_monotonic_of_uvloop(loop: asyncio.AbstractEventLoop, platform: str = sys.platform) -> bool:
    """Whether *loop* is one of uvloop's that reads `time.monotonic`.

    On macOS its clock goes on while the machine sleeps, and ours does not: every deadline would have passed for it.
    """
    return type(loop).__module__ == "uvloop" and platform != "darwin"


def loop_options(backend: str = "asyncio") -> dict[str, object]:
    """Options of `anyio.run` for a loop that we start ourselves: that of uvloop, if it is installed."""
    if backend != "asyncio" or find_spec("uvloop") is None:
        return {}
    try:
        for standard in range(3):
            os.fstat(standard)
    except OSError:
        return {}  # one of the three is closed: libuv would open something in its place, and abort for that
    return {"use_uvloop": True}


def scope_class() -> type[anyio.CancelScope]:
    """The class of the cancel scopes of the running backend: made through anyio's, each would look the backend up."""
    return _classes(_is_asyncio())[0]


def event_class() -> type[anyio.Event]:
    """The class of the events of the running backend; see `scope_class`."""
    return _classes(_is_asyncio())[1]


def _is_asyncio() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@cache
def _classes(is_asyncio: bool) -> tuple[type[anyio.CancelScope], type[anyio.Event]]:
    return type(anyio.CancelScope()), type(anyio.Event())


def call_soon(token: EventLoopToken, function: Callable[[], None]) -> None:
    """Have *function* called in the loop of *token*, in the order of the calls, and do not wait for it.

    anyio's `from_thread.run_sync` waits, for ever if the loop ends at that moment. A loop that has ended is no error.
    """
    loop: Any = token.native_token
    soon = loop.run_sync_soon if hasattr(loop, "run_sync_soon") else loop.call_soon_threadsafe  # trio, else asyncio
    with suppress(RuntimeError):
        soon(function)


def is_cancellation(error: BaseException) -> bool:
    """Whether *error* is what a cancelled task gets, on either backend."""
    if isinstance(error, asyncio.CancelledError):
        return True
    trio = sys.modules.get("trio")
    return trio is not None and isinstance(error, trio.Cancelled)


def is_being_cancelled() -> bool:
    """Whether a scope around the running code was cancelled: what is caught now was asked for."""
    return anyio.current_effective_deadline() == -math.inf


async def shake_off_cancellation() -> None:
    """Take what foreign code has left for this task to be hit by: it must not end as cancelled, of its own accord.

    On asyncio that would cancel the task group that it belongs to, and all that is in it. Call it last.

    Raises:
        BaseException: The cancellation was asked for.
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return  # nobody but its scopes can cancel a task of trio
    if task is None or not task.cancelling():
        return
    try:
        await anyio.lowlevel.checkpoint()
    except asyncio.CancelledError:
        if is_being_cancelled():
            raise


def innermost_of(scope: anyio.CancelScope) -> Callable[[], bool]:
    """Tell later whether *scope*, which the running task has just entered, is again the innermost one that it is in.

    There is no public way to ask; the tests of leaked scopes hold these lines to the libraries' ways, too.
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return _innermost_of_trio()
    from anyio._backends._asyncio import _task_states

    assert task is not None
    state = _task_states[task]
    return lambda: state.cancel_scope is scope


def _innermost_of_trio() -> Callable[[], bool]:
    import trio

    task = trio.lowlevel.current_task()
    status = task._cancel_status
    return lambda: task._cancel_status is status


def leave_leaked_scopes(scope: anyio.CancelScope) -> None:
    """Leave *scope* although a tool has left scopes or task groups of its own open inside it; cancel what is in them.

    Neither library has a public way to do that, and without it the end of this very task would take the task group
    of the run along. The tests of leaked scopes and task groups hold these lines to the libraries' ways.
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:
        _close_leaked_nurseries()
    else:
        if task is not None:
            _leave_asyncio_scopes(scope, task)


def _leave_asyncio_scopes(scope: anyio.CancelScope, task: asyncio.Task[object]) -> None:
    from anyio._backends._asyncio import _task_states

    state = _task_states.get(task)
    while state is not None and state.cancel_scope is not None:
        innermost = state.cancel_scope
        if innermost is not scope:
            innermost.cancel()
        innermost.__exit__(None, None, None)
        if innermost is scope:
            return


def _close_leaked_nurseries() -> None:
    import trio

    # The scopes themselves trio has mended already, when the outer one was left.
    task = trio.lowlevel.current_task()
    for nursery in task.child_nurseries:
        nursery.cancel_scope.cancel()
    task._child_nurseries.clear()


async def let_others_run() -> None:
    """Give way to all that is ready or due, in the middle of much work; a cancellation waits.

    One turn of asyncio's loop is too few: who was waiting for a time that has come is found in the first, woken in the
    second, and runs in the third.
    """
    for _ in range(3):
        await anyio.lowlevel.cancel_shielded_checkpoint()
