"""A loop of asyncio in a thread of its own, for a library that knows no other; any loop may ask it for something.

What goes on there does not stop when a tool blocks the loop of the run: a lease is renewed all the same.
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
from dagrun.runtime.backend import call_soon

T = TypeVar("T")


class LoopThread:
    """The loop, from its first moment until it is closed. Its tasks belong to one group, which ends with it.

    Args:
        name: Of the thread.
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

    def soon(self, function: Callable[[], object]) -> None:
        """Have *function* called in the loop; from any thread."""
        with suppress(RuntimeError):  # the loop has ended
            # In its own context: that of the caller may say that this is trio.
            self._loop.call_soon_threadsafe(function, context=self._context)

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Have *work* done in a task there; it must not raise."""
        self.soon(lambda: self._tasks.start_soon(work))

    async def call(self, work: Callable[[], Awaitable[T]]) -> T:
        """Have *work* done there, and wait for what comes of it. If the wait is cancelled, the work is, too.

        Raises:
            JournalFailed: The loop is closed, or was meanwhile.
        """
        if self._is_closed:
            raise JournalFailed("the journal is closed")
        here, done = current_token(), anyio.Event()
        job = _LoopJob(work, lambda: call_soon(here, done.set))
        self.start(job.run)
        try:
            await done.wait()
        except BaseException:
            self.soon(job.cancel)
            raise
        return job.result()

    async def aclose(self, last: Callable[[], Awaitable[None]]) -> None:
        """Cancel what still goes on, do *last*, which must not raise, and end the thread."""
        if self._is_closed:
            return
        self._is_closed = True
        self._last = last
        self.soon(self._stop.set)
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
    """A piece of work, and what has come of it."""

    def __init__(self, work: Callable[[], Awaitable[T]], tell: Callable[[], None]) -> None:
        self._work = work
        self._tell = tell
        self._scope: anyio.CancelScope | None = None
        self._values: list[T] = []
        self._error: Exception = JournalFailed("the journal was closed meanwhile")

    async def run(self) -> None:
        try:
            with anyio.CancelScope() as self._scope:
                self._values.append(await self._work())
        except Exception as error:  # noqa: BLE001  (whoever asked gets it)
            self._error = error
        finally:
            self._tell()

    def cancel(self) -> None:
        if self._scope is not None:
            self._scope.cancel()

    def result(self) -> T:
        if self._values:
            return self._values[0]
        raise self._error
