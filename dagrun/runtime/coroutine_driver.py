"""Driving a coroutine by hand: in a context of its own, and dropping it if it does not stop."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from contextvars import Context
from typing import Any

from dagrun.model.executor import StillRunning
from dagrun.runtime.stop_scope import StopScope


class Suspended:
    """The rest of a coroutine that has suspended for the first time; await it for the return value of the coroutine.

    A coroutine that swallows every cancellation is driven no further: it is dropped and closed some time after its
    grace period. What reaches the coroutine passes by here, so it is told to stop through here, too.

    Args:
        coroutine: The coroutine.
        context: Its own context variables.
        got: What it has yielded to the loop.
        scope: The scope around it; a scope that is told to stop means the coroutine.

    Attributes:
        was_interrupted: Whether the loop has thrown anything into it, such as a cancellation.
    """

    __slots__ = ("_context", "_coroutine", "_got", "_scope", "was_interrupted")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], context: Context, got: Any, scope: StopScope) -> None:
        self._coroutine = coroutine
        self._context = context
        self._got = got
        self._scope = scope
        self.was_interrupted = False

    def __await__(self) -> Generator[Any, Any, Any]:
        coroutine, run, got, scope = self._coroutine, self._context.run, self._got, self._scope
        error: BaseException | None = None
        sent: Any = None
        try:
            while True:
                error = sent = None
                if scope.is_due:
                    scope.deliver()
                try:
                    sent = yield got
                except BaseException as thrown:  # noqa: BLE001  (passed on, whatever it is)
                    error = thrown
                    self.was_interrupted = True
                    scope.hit(error)
                if sent is not None and hasattr(sent, "error"):  # trio does not throw: it sends an outcome to unwrap
                    self.was_interrupted = True
                    scope.hit(sent.error)
                if scope.cutoff is not None and scope.is_overdue():
                    _drop(coroutine)
                try:
                    got = run(coroutine.send, sent) if error is None else run(coroutine.throw, error)
                except StopIteration as stop:
                    return stop.value
        finally:
            error = sent = None  # its traceback leads back to this frame
            if scope.cutoff is not None:
                scope.leave()


def _drop(coroutine: Coroutine[Any, Any, Any]) -> None:
    try:
        coroutine.close()
    except BaseException as error:
        raise StillRunning("it would not stop, and not be closed either") from error
    raise StillRunning("it would not stop and was dropped")
