"""Driving a coroutine by hand: in a context of its own, and dropping it if it does not stop.

Its leftovers are found like this:

1. When it is told to stop, it is suspended, and the programs, threads and tasks for which it waits are found in the
   frames of its coroutines, and of those of these tasks. A coroutine that ends by itself is never looked at.
2. Only objects that it awaits count: a program in a variable of its functions, the job of a thread, a child task. The
   reader task of a client, or a server that several calls share, does not.
3. What still goes on when it has ended is named in the failure of the call, and keeps the place of the call: see
   `dagrun.kernel.runtime.steps.leftover_calls`.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Generator, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

import anyio.abc

from dagrun.kernel.model.executor import StillRunning
from dagrun.kernel.runtime.backend import forget_task
from dagrun.kernel.runtime.stop_scope import StopScope


class Suspended:
    """The rest of a coroutine that has suspended for the first time; await it for the return value of the coroutine.

    A coroutine that swallows every cancellation is driven no further: it is dropped and closed some time after its
    grace period. What reaches the coroutine passes by here, so it is told to stop through here, too.

    Args:
        coroutine: The coroutine.
        context: Its own context variables.
        got: The object that it has yielded to the loop.
        scope: The scope around it; a scope that is told to stop means the coroutine.

    Attributes:
        coroutine: The coroutine.
        was_interrupted: Whether the loop has thrown anything into it, such as a cancellation.
    """

    __slots__ = ("_context", "_got", "_scope", "coroutine", "was_interrupted")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], context: Context, got: Any, scope: StopScope) -> None:
        self.coroutine = coroutine
        self._context = context
        self._got = got
        self._scope = scope
        self.was_interrupted = False

    def __await__(self) -> Generator[Any, Any, Any]:
        coroutine, run, scope = self.coroutine, self._context.run, self._scope
        scope.driver = self
        error: BaseException | None = None
        sent: Any = None
        try:
            while True:
                error = sent = None
                if scope.is_due:
                    scope.deliver()
                try:
                    sent = yield self._got
                except BaseException as thrown:  # noqa: BLE001  (passed on, whatever it is)
                    error = thrown
                    self.was_interrupted = True
                    scope.hit(error)
                if sent is not None and hasattr(sent, "error"):  # trio does not throw: it sends an outcome to unwrap
                    self.was_interrupted = True
                    scope.hit(sent.error)
                if scope.cutoff is not None and scope.is_overdue():
                    self._drop()
                try:
                    self._got = run(coroutine.send, sent) if error is None else run(coroutine.throw, error)
                except StopIteration as stop:
                    return stop.value
        finally:
            error = sent = scope.driver = None  # its traceback leads back to this frame
            if scope.cutoff is not None:
                scope.leave()

    def leftovers(self) -> dict[int, Leftover]:
        """Return the awaited objects that may outlive the coroutine, by identity."""
        return find_leftovers(self.coroutine, self._got)

    def _drop(self) -> None:
        """Close the coroutine, and remove the tasks it waits for from the loop.

        Raises:
            StillRunning: Always.
        """
        left = self._scope.left = self.leftovers() | self._scope.left
        try:
            self.coroutine.close()
        except BaseException as error:
            raise StillRunning("it would not stop, and not be closed either") from error
        finally:
            for one in left.values():
                if one.task is not None and one.goes_on():
                    forget_task(one.task)
        raise StillRunning("it would not stop and was dropped")


# Leftovers -------------------------------------------------------------------------------------------------

_PROGRAMS: Final = (asyncio.subprocess.Process, subprocess.Popen, anyio.abc.Process)
# Modules whose functions wait for the tasks and threads that are in their variables.
_WAITING: Final = frozenset(
    ("asyncio.tasks", "asyncio.taskgroups", "anyio._backends._asyncio", "dagrun.executors.threads")
)
_NAMES: Final = frozenset(("self", "fs", "fut", "worker", "job"))
_MOMENT: Final = 0.001  # seconds
_MOMENTS: Final = 5  # for a killed program to end
_MAX_NAMES: Final = 3

Tell = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Leftover:
    """A program, thread or task that may outlive its call.

    Attributes:
        kind: What it is.
        name: Its name, for the message of a failure; empty if it has none.
        goes_on: Returns whether it has not ended.
        on_end: Lets a function be called once it has ended, in any thread.
        task: The task, if it is one.
    """

    kind: Literal["program", "thread", "task"]
    name: str
    goes_on: Callable[[], bool]
    on_end: Callable[[Tell], object]
    task: asyncio.Task[Any] | None = None


def find_leftovers(coroutine: Any, waits_for: Any) -> dict[int, Leftover]:
    """Return the objects that a suspended call waits for and that may outlive it, by identity.

    Args:
        coroutine: The coroutine of the call.
        waits_for: The object that it has yielded to the loop.
    """
    found: dict[int, Leftover] = {}
    suspended = [(coroutine, waits_for)]
    while suspended:
        for value in _reached(*suspended.pop()):
            if id(value) in found or (leftover := _leftover(value)) is None:
                continue
            found[id(value)] = leftover
            if isinstance(value, asyncio.Task):
                suspended.append((value.get_coro(), value._fut_waiter))  # type: ignore[attr-defined]
    return found


def _reached(coroutine: Any, future: Any) -> Iterator[object]:
    """Yield the objects that a suspended coroutine may wait for."""
    yield future
    yield from getattr(future, "_children", ())  # of asyncio.gather
    for callback, _ in getattr(future, "_callbacks", None) or ():  # the job of a thread pool is known to a callback
        yield from (value for value in _closed_over(callback) if isinstance(value, Future))
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is not None:
            yield from _in_frame(frame.f_locals, frame.f_globals.get("__name__") in _WAITING)
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)


def _closed_over(function: object) -> Iterator[object]:
    for cell in getattr(function, "__closure__", None) or ():
        with suppress(ValueError):  # it is empty
            yield cell.cell_contents


def _in_frame(variables: Mapping[str, object], is_waiting: bool) -> Iterator[object]:
    for name, value in list(variables.items()):
        if issubclass(type(value), _PROGRAMS):
            yield value
        elif is_waiting and name in _NAMES:
            inner = getattr(value, "_tasks", value) if name == "self" else value
            yield from inner if isinstance(inner, set | list | tuple) else (inner,)


def _leftover(value: object) -> Leftover | None:
    """Return *value* as a leftover, unless it has ended or is no program, thread or task."""
    if issubclass(type(value), _PROGRAMS):
        return _program(value)
    if isinstance(value, asyncio.Task):
        return _task(value)
    if isinstance(value, Future):
        return Leftover("thread", "", value.running, lambda tell: value.add_done_callback(lambda _: tell()))
    if hasattr(type(value), "tell_end"):  # the job of a plain function
        job: Any = value
        return Leftover("thread", "", job.goes_on, job.tell_end)
    if isinstance(value, threading.Thread):  # of anyio, which has no object for the job itself
        worker: Any = value
        return Leftover("thread", "", lambda: worker not in worker.idle_workers, partial(_in_thread, worker.queue.join))
    return None


def _program(process: Any) -> Leftover:
    pid = process.pid

    def goes_on() -> bool:
        if process.returncode is not None:
            return False
        return not hasattr(os, "waitid") or _wait(pid, os.WNOHANG)

    def on_end(tell: Tell) -> None:
        if hasattr(os, "waitid"):  # else it counts until the run ends
            _in_thread(partial(_wait, pid, 0), tell)

    return Leftover("program", f"process {pid}", goes_on, on_end)


def _wait(pid: int, flags: int) -> bool:
    """Wait for a child process, and leave its exit status to its owner; return whether it still runs."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | flags) is None
    except ChildProcessError:
        return False


def _in_thread(wait: Callable[[], object], tell: Tell) -> None:
    """Call *tell* when *wait* has returned, which may take forever."""

    def watch() -> None:
        wait()
        tell()

    threading.Thread(target=watch, name="dagrun leftover", daemon=True).start()


def _task(task: asyncio.Task[Any]) -> Leftover:
    coroutine: Any = task.get_coro()
    name = task.get_name()
    if name.startswith("Task-"):  # nobody has named it
        name = f"{name} {getattr(coroutine, '__qualname__', '')}"
    return Leftover(
        "task",
        name,
        lambda: not task.done(),
        lambda tell: task.add_done_callback(lambda _: tell()),
        task,
    )


def going_on(left: Mapping[int, Leftover]) -> dict[int, Leftover]:
    """Return those that still run. A program that was killed just now gets a moment to end, which blocks the loop."""
    programs = [one for one in left.values() if one.kind == "program"]
    for _ in range(_MOMENTS):
        if any(one.goes_on() for one in programs):
            time.sleep(_MOMENT)
    return {key: one for key, one in left.items() if one.goes_on()}


def in_words(left: Collection[Leftover]) -> str:
    """Describe the leftovers, as in ``left 1 program (process 41), 2 threads``."""
    parts = []
    for kind in ("program", "thread", "task"):
        names = [one.name for one in left if one.kind == kind]
        if names:
            shown = ", ".join(filter(None, names[:_MAX_NAMES]))
            parts.append(f"{len(names)} {kind}{'s'[: len(names) > 1]}{shown and f' ({shown})'}")
    return f"left {', '.join(parts)}"
