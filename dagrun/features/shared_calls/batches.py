"""Batches: calls of one tool that start about the same time, combined into one call of its batch form."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

from dagrun.errors import shorten
from dagrun.features.shared_calls.single_flight import SingleFlightCall
from dagrun.kernel.decide.classify import classify
from dagrun.kernel.model.contracts.sharing import Batch
from dagrun.kernel.model.executor import CallFailed, ToolCall
from dagrun.kernel.model.outcome import ErrorKind, Failure, Outcome, SharedCall, State
from dagrun.kernel.model.tool import AnyTool
from dagrun.kernel.model.value import encode, to_json
from dagrun.kernel.runtime.backend import Timers
from dagrun.kernel.runtime.live_attempt import LiveAttempt

Make: TypeAlias = Callable[[LiveAttempt, AnyTool, dict[str, Any], bytes, int], SingleFlightCall]
Launch: TypeAlias = Callable[[SingleFlightCall, Callable[[Outcome | None], object]], None]
_Group: TypeAlias = tuple[AnyTool, tuple[bytes, ...]]

_IN_THIS_PROCESS: Final = frozenset(("coroutine", "thread"))


class _Gathering:
    """A batch: the calls that have come together so far.

    Attributes:
        own: The call of the batch form.
        calls: The arguments of the calls; the list that the batch form gets.
        results: What the batch form has returned for each.
    """

    __slots__ = ("calls", "own", "places", "results")

    def __init__(self, own: SingleFlightCall, calls: list[dict[str, Any]]) -> None:
        self.own = own
        self.calls = calls
        self.places: list[LiveAttempt] = []  # the attempt of each call
        self.results: list[object] = []


class Batches:
    """Gathers the calls of one run.

    Args:
        make: Makes the call of a batch form, without a task.
        launch: Gives it one.
        alarms: The alarms of the run.
        now: The clock of the loop.
    """

    def __init__(self, make: Make, launch: Launch, alarms: Timers, now: Callable[[], float]) -> None:
        self._make = make
        self._launch = launch
        self._alarms = alarms
        self._now = now
        self._open: dict[_Group, _Gathering] = {}

    @staticmethod
    def takes(name: str, call: ToolCall) -> bool:
        """Whether a call through the executor *name* becomes part of a batch: an executor of the host gets its own."""
        return call.tool.batch is not None and name in _IN_THIS_PROCESS

    async def call(self, live: LiveAttempt, call: ToolCall) -> object:
        """Make a call as part of a batch; return its result.

        Raises:
            CallFailed: The batch failed, or this call of it.
        """
        batch = call.tool.batch
        assert batch is not None
        arguments = {name: value for name, value in call.arguments.items() if name not in _from_host(call.tool)}
        group = call.tool, tuple(to_json(encode(arguments.get(name))) for name in batch.by)
        found = self._open.get(group) or self._begin(group, batch, live, call)
        found.calls.append(arguments)
        found.places.append(live)
        found.own.join(live)
        if len(found.calls) == batch.max_calls:
            self._send(group, found)
        outcome = await found.own.wait(live)
        if outcome is None or outcome.failure is not None:
            stopped = Failure(ErrorKind.CANCELLED, "its batch was stopped", is_transient=True, nothing_happened=True)
            raise CallFailed(stopped if outcome is None or outcome.failure is None else outcome.failure)
        result = found.results[found.places.index(live)]
        if isinstance(result, BaseException):
            raise CallFailed(classify(result, call.tool))
        if len(found.calls) > 1:
            shared = SharedCall("batched", found.own.step, found.own.attempt, calls=len(found.calls))
            live.make_rare().shared = shared
        return result

    def _begin(self, group: _Group, batch: Batch, live: LiveAttempt, call: ToolCall) -> _Gathering:
        form, calls = batch.form, list[dict[str, Any]]()
        own = self._make(live, form, {batch.calls(): calls}, b"{}", call.output_limit)
        own.live.make_rare().is_batch = True
        found = self._open[group] = _Gathering(own, calls)
        own.close = partial(self._close, group, found)
        self._alarms.at(self._now() + batch.within, partial(self._send, group, found))
        return found

    def _close(self, group: _Group, found: _Gathering) -> None:
        if self._open.get(group) is found:
            del self._open[group]

    def _send(self, group: _Group, found: _Gathering) -> None:
        """Make the call, with all that have come together and still wait."""
        own = found.own
        if own.is_launched or own.live.asked is not None:
            return
        self._close(group, found)
        waiting = [(each, live) for each, live in zip(found.calls, found.places, strict=True) if live in own.members]
        found.calls[:] = [each for each, _ in waiting]
        found.places[:] = [live for _, live in waiting]
        self._launch(own, partial(self._landed, found))

    @staticmethod
    def _landed(found: _Gathering, outcome: Outcome | None) -> None:
        own, rare = found.own, found.own.live.make_rare()
        results, rare.results = rare.results, None
        if outcome is not None and outcome.failure is None:
            if isinstance(results, list | tuple) and len(results) == len(found.calls):
                found.results = list(results)
            else:
                failure = Failure(ErrorKind.BAD_OUTPUT, _wrong(own.live.tool, results, len(found.calls)))
                outcome = Outcome(State.FAILED, None, failure)
        own.end(outcome)


def _wrong(form: AnyTool, results: object, calls: int) -> str:
    got = f"{len(results)} results" if isinstance(results, list | tuple) else f"a {type(results).__name__}"
    return shorten(
        f"{form.name}: its batch form returned {got} for {calls} calls; it returns a list of as many results"
    )


def _from_host(tool: AnyTool) -> frozenset[str]:
    """Return the parameters that the batch form gets by itself, if it wants them."""
    context = tool.arguments.context
    return frozenset((*tool.arguments.deps, *(() if context is None else (context,))))
