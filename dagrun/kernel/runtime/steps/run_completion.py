"""The end of a run: when every step has settled; or earlier, because it is stopped or suspended."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from dagrun.errors import ValueRefused
from dagrun.kernel.decide.questions import only_waiting
from dagrun.kernel.decide.recovery import status_of
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.model.outcome import State, Status
from dagrun.kernel.model.value import encode, store_text, to_json
from dagrun.kernel.runtime.deadlines import Timers
from dagrun.kernel.runtime.result import answer_of
from dagrun.kernel.runtime.run_parts import RunParts

if TYPE_CHECKING:
    from dagrun.kernel.graph.confidence import Said

_INSTANT: Final = 1e-6  # seconds: less than that is no time left, as clocks are not exact


class RunCompletion:
    """Ends one run.

    Args:
        parts: What the parts of the run share.

    Attributes:
        may_wait: Whether the run may be suspended when only answers of people are missing: it has a journal.
        suspending: How and why the run is being suspended, if it is.
        is_closing: Whether nothing starts any more: it is being suspended, or ended early.
        has_ended: Whether the end of the run, or that it is suspended, is recorded.
    """

    def __init__(self, parts: RunParts) -> None:
        self.suspending: tuple[Status, str] | None = None
        self.is_closing = False  # a flag, as every step asks
        self.has_ended = False
        self.may_wait = parts.run_log is not None
        self.alarms: Timers
        self._held: list[tuple[float, Callable[[], None]]] = []  # alarms that wait until people have answered
        self._parts = parts
        self._up = parts.up
        self._graph = parts.graph
        self._record = parts.record
        self._people = parts.people
        self._policy = parts.policy
        self._accounts = parts.accounts

    def stop(self, status: Status, reason: str) -> None:
        """End the run early: cancel running steps, settle steps that have not started. The first reason counts."""
        if self._graph.stopping is not None or self.has_ended:
            return
        self.is_closing = True
        self._record.start_stopping(status, reason)
        self.settle_rest(reason)

    def settle_rest(self, reason: str) -> None:
        """Settle all steps that have not started, and cancel the others: the run ends early."""
        self.is_closing = True
        self._up.on_stop()
        self._record.backlog.take(self._cancelling(self._up.stop_running(reason), reason))
        self.finish_if_settled()

    def at_once(self) -> None:
        """Settle all steps that are left, and from now on everything at once: soon there is no task to do it."""
        self._record.backlog.close()
        if self._graph.stopping is not None:
            self.finish_if_settled()

    def _cancelling(self, running: Collection[str], reason: str) -> Iterator[None]:
        """Cancel all steps that have not started, and close what is open; yield after each step.

        Args:
            running: The ids of the steps that run, and end by themselves.
            reason: Why the run is being ended.
        """
        graph, record, dropped = self._graph, self._record, []
        for node in list(graph.nodes.values()):
            if node.state.is_settled or node.id in running or node.children is not None:
                pass
            elif node.is_in_flight or node.is_under_review:
                dropped.append(node)
            else:
                record.settle(node, State.CANCELLED, reason)
            yield
        for node in dropped:
            self._up.end_interrupted(node, reason)
        if graph.is_drafting:
            record.end_draft("stopped", reason)
        record.end_replans("stopped", reason)
        for question in list(graph.questions.values()):
            if not question.step or graph.nodes[question.step].state.is_settled:
                record.answer(question, None, reason=reason)

    def suspend(self, status: Status, reason: str) -> None:
        """Start no more steps; when nothing runs, the run is suspended. The first reason counts."""
        if not self.is_closing and not self.has_ended:
            self.suspending, self.is_closing = (status, reason), True
            self._up.on_stop()

    def suspend_if_idle(self, running: Collection[str]) -> None:
        """Suspend the run, if nothing runs, and nothing can start now."""
        waiting = self._accounts.waiting + len(self._people.asking)
        if len(running) > waiting or self.has_ended or self._graph.stopping is not None:
            return
        if self._record.backlog.is_pending:
            return
        if self.suspending is None and self._waits_for_people:
            held = list(dict.fromkeys(question.step or question.text for question in self._graph.questions.values()))
            shown = ", ".join(held[:10]) + (f" and {len(held) - 10} more" if len(held) > 10 else "")
            self.is_closing = True
            self.suspending = (Status.WAITING, f"nobody is there to answer about {shown}")
            self._up.on_stop()
        if self.suspending is not None and not running:
            self.has_ended = True
            self._record.suspend_run(*self.suspending)
            self._up.on_end()

    @property
    def _waits_for_people(self) -> bool:
        """Whether the run waits for nothing but answers to questions, and no answer comes now."""
        graph = self._graph
        if not (self.may_wait and graph.questions) or graph.is_drafting or not self._people.is_alone:
            return False
        if graph.triggers:
            return False
        # A ready step that stands in line to be asked about waits for people, too. A step that stands in line for room
        # under a ceiling waits for the room that answers will free.
        ready = sum(1 for node in graph.nodes.values() if node.state is State.READY)
        is_judged = any(node.is_under_review for node in graph.nodes.values())
        return not is_judged and ready <= self._people.in_line + self._accounts.in_line

    def ring_after(self, seconds: float, ring: Callable[[], None]) -> None:
        """Call *ring* when the run has taken *seconds*, without the time in which it only waited for people."""
        at = self._record.at()
        waited, is_waiting = only_waiting(self._graph, at)
        left = seconds - (at - waited)
        if left <= _INSTANT:
            ring()
        elif is_waiting:
            self._held.append((seconds, ring))
        else:
            self.alarms.at(self._parts.now() + left, partial(self.ring_after, seconds, ring))

    def count_on(self) -> None:
        """Resume the time count, if it was stopped, and the run does not only wait for people now."""
        held, self._held = self._held, []
        for seconds, ring in held:
            self.ring_after(seconds, ring)

    def out_of_time(self) -> None:
        """End the run, because its time is over."""
        graph, limit = self._graph, self._policy.max_seconds
        count, left = len(graph.plan.steps), graph.unsettled
        if len(graph.nodes) != count:  # elements of a for_each do not count, nor do steps that a splice took out
            steps = list(graph.planned())
            count, left = len(steps), sum(1 for node in steps if not node.state.is_settled)
        self.stop(Status.OVER_BUDGET, f"ceiling of {limit:g} seconds is spent: {left} of {count} steps had not ended")

    def finish_if_settled(self) -> None:
        """End the run, if every step has settled and nothing is left to be decided."""
        graph = self._graph
        if graph.unsettled or graph.triggers or graph.questions or self.has_ended or self._record.backlog.is_pending:
            return  # this is called again when all are settled
        if graph.stopping is None and (graph.is_drafting or (graph.wants_more and self._goes_on())):
            return
        status, reason = status_of(self._record.unsuccessful(), graph.stopping)
        if graph.stopping is None:
            if status is Status.SUCCEEDED and self._up.compose():
                return
            if status is Status.SUCCEEDED and (self._policy.approve_output or graph.has_confidence):
                self._ask_for_output()
                if graph.questions:
                    return
            if graph.withheld is not None:
                status, reason = graph.withheld
            elif graph.why_unchanged and status in (Status.FAILED, Status.UNKNOWN):
                reason = f"{reason}; the plan was not changed: {graph.why_unchanged}"
        self.has_ended = True
        self._record.end_run(status, reason)
        self._up.on_end()

    def _goes_on(self) -> bool:
        """Whether the planner is asked for more steps: now, or when a run that is being suspended is resumed."""
        return self.suspending is not None or self._up.ask_for_more()

    def _ask_for_output(self) -> None:
        """Ask whether the run may hand out its answer, unless that was asked about this very answer."""
        doubts: list[Said] = []
        did: list[str] = []
        if self._graph.has_confidence:
            from dagrun.kernel.graph.confidence import answer_confidences, transcript

            least = self._policy.min_confidence
            doubts = [said for said in answer_confidences(self._graph) if said.value < least]
            did = transcript(self._graph) if doubts else []
        if not doubts and not self._policy.approve_output:
            return
        shown = _shown(self._graph)
        # While a person looks at the answer, a splice may change it.
        if store_text(shown) != self._graph.shown_output:
            self._people.ask_for_output(shown, doubts, did)


def _shown(graph: LiveGraph) -> bytes:
    """Return the answer of the run for a person: all of it, or its shape if it is too large."""
    try:
        return to_json(encode(answer_of(graph)))
    except ValueRefused:
        from dagrun.kernel.decide.briefs import shape_of

        shapes = {node.id: shape_of(node.value) for node in graph.sinks()}
        return to_json(encode({"too large to show": shapes}))
