"""Ways to lose a doubt, one each: the rig of the doubts must find every one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from dagrun import Answer, Effect, Question, State, Status
from dagrun.events import StepSettled
from dagrun.kernel.decide import classify, recovery
from dagrun.kernel.graph import changes, fold
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node
from dagrun.kernel.graph.patches import edits
from dagrun.kernel.model.outcome import Decision, Failure, Outcome
from dagrun.kernel.runtime import live_attempt as slots
from dagrun.kernel.runtime.people.human_input import Replies
from dagrun.kernel.runtime.record.record import Record
from mutants import retries_in_doubt
from splice_mutants import nothing
from turn_mutants import ToleratesDoubts

_classify, _status_of, _settled_state = classify.classify, recovery.status_of, recovery.settled_state
_interrupted_outcome = slots.interrupted_outcome


def no_doubt(outcome: Outcome, situation: recovery.Situation) -> bool:
    """A default, a fallback or a skip follows a call in doubt like any other failure."""
    return False


def last_counts(outcome: Outcome, decision: Decision, *, in_doubt: bool = False) -> State:
    """What a later attempt vouches for settles the doubt about an earlier one."""
    return _settled_state(outcome, decision)


def stopped_is_stopped(effect: Effect, asked: State, *, is_known: bool, still_running: bool) -> State:
    """A call that was stopped has had no effect."""
    return asked


def stop_outranks(tally: recovery.Tally, stopped: tuple[Status, str] | None = None) -> tuple[Status, str]:
    """A run that was cancelled is cancelled, whatever its steps may have done."""
    return stopped or _status_of(tally)


def all_is_well(node: Node) -> bool:
    """A substitute that has succeeded has made the call, by a default or however."""
    return True


def any_substitute(node: Node, before: Node) -> bool:
    """Whatever succeeds in the place of a step settles the doubt about it."""
    return True


def none_left(graph: LiveGraph) -> list[Node]:
    """No run has a doubt that somebody could settle."""
    return []


def in_the_plan(graph: LiveGraph) -> list[Node]:
    """A retry forgets what has left the plan."""
    return [node for node in graph.nodes.values() if node.state is State.UNKNOWN and not node.is_gone]


def vouches(*args: Any) -> Failure:
    """Whatever a tool raises, nothing has happened."""
    return replace(_classify(*args), nothing_happened=True)


def vouched_for(outcome: Outcome, effect: Effect) -> bool:
    """After any failure another attempt or another tool is safe."""
    return True


def calls_again(graph: LiveGraph, node: Node) -> None:
    """A step that is opened again is called again."""
    if node.children is not None:
        node.state = State.RUNNING
        return
    node.state = State.READY
    graph.frontier.push(node)


class SettlesAsTold(Record):
    """A step that was about to repeat a call ends as whoever ends it says."""

    def settle(self, node: Node, state: State, reason: str, **facts: Any) -> None:
        self.emit(StepSettled(self.next_seq(), self.at(), node.id, state, reason, **facts), node)
        self.after_end(node)


class TakesSilenceForNo(Replies):
    """Who does not answer has said that nothing has happened."""

    def _settle_effect(self, question: Question, answer: Answer | None, node: Node, reason: str) -> None:
        super()._settle_effect(question, answer or Answer("did_not"), node, reason)


def nothing_was_cut_off(*args: Any) -> Outcome:
    """What was called when the process ended has had no effect."""
    outcome = _interrupted_outcome(*args)
    failed = replace(outcome.failure, nothing_happened=True) if outcome.failure is not None else None
    return replace(outcome, state=State.FAILED, failure=failed)


DOUBT_MUTANTS: Final[Mapping[str, Mapping[Any, Any]]] = {
    "a doubt is forgotten with its step": {Record: ToleratesDoubts},
    "a default hides a doubt": {recovery._is_in_doubt: no_doubt},
    "a later attempt settles a doubt": {recovery.settled_state: last_counts},
    "a stopped call has had no effect": {recovery.state_after_stop: stopped_is_stopped},
    "a cancelled run is in no doubt": {recovery.status_of: stop_outranks},
    "another call may follow one in doubt": {edits.check_frozen_call: nothing, fold._has_repeated: any_substitute},
    "a substitute that has not returned settles a doubt": {fold._has_returned: all_is_well},
    "any substitute settles a doubt": {fold._has_repeated: any_substitute},
    "a run has no doubts": {fold.doubtful: none_left},
    "a retry forgets what has left the plan": {fold.doubtful: in_the_plan},
    "a call in doubt is repeated": {recovery.decide: retries_in_doubt},
    "every failure is vouched for": {classify.classify: vouches},
    "a fallback follows a call in doubt": {recovery.surely_nothing_happened: vouched_for},
    "a step that is open again is called again": {changes._open: calls_again},
    "a doubt is settled as told": {Record: SettlesAsTold},
    "silence is a no": {Replies: TakesSilenceForNo},
    "a call that was cut off has had no effect": {slots.interrupted_outcome: nothing_was_cut_off},
}
