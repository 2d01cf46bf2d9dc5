"""The events of a run, from the change to those that take them: the journal, observers, and the log of failures.

1. `EventLog` numbers an event, applies it to the graph, and passes it on. Observers take events as an async iterator or
   through a function, when the change is complete.
2. `Recorder` writes to the journal. `JournalWatch` ends the run when that fails.
3. `FailureLog` logs each step that failed with its traceback, and each fault of a planner. A step is logged when it has
   ended: as a warning, once. An attempt that is followed by another one is logged at level DEBUG, and one about which a
   person is asked, or whose default is used, at level INFO. One whose effect a person is asked about is logged as a
   warning, too: the answer may come from a program that does not look why.
4. The handlers of a host may do anything, so they are called at the end of a change, as observers are. After that
   nothing needs the frames of the exception any more, and they are dropped. They would keep the run alive.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Protocol

import anyio
from anyio.abc import TaskGroup

from dagrun.errors import DagrunError, JournalError, JournalFailed, ValueRefused
from dagrun.kernel.decide.exception_text import drop_frames, is_showable
from dagrun.kernel.graph.changes import apply
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.contracts.held_objects import NOT_RECORDED, OBJECT_KEY, HeldObjects
from dagrun.kernel.model.event import (
    AttemptEnded,
    Event,
    Gap,
    PlannerCalled,
    Progress,
    QuestionAnswered,
    QuestionAsked,
    Reviewed,
    RunEnded,
    RunResumed,
    RunStarted,
    RunSuspended,
    StepExpanded,
    StepSettled,
)
from dagrun.kernel.model.journal import RunLog
from dagrun.kernel.model.outcome import ErrorKind, Failure, State, Status
from dagrun.kernel.model.redaction.events import CLEANERS
from dagrun.kernel.model.value import Stored, Unavailable
from dagrun.kernel.model.value import for_record as value_for_record
from dagrun.kernel.runtime.run_callbacks import RunCallbacks, weakly


class EventLog:
    """Numbers the events of a run, applies them, and passes them to the journal and the observers.

    Args:
        graph: The state; only this object changes it.
        now: The clock of the loop.
        keep: Writes an event to the journal, before any observer is shown it; `None` if there is no journal.
        flush: Called at the end of each change: the events written since then become durable together.
        run_id: The name of the run, for the log.

    Attributes:
        graph: The state.
        zero: When the run began, on the clock of the loop; time in which the run was suspended is left out.
        ended_at: When it ended, or was suspended; `None` until then.
    """

    def __init__(
        self,
        graph: LiveGraph,
        now: Callable[[], float],
        keep: Callable[[Event], object] | None = None,
        flush: Callable[[], None] | None = None,
        *,
        run_id: str = "",
    ) -> None:
        self.graph = graph
        self.zero = now()
        self.ended_at: float | None = None
        self._now = now
        self._keep = keep
        self._flush = flush
        self._redactor = graph.plan.redactor
        self._run_id = run_id
        self._failures: list[Event] = []  # to be logged at the end of the change
        self._seq = 0
        self._first: RunStarted | RunResumed | None = None
        self._observers: list[Observer] = []
        self._pending: list[Event] = []
        self._is_delivering = False

    def next_seq(self) -> int:
        """Return the number of the next event; to be used at once."""
        self._seq += 1
        return self._seq

    def at(self) -> float:
        """Return the seconds since the start of the run."""
        return self._now() - self.zero

    def seconds_since(self, at: float) -> float:
        """Return the seconds since *at*, a time of the run, including the time in which the run had no process."""
        return self.at() - at + self.graph.asleep_since(at)

    @property
    def makespan(self) -> float:
        """Seconds from the start of the run to its end, or to now."""
        return (self._now() if self.ended_at is None else self.ended_at) - self.zero

    def emit(self, event: Event, node: Node | None = None) -> None:
        """Apply *event* to the state, and pass it to the journal and the observers; *node* is its step, if known."""
        clean = CLEANERS.get(type(event))
        if clean is not None:  # before anything else: what follows from the event is clean, too
            clean(event, self._redactor)
            if type(event) in WATCHED:
                if self.ended_at is None:
                    self._failures.append(event)
                else:
                    drop(event)
        self._take(event, node)

    def _take(self, event: Event, node: Node | None = None) -> None:
        """Apply and pass on an event without text that must be redacted: see `emit`.

        Every event passes here. After the end, or after a suspension, none counts: what a planner or a tool still does
        in that very turn of the loop would damage the record.
        """
        if self.ended_at is not None:
            return
        apply(self.graph, event, node)
        if self._keep is not None:
            self._keep(event)
        if self._observers:
            event._redactor = self._redactor  # here, and not in a loop of its own: every event passes
            self._pending.append(event)

    def deliver(self) -> None:
        """Show the observers the new events: called at the end of a change, never in the middle of one."""
        if self._flush is not None:
            self._flush()
        if self._failures:
            failures, self._failures = self._failures, []
            FailureLog(self.graph, self._run_id).write(failures)
        # An observer may change the run again, for instance cancel a step; the events of that are delivered in turn.
        while self._pending and not self._is_delivering:
            batch, self._pending = self._pending, []
            self._is_delivering = True
            try:
                for observer in self._observers:
                    observer.take(batch)
            finally:
                self._is_delivering = False

    def watch(self, observer: Observer) -> None:
        """Show every event from now on to *observer*, and the first event, if nothing else has happened yet."""
        if self._first is not None and self._seq == self._first.seq:
            self._first._redactor = self._redactor
            observer.take((self._first,))
        if self.ended_at is None:
            self.deliver()
            self._observers.append(observer)
        else:
            observer.close()

    def begin_run(self, event: RunStarted) -> None:
        """Record the start of the run: the first event. The caller that starts a run can subscribe only after it."""
        self._first = event
        self.emit(event)

    def resume_run(self, seq: int, at: float, event: Callable[[int, float], RunResumed]) -> None:
        """Resume after record *seq*, made *at* seconds after the start; the time since then does not count."""
        self._seq = seq
        self.zero = self._now() - at
        self._first = resumed = event(self.next_seq(), at)
        self.emit(resumed)

    def progress(self, node: Node, fraction: float | None, message: str) -> None:
        """Show the observers how far a step is; no state changes."""
        if self._observers:
            event = Progress(self._seq, self.at(), node.id, fraction, self._redactor.text(message))
            event._redactor = self._redactor
            self._pending.append(event)
            self.deliver()

    def end_run(self, status: Status, reason: str) -> None:
        """Record the end of the run: the last event."""
        self._close(RunEnded(self.next_seq(), self.at(), status, reason))

    def suspend_run(self, status: Status, reason: str) -> None:
        """Record that the run is suspended: the last event until it is resumed."""
        self._close(RunSuspended(self.next_seq(), self.at(), status, reason))

    def _close(self, event: RunEnded | RunSuspended) -> None:
        self.emit(event)
        self.ended_at = self.zero + event.at  # nothing is recorded from here on: see `_take`
        self.deliver()
        for observer in self._observers:
            observer.close()


_KEPT_OUT = Unavailable("the policy keeps it out of the record")
_OBJECTS = Unavailable(f"{NOT_RECORDED}among what is shown")
_TOKEN = f'"{OBJECT_KEY}":'.encode()


def for_record(event: Event, graph: LiveGraph, tools: Collection[str]) -> Event:
    """Return *event* as it may be recorded: without the outputs that the policy keeps out of the record.

    Args:
        event: The event; it has been applied to the graph.
        graph: The state.
        tools: The tools whose outputs are kept out.
    """
    match event:
        case AttemptEnded() | Reviewed() if _gives(graph.nodes[event.step], tools):
            return replace(event, outcome=replace(event.outcome, value=_hidden(event.outcome.value)))
        case StepSettled() if _gives(graph.nodes[event.step], tools):
            return replace(event, value=_hidden(event.value))
        case QuestionAsked(question=question) if _shows(graph, question.step, tools):
            return replace(event, question=replace(question, arguments=_hidden(question.arguments)))
        case QuestionAnswered(answer=answer) if answer and event.step and _gives(graph.nodes[event.step], tools):
            return replace(event, answer=replace(answer, value=None), hides_value=answer.value is not None)
        case _:
            return event


def without_objects(event: Event) -> Event:
    """Return *event* in its recordable form, with type names for objects in memory."""
    match event:
        case AttemptEnded() | Reviewed() if type(event.outcome.value) is HeldObjects:
            return replace(event, outcome=replace(event.outcome, value=value_for_record(event.outcome.value)))
        case QuestionAsked(question=question) if _has_token(question.arguments):
            # After a crash there are other objects, and the person is asked again.
            return replace(event, question=replace(question, arguments=_OBJECTS))
        case StepSettled() if type(event.value) is HeldObjects:
            return replace(event, value=value_for_record(event.value))
        case StepExpanded():
            items = tuple(map(value_for_record, event.items))
            held = [index for index, item in enumerate(items) if type(item) is Unavailable]
            shown = tuple(None if type(item) is Unavailable else item for item in items)
            return replace(event, items=shown, hidden=(*event.hidden, *held))
        case _:
            return event


def _has_token(arguments: Stored) -> bool:
    return type(arguments) is bytes and _TOKEN in arguments


def _hidden(value: Stored) -> Stored:
    return None if value is None else _KEPT_OUT


def _gives(node: Node, tools: Collection[str]) -> bool:
    """Whether the output of a step is kept out."""
    return node.plan.tool.name in tools or (node.plan.fallback is not None and node.plan.fallback.name in tools)


def _shows(graph: LiveGraph, step: str, tools: Collection[str]) -> bool:
    """Whether a question shows a value that is kept out: arguments or output of a step, or the answer of the run."""
    if not step:
        return any(_gives(node, tools) for node in graph.nodes.values())
    node = graph.nodes[step]
    return _gives(node, tools) or any(_gives(graph.nodes[id_], tools) for id_ in node.plan.value_sources)


class Recorder:
    """Writes the events of one run to its run log.

    Args:
        run_log: The run log of the run.
        graph: The state that the events have changed.
        up: Is told when an event cannot be written, because it is not JSON, or because the event before it is missing.
        write: Returns the text of the record of an event.

    Attributes:
        run_log: The run log of the run.
    """

    def __init__(
        self,
        run_log: RunLog,
        graph: LiveGraph,
        up: RunCallbacks,
        write: Callable[[Event], bytes],
    ) -> None:
        self._graph = graph
        self._unrecorded = frozenset(graph.plan.policy.unrecorded)
        self._has_objects = graph.has_objects
        self._is_over = False
        self._last: int | None = None
        self.run_log = run_log
        self._up = up
        self.flush: Callable[[], None] = run_log.flush
        self._append = run_log.append
        self._text_of = write

    def keep(self, event: Event) -> None:
        """Write *event* to the run log; its number is the number of its record."""
        if self._is_over:
            return  # a record with a gap would be damaged
        if self._last is not None and event.seq != self._last + 1:
            self._give_up(f"a change before {type(event).__name__} {event.seq} was cut off by an error")
            return
        self._last = event.seq
        if self._unrecorded:
            event = for_record(event, self._graph, self._unrecorded)
        if self._has_objects:
            event = without_objects(event)
        try:
            text = self._text_of(event)
        except ValueRefused as error:
            self._give_up(f"{type(event).__name__} {event.seq} cannot be written: {error}")
        else:
            self._append(text)

    def _give_up(self, reason: str) -> None:
        self._is_over = True
        self._up.failed(JournalFailed(reason))


class JournalWatch:
    """Ends one run when its journal has failed.

    Args:
        record: Delivers the events of that end.
        up: Ends the run, and reports an event that cannot be written.

    Attributes:
        failure: Why nothing can be written any more; `None` as long as all is well.
    """

    def __init__(self, record: EventLog, up: RunCallbacks) -> None:
        self.failure: JournalError | None = None
        self._record = record
        self._up = up
        self._news = anyio.Event()
        up.failed = self._note

    def open(self, tasks: TaskGroup, run_log: RunLog) -> None:
        """Begin to watch *run_log*, which outlives the run."""
        run_log.on_failure = weakly(self._note)
        tasks.start_soon(self._work, name="dagrun journal")

    def close(self) -> None:
        """Stop watching: the run has ended. A failure is still kept in *failure*."""
        self._news.set()

    def _note(self, error: JournalError) -> None:
        """Store the failure. This may be the middle of a change, or a callback in which no task may start."""
        self.failure = self.failure or error  # at once: nothing more may be acknowledged
        self._news.set()

    async def _work(self) -> None:
        await self._news.wait()
        if self.failure is not None:
            self._up.stop(Status.FAILED, str(self.failure))
            self._record.deliver()


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


DEFAULT_BUFFER: Final = 10_000
_LOG: Final = logging.getLogger("dagrun.observers")


class Observer(Protocol):
    """Takes the events of a run, in order, after their changes are complete."""

    def take(self, batch: Sequence[Event]) -> None:
        """Take some events; must neither wait nor raise."""

    def close(self) -> None:
        """Note that no more events will come."""


class Subscription:
    """The events of a run for one observer, an async iterator.

    An observer that falls behind by more than *buffer* events loses the oldest of them, and gets a `Gap` in their
    place.
    """

    def __init__(self, buffer: int = DEFAULT_BUFFER) -> None:
        self._events: deque[Event] = deque()
        self._buffer = buffer
        self._missed = 0
        self._news: anyio.Event | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<Subscription: {len(self._events)} events not read{', no more to come' * self._is_closed}>"

    def take(self, batch: Sequence[Event]) -> None:
        """Add some events; never wait."""
        self._events.extend(batch)
        while len(self._events) > self._buffer:
            self._events.popleft()
            self._missed += 1
        self._wake()

    def close(self) -> None:
        """Note that no more events will come."""
        self._is_closed = True
        self._wake()

    def _wake(self) -> None:
        if self._news is not None:
            self._news.set()
            self._news = None

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if self._is_closed:
                raise StopAsyncIteration
            if self._news is None:  # several tasks may share one subscription: all of them must wake
                self._news = anyio.Event()
            await self._news.wait()
        if self._missed:
            missed, self._missed = self._missed, 0
            first = self._events[0]
            return Gap(first.seq - 1, first.at, missed)
        event = self._events.popleft()
        self._is_closed = self._is_closed or isinstance(event, RunEnded)
        return event


class Callback:
    """Calls a function with each event. A function that raises is not called again."""

    def __init__(self, function: Callable[[Event], object]) -> None:
        self._function: Callable[[Event], object] | None = function

    def take(self, batch: Sequence[Event]) -> None:
        """Call the function for each event."""
        try:
            for event in batch:
                if self._function is not None:
                    self._function(event)
        except Exception:  # noqa: BLE001  (an observer must not break the run that it watches)
            _LOG.exception("on_event raised, and is no longer called")
            self._function = None

    def close(self) -> None:
        """Do nothing: the function has been called with the last event."""
