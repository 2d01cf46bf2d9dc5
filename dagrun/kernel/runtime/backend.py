"""The few things that differ between asyncio and trio; and the timers of a run: all deadlines on one heap."""

from __future__ import annotations

import asyncio
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from heapq import heappop, heappush
from importlib.util import find_spec
from typing import Any, Final, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread
from anyio.abc import TaskGroup
from anyio.lowlevel import EventLoopToken

T = TypeVar("T")

MANY_STEPS: Final = 2_000  # whose plan takes 15 ms to check


def clock() -> Callable[[], float]:
    """Return the clock of the running loop, in seconds. It is much cheaper than asking anyio each time."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        import trio

        return trio.current_time
    # asyncio's own loops read the monotonic clock. uvloop reads it once per turn, in whole milliseconds: a tool that
    # blocks the loop would not be late by it. Other loops, such as the virtual one, have a clock of their own.
    is_plain = getattr(loop.time, "__func__", None) is asyncio.BaseEventLoop.time
    return time.monotonic if is_plain or _is_monotonic_of_uvloop(loop) else loop.time


def _is_monotonic_of_uvloop(loop: asyncio.AbstractEventLoop, platform: str = sys.platform) -> bool:
    """Whether *loop* is a loop of uvloop whose clock is `time.monotonic`.

    On macOS the clock of uvloop runs while the machine sleeps, and `time.monotonic` does not: by uvloop's clock, every
    deadline would have passed.
    """
    return type(loop).__module__ == "uvloop" and platform != "darwin"


# Closes all descriptors that it was not given, and becomes the program. Python ignores two signals, which it hands on.
_ALONE: Final = """
import os, signal, sys
kept, command = [2, *map(int, sys.argv[1].split())], sys.argv[2:]
for low, high in zip(kept, [*kept[1:], max(os.sysconf("SC_OPEN_MAX"), 1 << 16)]):
    os.closerange(low + 1, high)
for number in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(number, signal.SIG_DFL)
os.execvp(command[0], command)
"""


def command_alone(command: Sequence[str], keep: Iterable[int] = (), cwd: str | None = None) -> list[str]:
    """Return a command whose process starts with its standard files and *keep*, and with no other descriptor.

    That is so with the loops of asyncio and trio. uvloop hands on every descriptor that can be inherited, as servers
    have them for their workers; so there a program of a few lines closes them, and becomes the program itself.

    Args:
        command: The program and its arguments. A program that is not there is left to the loop, which says so.
        keep: The descriptors that the process gets besides.
        cwd: The folder that the process starts in; `None` for this process's.
    """
    program = os.path.join(cwd or "", command[0]) if os.sep in command[0] else command[0]
    if type(_asyncio_loop()).__module__ != "uvloop" or shutil.which(program) is None:
        return list(command)
    return [sys.executable, "-I", "-S", "-c", _ALONE, " ".join(map(str, sorted(keep))), *command]


def _asyncio_loop() -> object:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def loop_options(backend: str = "asyncio") -> dict[str, object]:
    """Return the options of `anyio.run` for a loop that dagrun starts: uvloop, if it is installed."""
    if backend != "asyncio" or find_spec("uvloop") is None:
        return {}
    try:
        for standard in range(3):
            os.fstat(standard)
    except OSError:
        return {}  # one of the three is closed: libuv would open another file in its place, and abort
    return {"use_uvloop": True}


def scope_class() -> type[anyio.CancelScope]:
    """Return the class of cancel scopes of the running backend; anyio's own class looks the backend up each time."""
    return _classes(is_asyncio())[0]


def event_class() -> type[anyio.Event]:
    """Return the class of events of the running backend; see `scope_class`."""
    return _classes(is_asyncio())[1]


def is_asyncio() -> bool:
    """Whether the running loop is one of asyncio."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@cache
def _classes(is_asyncio: bool) -> tuple[type[anyio.CancelScope], type[anyio.Event]]:
    return type(anyio.CancelScope()), type(anyio.Event())


@contextmanager
def named_loop() -> Iterator[None]:
    """Name the running loop for anyio in an asyncio callback, such as a timer or a signal handler, as in a task."""
    sniffio = sys.modules.get("sniffio")  # without it, anyio looks for the loop
    if sniffio is None or not is_asyncio() or asyncio.current_task() is not None:
        yield
        return
    before, sniffio.thread_local.name = sniffio.thread_local.name, "asyncio"
    try:
        yield
    finally:
        sniffio.thread_local.name = before


def call_soon(token: EventLoopToken, function: Callable[[], object]) -> None:
    """Call *function* soon in the loop of *token*, in the order of the calls, and do not wait for it.

    anyio's `from_thread.run_sync` waits, forever if the loop ends at that moment. A loop that has ended is no error.
    """
    loop: Any = token.native_token
    soon = loop.run_sync_soon if hasattr(loop, "run_sync_soon") else loop.call_soon_threadsafe  # trio, else asyncio
    with suppress(RuntimeError):
        soon(function)


def is_cancellation(error: BaseException) -> bool:
    """Whether *error* is the cancellation of a task, on either backend."""
    if isinstance(error, asyncio.CancelledError):
        return True
    trio = sys.modules.get("trio")
    return trio is not None and isinstance(error, trio.Cancelled)


def is_being_cancelled() -> bool:
    """Whether a scope around the running code was cancelled, so that a cancellation was asked for."""
    return anyio.current_effective_deadline() == -math.inf


def is_effectively_cancelled(scope: anyio.CancelScope) -> bool:
    """Whether *scope* of asyncio, or a scope around it that it is not shielded from, was cancelled.

    There is no public way to ask that of a scope that is not the innermost one; nor for the next functions. The tests
    of stop scopes hold them to the libraries' ways.
    """
    return bool(scope._effectively_cancelled)  # type: ignore[attr-defined]


def can_be_cancelled_now(task: asyncio.Task[object]) -> bool:
    """Whether *task* waits for a result that is not there yet; else a cancellation would lose the result."""
    if task is asyncio.current_task():
        return False
    waiter: asyncio.Future[object] | None = task._fut_waiter  # type: ignore[attr-defined]
    return waiter is None or not waiter.done()


def wake_by_force(task: asyncio.Task[object]) -> None:
    """Cancel the current await of *task*, although it does not end: a child task, for example, or a shield.

    Neither asyncio nor anyio can do that: a cancellation of the task is passed on to what it waits for, and does
    nothing as long as that goes on. Python 3.11 to 3.14 keep the call that wakes a task among the callbacks of the
    future; the tests of dropped calls notice if that changes.
    """
    waiter = task._fut_waiter  # type: ignore[attr-defined]
    for callback, context in list(getattr(waiter, "_callbacks", None) or ()):
        if getattr(callback, "__self__", None) is task:
            waiter.remove_done_callback(callback)
            loop = task.get_loop()
            ended = loop.create_future()
            ended.cancel()
            loop.call_soon(callback, ended, context=context)


def forget_task(task: asyncio.Task[Any]) -> None:
    """Remove a task that swallows every cancellation from the loop's register, so that nothing waits for its end.

    anyio cancels the tasks of a cancelled group in each turn of the loop, until they end; that stops, too.
    """
    from anyio._backends._asyncio import _task_states

    asyncio.tasks._unregister_task(task)
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    state = _task_states.get(task)
    scope: Any = None if state is None else state.cancel_scope
    while scope is not None and (not scope._active or scope._host_task is task):
        if not scope._active:  # the scope of a group that was dropped: nothing around it reaches the task any more
            scope._cancel_called, scope._shield = False, True
        calm((scope,))
        scope = scope._parent_scope


def calm(scopes: Iterable[Any]) -> None:
    """Stop the repeated cancellation of tasks by cancelled *scopes* of anyio on asyncio, until one leaves a shield."""
    for scope in scopes:
        if scope._cancel_handle is not None:
            scope._cancel_handle.cancel()
            scope._cancel_handle = None


def scopes_inside(scope: anyio.CancelScope, task: asyncio.Task[object]) -> list[Any]:
    """Return the scopes inside *scope* in which *task* waits now, the innermost first."""
    from anyio._backends._asyncio import _task_states

    state = _task_states.get(task)
    scopes: list[Any] = []
    inner = None if state is None else state.cancel_scope
    while inner is not None and inner is not scope:
        scopes.append(inner)
        inner = inner._parent_scope
    return scopes


def ends_program(coroutine: Any) -> bool:
    """Whether a suspended *coroutine* waits where anyio ends a program: its clean-up kills it when it is cancelled."""
    names = ("anyio._backends._asyncio", "anyio._backends._trio")
    codes = [module.Process.aclose.__code__ for module in filter(None, map(sys.modules.get, names))]
    while coroutine is not None:
        if getattr(coroutine, "cr_code", None) in codes:
            return True
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    return False


def cancel_status() -> Any:
    """Return the state of the innermost cancel scope of the running task of trio."""
    import trio

    return trio.lowlevel.current_task()._cancel_status


def is_shielded_above(status: Any) -> bool:
    """Whether a shield inside the scope of *status* protects the running task of trio."""
    inner = cancel_status()
    while inner is not None and inner is not status:
        if inner._scope.shield:
            return True
        inner = inner.parent
    return False


def scopes_above(status: Any) -> tuple[Any, ...] | None:
    """Return the scopes of the running trio task inside the scope of *status*.

    It is `None` if one of them is cancelled, or is that of a nursery, which cancels it at the first exception.
    """
    import trio

    scopes, inner = [], cancel_status()
    nurseries = trio.lowlevel.current_task().child_nurseries
    while inner is not None and inner is not status:
        scope = inner._scope
        if scope.cancel_called or any(scope is each.cancel_scope for each in nurseries):
            return None
        scopes.append(scope)
        inner = inner.parent
    return tuple(scopes)


async def uncancel_task() -> None:
    """Take a cancellation that foreign code has left for this task, so that the task does not end as cancelled.

    On asyncio such an end would cancel the whole task group that the task belongs to. Call it last.

    Raises:
        BaseException: The cancellation was asked for.
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return  # only its scopes can cancel a task of trio
    if task is None or not task.cancelling():
        return
    try:
        await anyio.lowlevel.checkpoint()
    except asyncio.CancelledError:
        if is_being_cancelled():
            raise


def innermost_of(scope: anyio.CancelScope) -> Callable[[], bool]:
    """Return a function that checks whether *scope*, which the task has just entered, is its innermost scope.

    Neither library has a public way to ask; the tests of leaked scopes notice if the libraries change.
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
    """Leave *scope* although a tool has left scopes or task groups open inside it; cancel those.

    Neither library has a public way to do that, and without it the end of this task would cancel the task group of the
    run. The tests of leaked scopes and task groups notice if the libraries change.
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

    # Trio has closed the scopes themselves already, when the outer one was left.
    task = trio.lowlevel.current_task()
    for nursery in task.child_nurseries:
        nursery.cancel_scope.cancel()
    task._child_nurseries.clear()


async def yield_to_loop() -> None:
    """Yield to all tasks that are ready or due, during long work; a cancellation is deferred.

    One turn of asyncio's loop is not enough: a task whose timer is due is found in the first turn, woken in the second,
    and runs in the third.
    """
    for _ in range(3):
        await anyio.lowlevel.cancel_shielded_checkpoint()


async def off_loop(steps: int, work: Callable[[], T]) -> T:
    """Run *work*, which changes no shared state, in a thread if it is about many steps.

    A thread gives the loop a turn every few milliseconds. A caller that is cancelled does not wait for the thread: it
    ends by itself, and its result is dropped. On a clock that jumps, the loop would go on to the next time limit
    meanwhile, so there the work is done at once.

    Args:
        steps: The number of steps that it is about.
        work: The work.
    """
    if steps < MANY_STEPS or (is_asyncio() and getattr(asyncio.get_running_loop(), "jumps", False) is True):
        return work()
    return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)


class Timers:
    """Calls functions at given times. The sleeping task starts with the first alarm, and wakes only for alarms.

    Args:
        tasks: The task group of the run.
        now: The clock of the loop.
        after: Called when all alarms that were due have rung.
    """

    def __init__(self, tasks: TaskGroup, now: Callable[[], float], after: Callable[[], None]) -> None:
        self._after = after
        self._tasks = tasks
        self._now = now
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._nap: anyio.CancelScope | None = None
        self._is_over = False

    def at(self, time: float, ring: Callable[[], None]) -> None:
        """Call *ring* at *time* on the clock of the loop, or soon after. *ring* checks whether it still matters."""
        self._count += 1
        heappush(self._heap, (time, self._count, ring))
        if self._nap is None:
            self._nap = anyio.CancelScope(deadline=time)
            self._tasks.start_soon(self._sleep, name="dagrun alarms")
        elif time < self._nap.deadline:
            self._nap.deadline = time

    def stop(self) -> None:
        """Ring no more, and let the sleeping task end."""
        self._is_over = True
        self._heap.clear()
        if self._nap is not None:
            self._nap.cancel()

    async def _sleep(self) -> None:
        while not self._is_over and self._nap is not None:
            with self._nap:
                await anyio.sleep_forever()
            self._ring_due()
            self._nap = anyio.CancelScope(deadline=self._heap[0][0] if self._heap else math.inf)

    def _ring_due(self) -> None:
        now = self._now()
        while self._heap and self._heap[0][0] <= now and not self._is_over:
            heappop(self._heap)[2]()
        self._after()
