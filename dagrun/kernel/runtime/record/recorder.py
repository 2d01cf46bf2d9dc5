"""Writing a run to its journal, and ending the run when that fails."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

import anyio
from anyio.abc import TaskGroup

from dagrun.errors import JournalError, JournalFailed, ValueRefused
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.contracts.held_objects import NOT_RECORDED, OBJECT_KEY, HeldObjects
from dagrun.kernel.model.event import (
    AttemptEnded,
    Event,
    QuestionAnswered,
    QuestionAsked,
    Reviewed,
    StepExpanded,
    StepSettled,
)
from dagrun.kernel.model.journal import RunLog
from dagrun.kernel.model.outcome import Status
from dagrun.kernel.model.value import Stored, Unavailable
from dagrun.kernel.model.value import for_record as value_for_record
from dagrun.kernel.runtime.record.record import Record
from dagrun.kernel.runtime.run_callbacks import RunCallbacks, weakly

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
            # After a crash there are other objects, and the person is asked anew.
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

    def __init__(self, record: Record, up: RunCallbacks) -> None:
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
