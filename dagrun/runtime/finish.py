"""The end of a run: when everything has settled, or earlier because somebody or something wants it to end."""

from __future__ import annotations

from collections.abc import Callable, Collection

from dagrun.decide.status import status_of
from dagrun.decide.views import shape_of
from dagrun.errors import ValueRefused
from dagrun.graph.live import LiveGraph
from dagrun.model.outcome import State, Status
from dagrun.model.policy import Policy
from dagrun.model.value import encode, to_json
from dagrun.runtime.answer import answer_of
from dagrun.runtime.people import People
from dagrun.runtime.record import Record


class Finish:
    """Ends one run.

    Args:
        graph: The state; read here, changed by the record.
        record: Makes the changes.
        people: Who may have to let the answer out.
        policy: Whether they have to.
        stop_running: Tells every running step to stop, with a reason, and gives their ids.
        on_stop: Called once, if the run is ended early.
        on_more: Called when all has ended and the planner wants to be asked again; says whether it is.
        on_end: Called once, when every step has settled.

    Attributes:
        stopped: How and why the run was ended early, if it was.
        has_ended: Whether the end of the run is recorded.
    """

    def __init__(
        self,
        *,
        graph: LiveGraph,
        record: Record,
        people: People,
        policy: Policy,
        stop_running: Callable[[str], Collection[str]],
        on_stop: Callable[[], None],
        on_more: Callable[[], bool],
        on_end: Callable[[], None],
    ) -> None:
        self.stopped: tuple[Status, str] | None = None
        self.has_ended = False
        self._graph = graph
        self._record = record
        self._people = people
        self._policy = policy
        self._stop_running = stop_running
        self._on_stop = on_stop
        self._on_more = on_more
        self._on_end = on_end
        self._asked_about: bytes | None = None

    def stop(self, status: Status, reason: str) -> None:
        """End the run early: cancel what runs, settle what has not started. The first reason counts."""
        if self.stopped is not None or self.has_ended:
            return
        self.stopped = (status, reason)
        self._on_stop()
        running = self._stop_running(reason)
        graph, record = self._graph, self._record
        for node in list(graph.nodes.values()):
            if not node.state.is_settled and node.id not in running and node.children is None:
                record.settle(node, State.CANCELLED, reason)
        if graph.is_drafting:
            record.end_draft("stopped", reason)
        if graph.triggers:
            record.end_replan(graph.asking, "stopped", reason, tuple(graph.triggers))
        for question in list(graph.questions.values()):
            if not question.step or graph.nodes[question.step].state.is_settled:
                record.answer(question, None, reason=reason)
        self.finish_if_settled()

    def out_of_time(self) -> None:
        """End the run, because its time is over."""
        steps = list(self._graph.planned())
        left = sum(1 for node in steps if not node.state.is_settled)
        limit = self._policy.max_seconds
        self.stop(
            Status.OVER_BUDGET, f"ceiling of {limit:g} seconds is spent: {left} of {len(steps)} steps had not ended"
        )

    def finish_if_settled(self) -> None:
        """End the run, if every step has settled and nothing is left to be decided."""
        graph = self._graph
        if graph.unsettled or graph.triggers or graph.questions or self.has_ended:
            return
        if self.stopped is None and (graph.is_drafting or (graph.wants_more and self._on_more())):
            return
        count = sum(1 for _ in graph.planned()) if graph.revisions else len(graph.plan.steps)
        status, reason = status_of(self._record.unsuccessful(), count, self.stopped)
        if self.stopped is None:
            if status is Status.SUCCEEDED and self._policy.approve_output:
                self._ask_for_output()
                if graph.questions:
                    return
            if graph.withheld is not None:
                status, reason = graph.withheld
            elif graph.why_unchanged and status in (Status.FAILED, Status.UNKNOWN):
                reason = f"{reason}; the plan was not changed: {graph.why_unchanged}"
        self.has_ended = True
        self._record.end_run(status, reason)
        self._on_end()

    def _ask_for_output(self) -> None:
        """Ask whether the answer may be handed out, unless that was asked of this very answer."""
        shown = _shown(self._graph)
        if shown != self._asked_about:  # while a person looks at the answer, a splice may make it another one
            self._asked_about = shown
            self._people.ask_for_output(shown)


def _shown(graph: LiveGraph) -> bytes:
    """What a person sees of the answer of the run: all of it, or the shape of one that is too large to show."""
    try:
        return to_json(encode(answer_of(graph)))
    except ValueRefused:
        shapes = {node.id: shape_of(node.value) for node in graph.sinks()}
        return to_json(encode({"too large to show": shapes}))
