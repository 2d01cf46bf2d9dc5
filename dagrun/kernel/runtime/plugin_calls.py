"""Calls of planners, critics and approvers of the host; none of them can harm the run."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from math import inf
from typing import Generic, TypeAlias, TypeVar

import anyio
from anyio.abc import TaskGroup

from dagrun.errors import DagrunError, ModelError, PlanRefused, shorten
from dagrun.kernel.decide.exception_text import (
    HostInterrupted,
    Redact,
    in_words,
    interrupt_in,
    name_of,
    place_in_words,
    text_of,
    with_error,
)
from dagrun.kernel.model.executor import StillRunning
from dagrun.kernel.model.outcome import ErrorKind, Failure
from dagrun.kernel.model.redaction.redactor import DEFAULT_REDACTOR, REDACTOR
from dagrun.kernel.runtime.backend import (
    is_being_cancelled,
    is_cancellation,
    leave_leaked_scopes,
    uncancel_task,
)
from dagrun.kernel.runtime.coroutine_driver import Suspended
from dagrun.kernel.runtime.run_features import PlacesOfCall
from dagrun.kernel.runtime.stop_scope import last_turns, stop_scopes

T = TypeVar("T")

MAX_TEXT = 300


class CallClock:
    """The time that a call may take, which can stand still.

    Args:
        now: The clock of the loop.

    Attributes:
        now: The same.
    """

    __slots__ = ("_limit", "now")

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self._limit: anyio.CancelScope | None = None

    def begin(self, limit: anyio.CancelScope) -> None:
        """Take the scope whose deadline is the end of the time of the call."""
        self._limit = limit

    @property
    def is_over(self) -> bool:
        """Whether the call has taken all of its time."""
        return self._limit is not None and self.now() >= self._limit.deadline

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Pause the time limit of the call."""
        limit = self._limit
        if limit is None:
            yield
            return
        left = limit.deadline - self.now()
        limit.deadline = inf
        try:
            yield
        finally:
            limit.deadline = self.now() + left


MakePlaces: TypeAlias = Callable[[CallClock], PlacesOfCall]


class PluginFailed(DagrunError):
    """A planner, critic or approver returned no answer; the message has the reason.

    Attributes:
        failure: The same as data; its keeper must call `drop_frames`.
    """

    def __init__(self, fault: str, failure: Failure | None = None) -> None:
        super().__init__(fault)
        self.failure = failure or Failure(ErrorKind.EXCEPTION, fault)


async def call_plugin(
    call: Callable[[], Awaitable[T]],
    *,
    tasks: TaskGroup,
    name: str,
    context: Context,
    seconds: float | None,
    grace: float,
    now: Callable[[], float],
    is_alone: bool = False,
    on_stop: Callable[[], object] | None = None,
    on_begin: Callable[[anyio.CancelScope], object] | None = None,
) -> T:
    """Make *call* in a task of its own, and return its value, if that comes in time.

    Cancelling the wait stops the call as well. A call that still does not end occupies its own task only.

    Args:
        call: The call; exceptions that it raises before anything is awaited are caught, too.
        tasks: The task group of its task.
        name: The name of the task.
        context: The context variables that it starts from; it gets a copy.
        seconds: How long it may take; `None` for no limit.
        grace: Seconds that it gets to end when it was told to stop; then it is dropped.
        now: The clock of the loop.
        is_alone: Whether the next call of its kind must not begin before this one has ended. Then a caller that is
            cancelled while it waits also waits for the end of the call, for at most *grace*.
        on_stop: Called when the call is told to stop.
        on_begin: Takes the scope whose deadline is the end of its time, which may be moved.

    Raises:
        PluginFailed: It raised, cancelled itself, or took too long; a value that comes after that is not used.
    """
    # In a task of its own, a scope that it leaves open, or a cancellation that it leaves behind, affects nothing else.
    made = _Call(call, context.copy(), grace, now, on_stop)
    tasks.start_soon(made.run, name=name)
    try:
        with anyio.move_on_after(seconds) as limit:
            if on_begin is not None:
                on_begin(limit)
            await made.over.wait()
        if not made.over.is_set():
            made.stop()
            with anyio.move_on_after(grace):
                await made.over.wait()
            await last_turns(made.over.is_set)
            would_not = "" if made.over.is_set() else " and would not stop"
            text = f"it took longer than {seconds:g} s{would_not}"
            raise PluginFailed(text, Failure(ErrorKind.TIMEOUT, text))
        if made.fault:
            error, made.error = made.error, None  # its traceback leads back to the call
            failure, made.failure = made.failure, None
            raise PluginFailed(made.fault, failure) from error
        return made.value
    except anyio.get_cancelled_exc_class():
        made.stop()
        if is_alone:
            with anyio.move_on_after(grace, shield=True):
                await made.over.wait()
            await last_turns(made.over.is_set)
        raise
    finally:
        made.stop()


class _Call(Generic[T]):
    """One call, in its own task.

    Attributes:
        scope: Tell it to stop the call.
        over: Set when the call has ended.
        value: The value of the call, if there is no fault.
        fault: Why there is no value, in a sentence, or empty.
        error: The exception that it raised, if that can be chained.
        failure: The fault as data, if it raised anything.
    """

    def __init__(
        self,
        call: Callable[[], Awaitable[T]],
        context: Context,
        grace: float,
        now: Callable[[], float],
        on_stop: Callable[[], object] | None,
    ) -> None:
        self.scope = stop_scopes(grace, now)()
        self.over = anyio.Event()
        self.value: T
        self.fault = "it was told to stop"
        self.error: Exception | None = None
        self.failure: Failure | None = None
        self._call = call
        self._context = context
        self._on_stop = on_stop

    def stop(self) -> None:
        """Cancel the call, if it has not ended."""
        if not self.over.is_set():
            if self._on_stop is not None:
                self._on_stop()
            self.scope.stop()

    async def run(self) -> None:
        """Make the call."""
        try:
            with self.scope:
                await self._catch()
        except RuntimeError:
            # Only leaving the scope raises here.
            leave_leaked_scopes(self.scope.raw)
            self.fault = "it left a cancel scope or a task group open"
        finally:
            self.over.set()
        await uncancel_task()

    async def _catch(self) -> None:
        """Make the call, and keep its value or fault; raise only a cancellation that was asked for."""
        try:
            self.value = await self._drive()
            self.fault = ""
            if inspect.iscoroutine(self.value):
                self.value.close()  # else Python would warn much later that it was never awaited
                self.fault = "it gave a coroutine, which it should have awaited"
        except StillRunning as error:
            self.fault = str(error)
        except BaseException as error:
            if self._is_asked_for(error):
                raise
            if not isinstance(error, Exception) and (cause := interrupt_in(error)) is not None:
                raise HostInterrupted(cause) from None
            self.fault = _describe(error, self._context.get(REDACTOR, DEFAULT_REDACTOR).text)
            kind = ErrorKind.FOREIGN_CANCELLATION if is_cancellation(error) else ErrorKind.EXCEPTION
            self.failure = with_error(Failure(kind, self.fault, name_of(error)), error)
            self.error = error if isinstance(error, Exception) else None

    async def _drive(self) -> T:
        coroutine = _await(self._call)
        self.scope.is_inside = True
        try:
            got = self._context.run(coroutine.send, None)
        except StopIteration as stop:
            value: T = stop.value
            return value
        driven: T = await Suspended(coroutine, self._context, got, self.scope)
        return driven

    def _is_asked_for(self, error: BaseException) -> bool:
        if not is_cancellation(error) or not isinstance(error, anyio.get_cancelled_exc_class()):
            return False
        return self.scope.is_told or is_being_cancelled()


async def _await(call: Callable[[], Awaitable[T]]) -> T:
    return await call()


def _describe(error: BaseException, redact: Redact) -> str:
    if is_cancellation(error):
        return "it was cancelled, but only by itself"
    if isinstance(error, ModelError) and (text := text_of(error)) != name_of(error):
        return shorten(redact(text), MAX_TEXT)  # a sentence already
    if isinstance(error, PlanRefused) and (lines := text_of(error).splitlines()[1:]):
        return shorten(redact("; ".join(lines)), MAX_TEXT)  # the first line says how many there are
    if not isinstance(error, DagrunError):
        return f"it raised {in_words(error, redact, MAX_TEXT)}{place_in_words(error)}"
    name, text = name_of(error), text_of(error)
    return shorten(f"it raised {name}: {redact(text)}" if text != name else f"it raised {name}", MAX_TEXT)
