"""Plain functions in worker threads, which can be asked to stop but cannot be forced."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import anyio
from anyio.lowlevel import EventLoopToken, current_token

from dagrun.executors.daemon_threads import DaemonThreads
from dagrun.kernel.decide.classify import classify
from dagrun.kernel.model.executor import CallFailed, StillRunning, ToolCall, plain_result
from dagrun.kernel.model.outcome import ErrorKind, Failure
from dagrun.kernel.model.tool_context import Report, ToolContext
from dagrun.kernel.runtime.backend import call_soon

MAX_NAMES: Final = 5
_LOG: Final = logging.getLogger("dagrun.run")


class ReportQueue:
    """Passes the reports of a thread to the event loop, many at a time.

    A tool that reports its progress a million times a second must not fill the memory or starve the loop. So of two
    progress reports in a row that still wait, only the newer one is kept. Reports of usage are never dropped.

    Args:
        token: The event loop.
        deliver: Takes one report; it is called in the loop.
    """

    __slots__ = ("_deliver", "_is_scheduled", "_lock", "_token", "_waiting")

    def __init__(self, token: EventLoopToken, deliver: Report) -> None:
        self._token = token
        self._deliver = deliver
        self._lock = threading.Lock()
        self._waiting: list[tuple[str, Mapping[str, Any]]] = []
        self._is_scheduled = False  # whether the loop will call `_flush`

    def send(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Send one report; may be called in any thread."""
        with self._lock:
            if kind == "progress" and self._waiting and self._waiting[-1][0] == kind:
                self._waiting.pop()
            self._waiting.append((kind, facts))
            was_scheduled, self._is_scheduled = self._is_scheduled, True
        if not was_scheduled:
            call_soon(self._token, self._flush)

    def _flush(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
            self._is_scheduled = False
        for kind, facts in waiting:
            self._deliver(kind, facts)


class ThreadExecutor:
    """Runs plain functions in worker threads, with the context variables of the caller.

    A thread cannot be killed. A thread that does not end within the grace period is *stuck*: it does not count among
    the *max_threads* any more, but among the stuck threads until it ends.

    Args:
        max_threads: The most calls that run at once; others wait for their turn.
        max_stuck: The number of stuck threads at which new calls are refused.
    """

    def __init__(self, max_threads: int = 40, max_stuck: int = 16) -> None:
        self._max_stuck = max_stuck
        # A call holds a place until its function has ended or is given up. The limiter of anyio's `to_thread` would
        # release the place at the cancellation, while the thread still runs.
        self._places = anyio.CapacityLimiter(max_threads)
        self._threads = DaemonThreads()
        self._lock = threading.Lock()
        self._stuck: set[_ThreadJob] = set()

    @property
    def stuck(self) -> int:
        """The number of threads that were given up and still run."""
        return len(self._stuck)

    async def call(self, call: ToolCall) -> object:
        """Run the function of the tool in a thread.

        Raises:
            CallFailed: Too many threads are stuck; or the function raised an error that must not reach the loop.
            StillRunning: The function was told to stop, and did not within the grace period.
            Exception: The error that the function raised.
        """
        self._refuse_if_too_many_are_stuck()
        async with self._places:
            self._refuse_if_too_many_are_stuck()  # some may have become stuck while this call waited
            job = _ThreadJob(call, self._lock, self._stuck)
            try:
                result = await self._threads.run(job.run)
            except GeneratorExit:  # the runtime has dropped this coroutine, so it must not await any more
                job.give_up()
                raise
            except anyio.get_cancelled_exc_class():
                await self._wait_for(job, call)
                raise
            return result.unwrap(call)

    async def aclose(self) -> None:
        """End the threads; stuck threads cannot be ended, and are named in the log."""
        self._threads.close()
        with self._lock:
            stuck = sorted(job.name for job in self._stuck)
        if stuck:
            names = ", ".join(stuck[:MAX_NAMES]) + (" …" if len(stuck) > MAX_NAMES else "")
            count = f"{len(stuck)} thread{'s'[: len(stuck) > 1]}"
            _LOG.warning("left %s that would not stop: %s; the exit of Python does not wait for it", count, names)

    async def _wait_for(self, job: _ThreadJob, call: ToolCall) -> None:
        """Ask *job* to stop, and wait for the grace period at most."""
        is_over = anyio.Event()
        try:
            with anyio.move_on_after(call.grace, shield=True):
                if job.ask_to_stop(is_over.set):
                    await is_over.wait()
        finally:  # also if this coroutine is dropped in the middle
            is_stuck = job.give_up()
        if is_stuck:
            raise StillRunning(f"{call.tool.name} still runs in its thread, {call.grace:g} s after it was told to stop")

    def _refuse_if_too_many_are_stuck(self) -> None:
        if len(self._stuck) < self._max_stuck:
            return
        text = f"ceiling of {self._max_stuck} stuck threads: {len(self._stuck)} were told to stop and still run"
        raise CallFailed(Failure(ErrorKind.CEILING, text, nothing_happened=True))


class _ThreadResult:
    """How a function ended: a value or an error, passed from the thread to the loop without raising it."""

    __slots__ = ("error", "value")

    def __init__(self, value: object = None, error: BaseException | None = None) -> None:
        self.value = value
        self.error = error

    def unwrap(self, call: ToolCall) -> object:
        """Return the value, or raise the error and forget it: its traceback would refer back to this object."""
        error, self.error = self.error, None
        if error is None:
            return self.value
        try:
            # A coroutine cannot raise StopIteration, and an error that is no Exception would end more than this step.
            if isinstance(error, StopIteration) or not isinstance(error, Exception):
                raise CallFailed(classify(error, call.tool)) from error
            raise error
        finally:
            del error


class _ThreadJob:
    """One call, used by the loop and by the thread. They change shared state under one lock, which all jobs share."""

    def __init__(self, call: ToolCall, lock: threading.Lock, stuck: set[_ThreadJob]) -> None:
        self._function = call.tool.function
        self._arguments = call.arguments
        self._context: ToolContext | None = None
        self._token: EventLoopToken = current_token()
        self._lock = lock
        self._stuck = stuck
        self._is_taken = False  # by the thread, or by an earlier cancellation
        self._has_ended = False
        self._on_end: Callable[[], object] | None = None
        self.name = call.tool.name
        # A tool without a context cannot ask whether it has to stop, so it needs no flag.
        if (name := call.tool.arguments.context) is not None:
            self._context = _thread_context(call.arguments[name], self._token)
            self._arguments = call.arguments | {name: self._context}

    def run(self) -> _ThreadResult:
        """Call the function; runs in the thread."""
        if not self._take():
            return _ThreadResult()  # the call was cancelled before a thread was free; nobody waits for this result
        result = _run(self._function, self._arguments)
        with self._lock:
            self._has_ended = True
            self._stuck.discard(self)
            on_end = self._on_end
        if on_end is not None:
            call_soon(self._token, on_end)
        return result

    def goes_on(self) -> bool:
        """Whether the function runs now."""
        return self._is_taken and not self._has_ended

    def tell_end(self, on_end: Callable[[], object]) -> None:
        """Call *on_end* in the loop when the function has ended."""
        with self._lock:
            has_ended, self._on_end = self._has_ended, on_end
        if has_ended:
            call_soon(self._token, on_end)

    def ask_to_stop(self, on_end: Callable[[], None]) -> bool:
        """Set the stop flag. If the function runs, return `True`, and call *on_end* in the loop when it has ended."""
        if self._take():
            self._has_ended = True  # it will never start
            return False
        if self._context is not None:
            self._context.stop.set()
        with self._lock:
            self._on_end = on_end
            return not self._has_ended

    def give_up(self) -> bool:
        """Count the function as stuck if it still runs; return whether it does."""
        if self._context is not None:
            self._context.stop.set()
        if self._take():
            return False
        with self._lock:
            if not self._has_ended:
                self._stuck.add(self)
            return not self._has_ended

    def _take(self) -> bool:
        with self._lock:
            was_taken, self._is_taken = self._is_taken, True
            return not was_taken


def _run(function: Callable[..., Any], arguments: dict[str, Any]) -> _ThreadResult:
    # A frame of its own: otherwise the traceback of the error would keep the frame that keeps the error.
    try:
        return _ThreadResult(plain_result(function(**arguments)))
    except BaseException as error:  # noqa: BLE001  (a SystemExit is a failure of this step)
        return _ThreadResult(error=error)


def _thread_context(context: ToolContext, token: EventLoopToken) -> ToolContext:
    """Return the context for a tool in a thread, where the clock and the callbacks of the loop do not work."""
    begun, begun_here = context.clock(), time.monotonic()
    return dataclasses.replace(
        context,
        report=ReportQueue(token, context.report).send,
        clock=lambda: begun + time.monotonic() - begun_here,
    )
