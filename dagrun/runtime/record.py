"""The record of a run: the one owner of its state, which changes in synchronous methods of this class only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dagrun.decide.recovery import Situation, decide
from dagrun.decide.status import Ended
from dagrun.errors import ValueRefused
from dagrun.graph.live import LiveGraph, Node
from dagrun.model.event import Event, Progress, RunEnded, RunStarted, StepExpanded, StepSettled
from dagrun.model.outcome import ErrorKind, Failure, Outcome, Recovery, State, Status
from dagrun.model.plan import RetryRule
from dagrun.model.value import Stored, encode, join
from dagrun.runtime.observers import Observer

_SUCCEEDED: Final = State.SUCCEEDED
_NO_RETRY: Final = RetryRule(max_attempts=1)


class Record:
    """Makes every change of a run an event, and does at once what follows from it.

    Args:
        graph: The state; nobody else changes it.
        now: The clock of the loop.
        stop: Called with a reason when a step whose on_failure is ``stop`` has failed.
    """

    def __init__(self, graph: LiveGraph, now: Callable[[], float], stop: Callable[[str], None]) -> None:
        self.graph = graph
        self.zero = now()
        self.ended_at: float | None = None
        self._now = now
        self._stop = stop
        self._seq = 0
        self._first: RunStarted | None = None
        self._observers: list[Observer] = []
        self._pending: list[Event] = []
        self._is_delivering = False

    # Events -----------------------------------------------------------------------------------------------

    def next_seq(self) -> int:
        """The number of the next event; to be used at once."""
        self._seq += 1
        return self._seq

    def at(self) -> float:
        """Seconds since the start of the run."""
        return self._now() - self.zero

    def emit(self, event: Event) -> None:
        """Apply *event* to the state, and keep it for the observers."""
        self.graph.apply(event)
        if self._observers:
            self._pending.append(event)

    def deliver(self) -> None:
        """Show the observers what has happened: called at the end of a change, never in the middle of one."""
        # An observer may change the run again, by cancelling a step, say; what comes of that is delivered in turn.
        while self._pending and not self._is_delivering:
            batch, self._pending = self._pending, []
            self._is_delivering = True
            try:
                for observer in self._observers:
                    observer.take(batch)
            finally:
                self._is_delivering = False

    def watch(self, observer: Observer) -> None:
        """Show every event from now on to *observer*; and the very first one, if nothing else has happened yet."""
        if self._first is not None and self._seq == self._first.seq:
            observer.take((self._first,))
        if self.ended_at is None:
            self.deliver()
            self._observers.append(observer)
        else:
            observer.close()

    def begin_run(self, event: RunStarted) -> None:
        """Record the start of the run: the first event. Who starts a run can only subscribe after it."""
        self._first = event
        self.emit(event)

    def progress(self, node: Node, fraction: float | None, message: str) -> None:
        """Show the observers how far a step is; no state changes."""
        if self._observers:
            self._pending.append(Progress(self.next_seq(), self.at(), node.id, fraction, message))
            self.deliver()

    def end_run(self, status: Status, reason: str) -> None:
        """Record the end of the run: the last event."""
        event = RunEnded(self.next_seq(), self.at(), status, reason)
        self.ended_at = self.zero + event.at
        self.emit(event)
        self.deliver()
        for observer in self._observers:
            observer.close()

    def unsuccessful(self) -> list[Ended]:
        """The steps of the plan that have ended otherwise than well."""
        return [
            Ended(node.id, node.state, node.reason, node.is_tolerated, node.plan.step.optional)
            for node in self.graph.planned()
            if node.state is not _SUCCEEDED
        ]

    # Steps ------------------------------------------------------------------------------------------------

    def settle(self, node: Node, state: State, reason: str, **facts: Any) -> None:
        """End a step that is not running; *facts* are further fields of the event."""
        self.emit(StepSettled(self.next_seq(), self.at(), node.id, state, reason, **facts))
        self.after_end(node)

    def fail_unstarted(self, node: Node, failure: Failure, state: State = State.FAILED) -> None:
        """End a step that failed before anything was called, as its on_failure says; else in *state*."""
        outcome = Outcome(state, None, failure)
        on_failure = node.plan.step.on_failure
        situation = Situation(effect=node.plan.tool.effect, attempt=1, rule=_NO_RETRY, on_failure=on_failure)
        recovery = decide(outcome, situation).recovery
        if recovery is Recovery.DEFAULT:
            value = encode(node.plan.step.default)
            self.settle(node, _SUCCEEDED, failure.message, value=value, is_default=True, failure=failure)
        else:
            tolerated = recovery is Recovery.SKIP
            self.settle(node, state, failure.message, is_tolerated=tolerated, failure=failure)
        if recovery is Recovery.STOP:
            self._stop(f"{node.id} failed, and its on_failure is stop")

    def after_end(self, node: Node) -> None:
        """Skip what can no longer run, and settle the for_each that *node* was the last element of."""
        if node.state is not _SUCCEEDED:
            self._skip_blocked(node)
        parent = node.parent
        if parent is not None and not parent.missing and not parent.state.is_settled:
            self._join_elements(parent)

    def _skip_blocked(self, cause: Node) -> None:
        behind = [cause]
        while behind:
            before = behind.pop()
            for node in before.successors:
                if node.state is not State.BLOCKED:
                    continue
                reason = f"{cause.id} {cause.state}" + ("" if before is cause else f", so {before.id} was skipped")
                facts = (node.id, State.SKIPPED, reason, cause.id, before.is_tolerated)
                self.emit(StepSettled(self.next_seq(), self.at(), *facts))
                behind.append(node)

    # for_each ---------------------------------------------------------------------------------------------

    def expand(self, node: Node, items: list[Stored]) -> None:
        """Give a for_each its elements."""
        self.emit(StepExpanded(self.next_seq(), self.at(), node.id, tuple(items)))
        if not items:
            self._join_elements(node)

    def _join_elements(self, parent: Node) -> None:
        """End a for_each whose elements have all settled."""
        children = parent.children or []
        bad = [child for child in children if child.state is not _SUCCEEDED]
        worst = next((child for child in bad if not child.is_tolerated), None)
        errors = tuple((child.index, f"{child.state}: {child.reason}") for child in bad)
        if worst is None:
            self._join_values(parent, children, errors)
            return
        state = State.UNKNOWN if any(child.state is State.UNKNOWN for child in bad) else worst.state
        count = f"{len(bad)} of {len(children)} elements did not succeed"
        reason = f"{count}; [{worst.index}] {worst.state}: {worst.reason}"
        self.settle(parent, state, reason, cause=worst.id, errors=errors)

    def _join_values(self, parent: Node, children: list[Node], errors: tuple[tuple[int, str], ...]) -> None:
        try:
            value = join([child.value if child.state is _SUCCEEDED else None for child in children])
        except ValueRefused as error:
            self.fail_unstarted(parent, Failure(ErrorKind.BAD_OUTPUT, str(error)))
            return
        reason = f"{len(errors)} of {len(children)} elements were skipped" if errors else ""
        self.settle(parent, _SUCCEEDED, reason, value=value, errors=errors)
