"""Ways to go on with a run that lose something, or do something twice; each must be noticed by the crash rig."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from dagrun import Question, Run, State
from dagrun.kernel.decide.questions import Questions
from dagrun.kernel.graph.fold import restore
from dagrun.kernel.graph.ledger import Ledger
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.outcome import Failure, Outcome
from dagrun.kernel.model.tool import AnyTool
from dagrun.kernel.runtime.live_attempt import LiveAttempt, interrupted_outcome
from dagrun.kernel.runtime.people.human_input import HumanInput
from dagrun.kernel.runtime.resume import Resumption
from dagrun.kernel.runtime.steps.attempt import AttemptRunner, idempotency_key
from dagrun.kernel.runtime.steps.run_completion import RunCompletion


class WritesNoStart(AttemptRunner):
    """A tool is entered before the start of its call is durable."""

    def must_be_written(self, tool: AnyTool) -> bool:
        return False


class KeyPerAttempt(AttemptRunner):
    """Each attempt has a key of its own."""

    def key_of(self, node: Node, tool: str) -> str:
        return idempotency_key(self._root, f"{node.root} {len(node.attempts)}", tool, node.generation)


def repeats_effects(live: LiveAttempt, stopped: str = "") -> Outcome:
    """What was in flight is taken for something that surely has not happened."""
    outcome = interrupted_outcome(live, stopped)
    assert isinstance(outcome.failure, Failure)
    failure = replace(outcome.failure, nothing_happened=True, is_transient=not stopped)
    return replace(outcome, state=outcome.state if stopped else State.FAILED, failure=failure)


class ForgetsTriggers(Resumption):
    """That the planner was to be asked is not noticed, if that is not on record yet."""

    def _request_replan(self, node: Node) -> None:
        pass


class ForgetsPlanner(Resumption):
    """Nobody asks the planner again."""

    def _go_on_planning(self) -> None:
        pass


def forgets_reservations(ledger: Ledger, graph: LiveGraph) -> None:
    """What was in flight has cost nothing."""
    kept = {node: (node.earlier, node.latest) for node in graph.nodes.values()}
    for node in kept:
        ended = [attempt for attempt in node.attempts if attempt.outcome is not None]
        node.earlier, node.latest = tuple(ended[:-1]), ended[-1] if ended else None
    restore(ledger, graph)
    for node, (earlier, latest) in kept.items():
        node.earlier, node.latest = earlier, latest


class CallsAgain(Resumption):
    """What the critics were looking at is called once more."""

    def resume(self) -> None:
        for node in self._graph.nodes.values():
            if node.is_under_review:
                node.attempts[-1].outcome = node.attempts[-1].decision = None
        super().resume()


class RemembersReady(Resumption):
    """Ready is what was pushed while it ran, and not what the record says."""

    def _line_up(self, ready: list[Node]) -> None:
        super()._line_up([node for node in ready if not node.attempts])


class ForgetsQuestions(HumanInput):
    """An open question is nobody's any more."""

    _is_new = False

    def _put(self, question: Question) -> None:
        self._is_new = True
        super()._put(question)
        self._is_new = False

    def request_answer(self, question: Question) -> None:
        if self._is_new:
            super().request_answer(question)


class ForgetsStops(Resumption):
    """That the run was being ended is forgotten."""

    def _end_run(self, reason: str) -> None:
        self._graph.stopping = None
        self.resume()


class ForgetsBlocked(Resumption):
    """What is behind a failure is not skipped, if the crash came between."""

    def _follow_end(self, node: Node) -> None:
        pass


class LeavesAttemptsOpen(Resumption):
    """Calls that were in flight have no end."""

    def resume(self) -> None:
        nodes = [node for node in self._graph.nodes.values() if node.is_in_flight and node.tool.effect.is_free]
        for node in nodes:
            node.state = State.READY
            before = node.earlier
            node.earlier, node.latest = before[:-1], before[-1] if before else None
        super().resume()


class AcknowledgesEarly(Run):
    """What is told as done may still be lost."""

    async def _durable(self) -> None:
        pass


class NeverWaits(RunCompletion):
    """A run that only people could help waits for ever."""

    @property
    def _waits_for_people(self) -> bool:
        return False


class AsksTheSame(Questions):
    """The next question about a step is the one before: an old answer is good for it."""

    def _id(self, kind: Any, text: str, node: Node | None, valid_for: str, place: str) -> str:
        if node is None or node.extra is None:
            return super()._id(kind, text, node, valid_for, place)
        asked, node.extra.asked = node.extra.asked, 0
        try:
            return super()._id(kind, text, node, valid_for, place)
        finally:
            node.extra.asked = asked


# Three crashes in a row, each at the worst instant, are too rare for chance: a test of its own looks for these.
RARE: Final[Mapping[str, Mapping[Any, Any]]] = {"an answer is good for the next question": {Questions: AsksTheSame}}

MUTANTS: Final[Mapping[str, Mapping[Any, Any]]] = {
    "no start record": {AttemptRunner: WritesNoStart},
    "a key per attempt": {AttemptRunner: KeyPerAttempt},
    "an effect is repeated": {interrupted_outcome: repeats_effects},
    "a trigger is forgotten": {Resumption: ForgetsTriggers},
    "the planner is forgotten": {Resumption: ForgetsPlanner},
    "open reservations are not counted": {restore: forgets_reservations},
    "a tool is called again for its critics": {Resumption: CallsAgain},
    "ready is what memory says": {Resumption: RemembersReady},
    "a question is forgotten": {HumanInput: ForgetsQuestions},
    "that it was being ended is forgotten": {Resumption: ForgetsStops},
    "what is behind a failure is forgotten": {Resumption: ForgetsBlocked},
    "attempts are left open": {Resumption: LeavesAttemptsOpen},
    "acknowledged before it is durable": {Run: AcknowledgesEarly},
    "nobody suspends": {RunCompletion: NeverWaits},
}
