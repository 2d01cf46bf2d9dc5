"""Threads that run plain functions, and do not keep the interpreter from exiting.

At its exit Python waits for the worker threads of anyio on asyncio, forever if one has a function that never ends.
Those of trio are daemons, as these are. What a function may call of `anyio.from_thread` is the same in all of them.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from queue import SimpleQueue
from typing import Any, TypeVar

import anyio

from dagrun.kernel.runtime.backend import is_asyncio

T = TypeVar("T")


class DaemonThreads:
    """Daemon threads that are reused for the next function."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[_FunctionCall | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._count = 0
        self._unlimited = anyio.CapacityLimiter(math.inf)

    async def run(self, function: Callable[[], T]) -> T:
        """Call *function*, which never raises, in a thread; a cancellation leaves the thread behind."""
        if not is_asyncio():
            return await anyio.to_thread.run_sync(function, abandon_on_cancel=True, limiter=self._unlimited)
        with anyio.CancelScope() as scope:
            call = _FunctionCall(function, scope)
            if not self._idle.acquire(blocking=False):
                self._count += 1
                threading.Thread(target=self._work, name="dagrun tool", daemon=True).start()
            self._calls.put(call)
            return await call.future  # type: ignore[no-any-return]
        raise AssertionError("nobody else cancels this scope")

    def _work(self) -> None:
        """Call one function after another; runs in the thread."""
        while (call := self._calls.get()) is not None:
            call.run()
            del call  # it keeps the arguments
            self._idle.release()

    def close(self) -> None:
        """End each thread after its current function."""
        for _ in range(self._count):
            self._calls.put(None)


class _FunctionCall:
    """One call of a function, made in the loop and run in a thread."""

    def __init__(self, function: Callable[[], Any], scope: anyio.CancelScope) -> None:
        from anyio._core._eventloop import set_current_async_library

        self._function = function
        self._scope = scope
        self._context: Context = copy_context()
        self._context.run(set_current_async_library, None)  # the function may run a loop of its own
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self._loop.create_future()

    def run(self) -> None:
        """Call the function, and hand its result to the loop, if that has not ended."""
        from anyio._backends._asyncio import AsyncIOBackend
        from anyio._core._eventloop import claim_worker_thread, threadlocals

        with claim_worker_thread(AsyncIOBackend, self._loop):
            threadlocals.current_cancel_scope = self._scope
            try:
                result = self._context.run(self._function)
            finally:
                del threadlocals.current_cancel_scope
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._deliver, result)

    def _deliver(self, result: object) -> None:
        if not self.future.done():
            self.future.set_result(result)
