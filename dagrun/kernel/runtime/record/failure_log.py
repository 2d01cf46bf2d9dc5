"""The log of failures: each step that failed is logged with its traceback, and so is each fault of a planner.

1. A step is logged when it has ended: as a warning, once. An attempt that is followed by another one is logged at level
   DEBUG, and one about which a person is asked, or whose default is used, at level INFO. One whose effect a person is
   asked about is logged as a warning, too: whoever answers may be a program that does not look why.
2. The handlers of a host may do anything, so they are called at the end of a change, as observers are.
3. After that nothing needs the frames of the exception any more, and they are dropped. They would keep the run alive.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from dagrun.errors import DagrunError
from dagrun.kernel.decide.exception_text import drop_frames, is_showable
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.model.event import AttemptEnded, Event, PlannerCalled, Reviewed, StepSettled
from dagrun.kernel.model.outcome import ErrorKind, Failure, State

LOGGER: Final = "dagrun.run"

# By the state that the failure has put the step into; a step in another state was stopped, and has not failed.
_LEVELS: Final[Mapping[State, tuple[int, str]]] = {
    State.FAILED: (logging.WARNING, "failed"),
    State.TIMED_OUT: (logging.WARNING, "timed out"),
    State.UNKNOWN: (logging.WARNING, "may or may not have taken effect"),
    State.ABANDONED: (logging.WARNING, "would not stop"),
    State.HELD: (logging.INFO, "is held, as a call failed"),
    State.SUCCEEDED: (logging.INFO, "ended with its default, as a call failed"),
    State.READY: (logging.DEBUG, "is tried again, as a call failed"),
}

# Each of them has texts that are redacted, so that it passes `EventLog.emit`.
WATCHED: Final = frozenset((AttemptEnded, Reviewed, StepSettled, PlannerCalled))


class FailureLog:
    """Logs failures of one run; made when there are some.

    Args:
        graph: The state; it is only looked at.
        run_id: The name of the run.
    """

    __slots__ = ("_graph", "_run_id")

    def __init__(self, graph: LiveGraph, run_id: str) -> None:
        self._graph = graph
        self._run_id = run_id

    def write(self, events: Iterable[Event]) -> None:
        """Log events of the types in `WATCHED`, redacted and applied, and drop the frames of their exceptions."""
        for event in events:
            with suppress(Exception):  # a handler must not break the run
                self._tell(event)
            drop(event)

    def _tell(self, event: Event) -> None:
        match event:
            case AttemptEnded() | Reviewed() if event.outcome.failure is not None:
                state = State.UNKNOWN if self._is_for_people(event) else event.state
                self._tell_step(event.step, state, event.outcome.failure)
            case StepSettled() if event.state is not State.SKIPPED and (event.reason or event.failure):
                self._tell_step(event.step, event.state, event.failure or self._last_failure(event), event.reason)
            case PlannerCalled():
                self._tell_call(event)

    def _tell_step(self, step: str, state: State, failure: Failure | None, reason: str = "") -> None:
        is_stopped = failure is not None and failure.kind is ErrorKind.CANCELLED and state is not State.UNKNOWN
        if is_stopped or state not in _LEVELS or (failure is None and state is State.SUCCEEDED):
            return
        level, words = _LEVELS[state]
        text = reason or (failure.message if failure is not None else "")
        self._log(level, f"step %s {words}: %s", (step, text), failure, {"step": step})

    def _is_for_people(self, event: AttemptEnded | Reviewed) -> bool:
        """Whether a person is asked if the call took effect, as its tool cannot find out."""
        node = self._graph.nodes[event.step]
        is_asked = event.state is State.HELD and event.outcome.state is State.UNKNOWN
        return is_asked and node.called(node.attempts[-1].tool).reconcile is None

    def _last_failure(self, event: StepSettled) -> Failure | None:
        """The failure of the last attempt, if the step has ended without another one."""
        latest = self._graph.nodes[event.step].latest
        return latest.outcome.failure if latest is not None and latest.outcome is not None else None

    def _tell_call(self, event: PlannerCalled) -> None:
        if event.fault:
            # A busy model is asked again, and a refused answer is on record; any other exception is a bug.
            is_expected = event.failure is None or isinstance(event.failure.exception, DagrunError)
            level = logging.INFO if is_expected else logging.WARNING
            self._log(level, "call %d of the planner failed: %s", (event.number, event.fault), event.failure, {})
        for answer in event.answers:
            self._log(logging.INFO, "call %d of the planner: its model answered:\n%s", (event.number, answer), None, {})

    def _log(
        self, level: int, text: str, args: tuple[object, ...], failure: Failure | None, extra: Mapping[str, Any]
    ) -> None:
        logger = logging.getLogger(LOGGER)
        if not logger.isEnabledFor(level):
            return
        redact = self._graph.plan.redactor.text
        error = failure.exception if failure is not None else None
        info = None
        if error is not None and is_showable(error, redact):
            info = (type(error), error, error.__traceback__)
        facts = {"run_id": self._run_id, "is_failure": True, **extra}
        path, _, line = (failure.where if failure is not None and failure.where else f"{__file__}:1").rpartition(":")
        record = logger.makeRecord(LOGGER, level, path, int(line), redact(text % args), (), info, None, facts)
        if failure is not None:
            record.exc_text = failure.traceback.rstrip() or None  # which handlers show in place of the exception's own
        logger.handle(record)


def drop(event: Event) -> None:
    """Drop the frames of all exceptions of an event."""
    for failure in _failures(event):
        if failure is not None:
            drop_frames(failure.exception)


def _failures(event: Event) -> Iterator[Failure | None]:
    match event:
        case AttemptEnded():
            yield event.outcome.failure
        case Reviewed():
            yield event.outcome.failure
            yield from (verdict.failure for verdict in event.verdicts)
        case StepSettled() | PlannerCalled():
            yield event.failure
