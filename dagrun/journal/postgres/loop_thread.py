"""An asyncio loop in a thread of its own; any event loop may give it work.

asyncpg works only on asyncio, and leases must be renewed while a tool blocks the loop of the run. anyio's blocking
portal is no substitute: starting a task through it blocks the calling loop (`docs/decisions-archive.md`, 100).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Generic, TypeVar

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from anyio.lowlevel import current_token

from dagrun.errors import JournalFailed
from dagrun.kernel.runtime.backend import call_soon

T = TypeVar("T")


class LoopThread:
    """A thread with an asyncio loop, until it is closed. Its tasks are in one task group, which ends with it.

    Args:
        name: The name of the thread.
    """

    def __init__(self, name: str) -> None:
        self._loop: asyncio.AbstractEventLoop
        self._context: Context
        self._tasks: TaskGroup
        self._stop: anyio.Event
        self._last: Callable[[], Awaitable[None]]
        self._is_up = threading.Event()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._is_up.wait()  # a millisecond, once

    def call_soon(self, function: Callable[[], object]) -> None:
        """Have *function* called in the loop, and do not wait for it; from any thread."""
        with suppress(RuntimeError):  # the loop has ended
            # In the loop's own context: that of the caller may say that this is trio.
            self._loop.call_soon_threadsafe(function, context=self._context)

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start *work* as a task in the loop, from any thread; it must not raise."""
        self.call_soon(lambda: self._tasks.start_soon(work))

    async def call(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run *work* in the loop, and return its result. Cancelling the caller cancels the work.

        Raises:
            JournalFailed: The loop is closed, or was closed before the work had ended.
        """
        if self._is_closed:
            raise JournalFailed("the journal is closed")
        caller_loop, done = current_token(), anyio.Event()
        job = _LoopJob(work, lambda: call_soon(caller_loop, done.set))
        self.start(job.run)
        try:
            await done.wait()
        except BaseException:
            self.call_soon(job.cancel)
            raise
        return job.result()

    async def aclose(self, last: Callable[[], Awaitable[None]]) -> None:
        """Cancel the tasks, run *last*, which must not raise, and end the thread."""
        if self._is_closed:
            return
        self._is_closed = True
        self._last = last
        self.call_soon(self._stop.set)
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._thread.join)

    def _run(self) -> None:
        Context().run(partial(anyio.run, self._main, backend="asyncio"))

    async def _main(self) -> None:
        self._loop, self._context = asyncio.get_running_loop(), copy_context()
        self._stop = anyio.Event()
        async with anyio.create_task_group() as self._tasks:
            self._is_up.set()
            await self._stop.wait()
            self._tasks.cancel_scope.cancel()
        await self._last()


class _LoopJob(Generic[T]):
    """Work for the loop, and its result."""

    def __init__(self, work: Callable[[], Awaitable[T]], notify: Callable[[], None]) -> None:
        self._work = work
        self._notify = notify
        self._scope: anyio.CancelScope | None = None
        self._values: list[T] = []
        self._error: Exception = JournalFailed("the journal was closed meanwhile")

    async def run(self) -> None:
        try:
            with anyio.CancelScope() as self._scope:
                self._values.append(await self._work())
        except Exception as error:  # noqa: BLE001  (the caller gets it from `result`)
            self._error = error
        finally:
            self._notify()

    def cancel(self) -> None:
        if self._scope is not None:
            self._scope.cancel()

    def result(self) -> T:
        if self._values:
            return self._values[0]
        raise self._error
