"""The `Executor` protocol: an executor runs calls of tools; here are its calls, results and errors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

from dagrun.errors import ValueRefused, ValueTooLarge, short_repr, shorten
from dagrun.kernel.model.outcome import Failure
from dagrun.kernel.model.tool import Tool
from dagrun.kernel.model.tool_context import ToolContext
from dagrun.kernel.model.value import Stored, encode, store_text


class ResultRefused(Exception):
    """An executor could not return the result of a call; the message has the reason."""


class StillRunning(Exception):
    """A cancelled call did not end within the grace period."""


class WorkerDied(Exception):
    """The process that ran a call ended without an answer, and its tool may be the reason: it is not tried again."""


class WorkerLost(Exception):
    """The place that ran a call is gone, and not because of the call: a machine, a node, or the way to it.

    Another attempt may find another place, so the failure is transient: the step is tried again if its tool may be
    repeated, and the attempt counts. An effect of the call is in doubt. An executor raises it where it knows so.
    """


class CallFailed(Exception):
    """A call failed, and its executor describes how: the exception itself was raised elsewhere, or must be hidden.

    Attributes:
        failure: The failure of the attempt.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure

    def __str__(self) -> str:
        return self.failure.message


@dataclass(slots=True)
class Encoded:
    """A result that another process has checked and encoded as JSON text."""

    data: bytes

    def store(self, limit: int) -> Stored:
        """Return the result as a stored value.

        Raises:
            ValueRefused: It is longer than *limit* bytes, or is not JSON.
        """
        return store_text(self.data, limit)


class KeptResult(Encoded):
    """A stored result of a call that several steps share.

    Args:
        value: The stored value. It has no objects in memory.
    """

    __slots__ = ("_value",)

    def __init__(self, value: Stored) -> None:
        super().__init__(b"")
        self._value = value

    def store(self, limit: int) -> Stored:
        """Return the stored value, if it keeps the limit."""
        if type(self._value) is not bytes:
            return encode(self._value, limit)
        if len(self._value) > limit:
            raise ValueTooLarge(f"{len(self._value)} bytes of JSON are over the ceiling of {limit}")
        return self._value


@dataclass(slots=True)
class ToolCall:
    """One call of a tool, as an executor gets it.

    Attributes:
        tool: The tool.
        data: The arguments as JSON text; they have been checked.
        arguments: The arguments as keyword arguments, including the context.
        context: Returns the context of the call.
        grace: Seconds that the call may take to end after it was told to stop.
        output_limit: The most bytes of JSON that it may return.
        objects: The objects in memory among the arguments, by the ``of`` of their tokens in *data*.
        clock_stopped: Returns a context manager. While it is entered, the time limit of the call does not run: an
            executor prepares something in it that is not the work of the call, such as a process that has to start.
        headers: ``traceparent`` and so on, for spans elsewhere that belong below that of the call (W3C Trace Context);
            `None` without traces, and for calls in this process.
    """

    __repr__ = short_repr

    tool: Tool[..., Any]
    data: bytes
    arguments: dict[str, Any]
    context: Callable[[], ToolContext]
    grace: float
    output_limit: int
    objects: Mapping[str, object] = field(default_factory=dict)
    clock_stopped: Callable[[], AbstractContextManager[object]] = nullcontext
    headers: Mapping[str, str] | None = None


class Executor(Protocol):
    """Runs calls of tools: in this thread, another thread, another process, or elsewhere.

    A host can add executors (``dagrun.start(…, executors={"sql": …})``), which steps name (``executor: sql``).
    If such an executor raises, hangs or returns too late, only that one step fails. It belongs to the host: dagrun
    never closes it, so it can serve many runs, and the host closes it when the last run has ended. Its name is the pool
    of its steps, unless they or their tools name another.

    It may have a method ``accepts(tool) -> str | None``, which says why it cannot run a tool, or returns `None`. The
    check of a plan or a patch asks it, and refuses the step (``DR222``); without it, such a step fails when it runs.
    """

    def call(self, call: ToolCall) -> Coroutine[Any, Any, object]:
        """Return a coroutine that makes the call, and returns the result of the tool or an `Encoded`.

        The executor guarantees that an `Encoded` result has the return type of the tool.

        The coroutine must end soon after it is cancelled, or raise `StillRunning` if it cannot stop the call.
        """

    async def aclose(self) -> None:
        """Release all resources; called once, after the last call has ended, by the owner of the executor."""


def refusal_by(executor: object, tool: Tool[..., Any]) -> str:
    """Return why the `accepts` method of an executor refuses *tool*; empty if it accepts it."""
    accepts = None if isinstance(executor, type) else getattr(executor, "accepts", None)
    if accepts is None:
        return ""
    try:
        answer = accepts(tool)
    except Exception as error:  # noqa: BLE001  (code of the host, which must not end the check of a patch)
        return shorten(f"its accepts raised {type(error).__name__}: {error}")
    if answer is None:
        return ""
    if not isinstance(answer, str) or not answer:
        return f"its accepts returned {answer!r:.60}; it returns None, or the reason in words"
    return shorten(answer, 300)


def plain_result(value: object) -> object:
    """Return *value*, the result of a plain function; refuse coroutines and generators.

    Raises:
        ValueRefused: *value* is a coroutine, a generator or an async generator. The first two are closed.
    """
    if inspect.iscoroutine(value):
        value.close()  # else Python warns, when it is collected, that it was never awaited
        raise ValueRefused("a plain function returned a coroutine; make the tool async")
    if inspect.isgenerator(value):
        value.close()
        raise ValueRefused("returned a generator, which may never end; return a list")
    if inspect.isasyncgen(value):
        raise ValueRefused("a plain function returned an async generator; make the tool async and return a list")
    return value
