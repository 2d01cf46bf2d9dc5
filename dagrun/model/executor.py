"""What plug-ins provide."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from dagrun.errors import ValueRefused
from dagrun.model.outcome import Failure
from dagrun.model.tool import Tool
from dagrun.model.tool_context import ToolContext


class ResultRefused(Exception):
    """An executor could not bring the result home; the message says why."""


class StillRunning(Exception):
    """A call was told to stop, and what runs it could not be stopped within the grace period."""


class WorkerDied(Exception):
    """The process that carried a call out ended without an answer."""


class CallFailed(Exception):
    """A call failed, and its executor knows how: the error was raised elsewhere, or must not travel as it is.

    Attributes:
        failure: What becomes of the attempt.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure

    def __str__(self) -> str:
        return self.failure.message


@dataclass(slots=True)
class Encoded:
    """A result that comes checked and as JSON text already, from another process."""

    data: bytes


@dataclass(slots=True)
class ToolCall:
    """One attempt, on its way to an executor.

    Attributes:
        tool: The tool.
        data: The arguments as JSON text; they have been checked.
        arguments: The same as keyword arguments, the context included.
        context: The context of the call.
        grace: Seconds that the call gets to end when it was told to stop.
        output_limit: The most bytes of JSON that it may return.
    """

    tool: Tool[..., Any]
    data: bytes
    arguments: dict[str, Any]
    context: Callable[[], ToolContext]
    grace: float
    output_limit: int


class Executor(Protocol):
    """Carries calls out: in this thread, another one, another process, or wherever it likes.

    Those of the host (``dagrun.start(…, executors={"sql": …})``) are named by steps (``executor: sql``). What they
    raise, return too late, or hang in, is the failure of that one step. They belong to the host: dagrun never closes
    them, so they may serve many runs; the host closes them when its last run has ended.
    """

    def call(self, call: ToolCall) -> Coroutine[Any, Any, object]:
        """Give the coroutine that makes the call and returns what the tool returned; or an `Encoded`.

        The executor vouches for it that what is `Encoded` is of the type that the tool returns.

        It must end soon after it is cancelled, or raise `StillRunning` when it cannot end what it has begun.
        """

    async def aclose(self) -> None:
        """Let go of everything; called once, after the last call has ended, by whoever has made the executor."""


def plain_result(value: object) -> object:
    """Give *value* back, unless it is a promise that only a loop, or a caller who goes on asking, could make good.

    Raises:
        ValueRefused: It is a coroutine or a generator of either kind; it is closed.
    """
    if inspect.iscoroutine(value):
        value.close()  # or it would complain, when it is collected, that nobody awaited it
        raise ValueRefused("a plain function returned a coroutine; make the tool async")
    if inspect.isgenerator(value):
        value.close()
        raise ValueRefused("returned a generator, which may never end; return a list")
    if inspect.isasyncgen(value):
        raise ValueRefused("a plain function returned an async generator; make the tool async and return a list")
    return value
