"""Plain functions run in worker threads, which can be asked to stop and not be made to."""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import anyio
from anyio.lowlevel import EventLoopToken, current_token

from dagrun.decide.classify import classify
from dagrun.model.executor import CallFailed, StillRunning, ToolCall, plain_result
from dagrun.model.outcome import ErrorKind, Failure
from dagrun.model.tool_context import Report, ToolContext
from dagrun.runtime.backend import call_soon


class Reports:
    """Hands reports to the loop, many at a time.

    A tool that tells its progress a million times a second must not fill the memory or starve the loop: of two
    progress reports in a row that have not been told yet, only the newer one is kept. Usage is never dropped.

    Args:
        token: The loop.
        deliver: Takes one report; called in the loop.
    """

    __slots__ = ("_deliver", "_is_coming", "_lock", "_token", "_waiting")

    def __init__(self, token: EventLoopToken, deliver: Report) -> None:
        self._token = token
        self._deliver = deliver
        self._lock = threading.Lock()
        self._waiting: list[tuple[str, Mapping[str, Any]]] = []
        self._is_coming = False

    def send(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Send one report; in any thread."""
        with self._lock:
            if kind == "progress" and self._waiting and self._waiting[-1][0] == kind:
                self._waiting.pop()
            self._waiting.append((kind, facts))
            was_coming, self._is_coming = self._is_coming, True
        if not was_coming:
            call_soon(self._token, self._flush)

    def _flush(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
            self._is_coming = False
        for kind, facts in waiting:
            self._deliver(kind, facts)


class ThreadExecutor:
    """Runs plain functions in worker threads, with the context variables of the caller.

    A thread cannot be killed. One that does not end within the grace period is *stuck*: it no longer takes a place
    among the *max_threads*, and it is counted until it ends after all.

    Args:
        max_threads: Calls that run at once; others wait their turn.
        max_stuck: Stuck threads, before new calls are refused.
    """

    def __init__(self, max_threads: int = 40, max_stuck: int = 16) -> None:
        self._max_stuck = max_stuck
        # A place is held until the function has ended or is given up; anyio's own limiter would give it away at the
        # cancellation, while the thread is still running.
        self._places = anyio.CapacityLimiter(max_threads)
        self._unlimited = anyio.CapacityLimiter(math.inf)
        self._lock = threading.Lock()
        self._stuck: set[_ThreadJob] = set()

    @property
    def stuck(self) -> int:
        """Threads that were given up and are still running."""
        return len(self._stuck)

    async def call(self, call: ToolCall) -> object:
        """Run the function of the tool in a thread.

        Raises:
            CallFailed: Too many threads are stuck; or the function raised what must not be raised in a loop.
            StillRunning: It was told to stop and did not, within the grace period.
            Exception: Whatever the function raised.
        """
        self._refuse_if_too_many_are_stuck()
        async with self._places:
            self._refuse_if_too_many_are_stuck()  # while it waited
            job = _ThreadJob(call, self._lock, self._stuck)
            try:
                ended = await anyio.to_thread.run_sync(job.run, abandon_on_cancel=True, limiter=self._unlimited)
            except GeneratorExit:  # the runtime has dropped this coroutine: it must not await anything any more
                job.give_up()
                raise
            except anyio.get_cancelled_exc_class():
                await self._wait_for(job, call)
                raise
            return ended.result(call)

    async def aclose(self) -> None:
        """Nothing to let go of: the threads belong to the loop, and those that are stuck to nobody."""

    async def _wait_for(self, job: _ThreadJob, call: ToolCall) -> None:
        """Ask *job* to stop, and give it the grace period to do so."""
        is_over = anyio.Event()
        try:
            with anyio.move_on_after(call.grace, shield=True):
                if job.ask_to_stop(is_over.set):
                    await is_over.wait()
        finally:  # also when this coroutine is dropped in the middle
            is_stuck = job.give_up()
        if is_stuck:
            raise StillRunning(f"{call.tool.name} still runs in its thread, {call.grace:g} s after it was told to stop")

    def _refuse_if_too_many_are_stuck(self) -> None:
        if len(self._stuck) < self._max_stuck:
            return
        text = f"ceiling of {self._max_stuck} stuck threads: {len(self._stuck)} were told to stop and still run"
        raise CallFailed(Failure(ErrorKind.CEILING, text, nothing_happened=True))


class _Ended:
    """How a function ended, carried from the thread to the loop as a value: nothing is raised on the way."""

    __slots__ = ("error", "value")

    def __init__(self, value: object = None, error: BaseException | None = None) -> None:
        self.value = value
        self.error = error

    def result(self, call: ToolCall) -> object:
        """Return the value, or raise the error, once: its traceback leads back to here, and must not find it again."""
        error, self.error = self.error, None
        if error is None:
            return self.value
        try:
            # A coroutine cannot raise StopIteration, and what is no Exception would tear down more than this step.
            if isinstance(error, StopIteration) or not isinstance(error, Exception):
                raise CallFailed(classify(error, call.tool)) from error
            raise error
        finally:
            del error


class _ThreadJob:
    """One call, seen from both sides. What both touch is changed under the lock that all jobs share."""

    def __init__(self, call: ToolCall, lock: threading.Lock, stuck: set[_ThreadJob]) -> None:
        self._function = call.tool.function
        self._arguments = call.arguments
        self._context: ToolContext | None = None
        self._token: EventLoopToken = current_token()
        self._lock = lock
        self._stuck = stuck
        self._is_taken = False  # by the thread, or by a cancellation that came first
        self._has_ended = False
        self._on_end: Callable[[], None] | None = None
        # A tool without a context has no way to look whether it was asked to stop, so it needs no flag either.
        if (name := call.tool.arguments.context) is not None:
            self._context = _thread_context(call.arguments[name], self._token)
            self._arguments = call.arguments | {name: self._context}

    def run(self) -> _Ended:
        """Call the function; in the thread."""
        if not self._take():
            return _Ended()  # it was cancelled before a thread got round to it; nobody waits for this
        ended = _run(self._function, self._arguments)
        with self._lock:
            self._has_ended = True
            self._stuck.discard(self)
            on_end = self._on_end
        if on_end is not None:
            call_soon(self._token, on_end)
        return ended

    def ask_to_stop(self, on_end: Callable[[], None]) -> bool:
        """Raise the flag; say whether the function runs, and if so call *on_end* in the loop when it has ended."""
        if self._take():
            self._has_ended = True  # it never starts now
            return False
        if self._context is not None:
            self._context.stop.set()
        with self._lock:
            self._on_end = on_end
            return not self._has_ended

    def give_up(self) -> bool:
        """Count the function as stuck, if it still runs; say whether it does."""
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


def _run(function: Callable[..., Any], arguments: dict[str, Any]) -> _Ended:
    # A frame of its own: the traceback of an error would otherwise hold the frame that holds the error.
    try:
        return _Ended(plain_result(function(**arguments)))
    except BaseException as error:  # noqa: BLE001  (a SystemExit must come home as a failure of this step)
        return _Ended(error=error)


def _thread_context(context: ToolContext, token: EventLoopToken) -> ToolContext:
    """Give the context that a tool sees in its thread: the clock of the loop and its callbacks do not work there."""
    begun, begun_here = context.clock(), time.monotonic()
    return dataclasses.replace(
        context,
        report=Reports(token, context.report).send,
        clock=lambda: begun + time.monotonic() - begun_here,
    )
