"""How attempts end: recovery decides, both are recorded, and what follows is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dagrun.decide.recovery import settled_state
from dagrun.errors import ValueRefused
from dagrun.graph.frontier import Frontier
from dagrun.graph.live import LiveGraph
from dagrun.graph.node import Node
from dagrun.model.event import Reviewed
from dagrun.model.outcome import PROCEED, Decision, Outcome, Recovery, State, TriggerKind
from dagrun.runtime.accounts import Accounts
from dagrun.runtime.alarms import Alarms
from dagrun.runtime.attempt import Attempts
from dagrun.runtime.finish import Finish
from dagrun.runtime.judging import Judge
from dagrun.runtime.learning import Learning
from dagrun.runtime.people import People
from dagrun.runtime.record import Record
from dagrun.runtime.slot import Rare, Slot, interrupted_outcome, stopped_outcome
from dagrun.runtime.upcalls import Upcalls

_READY: Final = State.READY
_SUCCEEDED: Final = State.SUCCEEDED

CANCELLED_AROUND: Final = "the code around the run was cancelled"


class Endings:
    """Ends the attempts of one run.

    Args:
        graph: The state; read here, changed by the record.
        record: Makes the changes.
        frontier: Gets slots back, and steps that are tried again.
        judge: Says what is done about an outcome.
        people: Who may have to answer.
        accounts: Is told what was used.
        finish: Whether the run is being ended or suspended.
        running: The running attempts, by step; those that end leave it.
        now: The clock of the loop.
        up: Is told when nothing may be left of the run, or a step is ready by itself.

    Attributes:
        alarms: Of the run.
        attempts: Of the run.
        learning: Is told how long calls took; `None` if nobody needs to know.
    """

    def __init__(
        self,
        *,
        graph: LiveGraph,
        record: Record,
        frontier: Frontier,
        judge: Judge,
        people: People,
        accounts: Accounts,
        finish: Finish,
        running: dict[str, Slot],
        now: Callable[[], float],
        up: Upcalls,
    ) -> None:
        self._graph = graph
        self._record = record
        self._frontier = frontier
        self._judge = judge
        self._people = people
        self._accounts = accounts
        self._finish = finish
        self._running = running
        self._now = now
        self._up = up
        self.learning: Learning | None = None
        self.alarms: Alarms
        self.attempts: Attempts

    def conclude(self, slot: Slot, outcome: Outcome | None) -> None:
        """Record the end of an attempt; *outcome* is none if it was cancelled."""
        if slot.is_done:
            return  # abandoned before; whatever comes now is too late
        asked = slot.asked
        if self._finish.suspending is not None and self._graph.stopping is None:
            if slot.leaves_no_end(outcome):
                self._drop(slot)
                return
            asked = None if slot.is_let_go else asked
        if asked is None and slot.deadline is not None and self._now() > slot.deadline:
            asked, slot.reason = State.TIMED_OUT, "it came back after its deadline"
        elif asked is None and outcome is None:
            asked, slot.reason = State.CANCELLED, CANCELLED_AROUND
        if asked is not None:
            outcome = stopped_outcome(slot, asked, outcome)
        assert outcome is not None
        self._end(slot, outcome)

    def _drop(self, slot: Slot) -> None:
        """Forget an attempt without a record of its end: the run is suspended, and sees to it when it goes on."""
        slot.is_done, slot.call = True, None
        del self._running[slot.node.id]
        self._end_second(slot.rare, is_recorded=False)
        if slot.rare is None or slot.rare.has_place:
            self._frontier.release(slot.node)
        self._finish.suspend_if_idle(self._running)

    def _end(self, slot: Slot, outcome: Outcome) -> None:
        """Let recovery decide about *outcome*, record both, and do what follows."""
        node = slot.node
        slot.is_done = True
        call, slot.call = slot.call, None  # it leads back to the slot: a circle at every step would need collecting
        del self._running[node.id]
        if outcome.state is _SUCCEEDED and not outcome.surprise:
            decision, state = PROCEED, _SUCCEEDED
        else:
            decision = self._judge.decide(slot, outcome)
            state = settled_state(outcome, decision, in_doubt=node.is_in_doubt)
        if slot.rare is None:
            self._record.end_attempt(node, state, outcome, decision)
            self._frontier.release(node)
        else:
            self._end_rare(slot, slot.rare, state, outcome, decision)
        if self.learning is not None and outcome.state is _SUCCEEDED:
            self.learning.note(slot)
        # A call may have won while the one beside it asks a person: what it asks is nobody's business any more.
        has_asked = slot.rare is not None and slot.rare.asking is not None
        if decision is not PROCEED or node.parent is not None or node.plan.pauses_after or has_asked:
            self._follow(node, outcome, decision, call.data if call is not None else b"")
        graph = self._graph
        is_idle = not self._running and (self._accounts.are_bound or graph.questions or self._finish.is_closing)
        if not graph.unsettled or is_idle:
            self._up.end_if_nothing_is_left()

    def _end_rare(self, slot: Slot, rare: Rare, state: State, outcome: Outcome, decision: Decision) -> None:
        """Record the end of an attempt that was reviewed, was reserved for, or has asked a person."""
        record, node = self._record, slot.node
        self._end_second(rare, is_recorded=True)
        if rare.verdicts is None:
            record.end_attempt(node, state, outcome, decision)
        else:
            facts = (node.id, len(node.attempts), state, rare.verdicts, outcome, decision)
            record.emit(Reviewed(record.next_seq(), record.at(), *facts))
        if rare.has_place:
            self._frontier.release(node)
        else:
            self._frontier.withdraw((node,))  # it may have stood in line for a place to go on
        self._accounts.settle(slot)

    @staticmethod
    def _end_second(rare: Rare | None, *, is_recorded: bool) -> None:
        """Let the call beside an attempt that ends know, if there is one."""
        if rare is not None and rare.second is not None and rare.second.on_first_end is not None:
            rare.second.on_first_end(is_recorded)

    def _follow(self, node: Node, outcome: Outcome, decision: Decision, call: bytes) -> None:
        """Do what was decided about an attempt that has been recorded."""
        record, recovery = self._record, decision.recovery
        if node.state is _READY:
            self.try_again(node, decision.delay)
            return
        if recovery is Recovery.ASK:
            self._people.hold_after(node, outcome)
            return
        if recovery is Recovery.REPLAN:
            record.request_replan(node, decision, outcome.failure, call)
        record.after_end(node)
        if node.state is _SUCCEEDED and node.pauses_after:
            self._people.hold_at_pause(node)
        record.follow(node, decision)

    def try_again(self, node: Node, delay: float) -> None:
        """Make a step ready once more, after *delay* seconds."""
        if delay <= 0:
            self._frontier.push(node)
            return
        self.alarms.at(self._now() + delay, lambda: self._ready_again(node))

    def _ready_again(self, node: Node) -> None:
        if node.state is _READY:
            self._frontier.push(node)
            self._up.nudge()

    # After a crash ----------------------------------------------------------------------------------------

    def end_interrupted(self, slot: Slot, stopped: str = "") -> None:
        """Record the end of an attempt that ended with the process that made it.

        Args:
            slot: Made for it anew.
            stopped: Why the run is being ended early, if it is; else what follows is left to the caller, as that may
                end the run, and must not before all such ends are on record.
        """
        node = slot.node
        outcome = interrupted_outcome(slot, stopped)
        decision = self._judge.decide(slot, outcome)
        state = settled_state(outcome, decision, in_doubt=node.is_in_doubt)
        record, attempt = self._record, len(node.attempts)
        if node.is_under_review:
            facts = (node.id, attempt, state, (), outcome, decision)
            record.emit(Reviewed(record.next_seq(), record.at(), *facts))
        else:
            record.end_attempt(node, state, outcome, decision)
        if stopped:
            record.after_end(node)

    def request_replan(self, node: Node) -> None:
        """Ask the planner about how a step has ended: that was decided, and is not on record."""
        last = node.attempts[-1] if node.attempts and node.ended is None else None
        outcome = last.outcome if last is not None else None
        decision = last.decision if last is not None else None
        failure = outcome.failure if outcome is not None else None
        if node.ended is not None:  # it failed before anything was called
            failure = node.ended.failure
        if decision is None or decision.trigger is None:
            kind = TriggerKind.UNKNOWN_EFFECT if node.state is State.UNKNOWN else TriggerKind.FAILED
            decision = Decision(Recovery.REPLAN, "", trigger=kind)
        self._record.request_replan(node, decision, failure, self._call_of(node) if last is not None else b"")

    def _call_of(self, node: Node) -> bytes:
        """The arguments of the last call of a step, which are those of the next."""
        try:
            return self.attempts.fill(node)
        except (LookupError, ValueRefused):
            return b""
