"""The scheduler: it starts what is ready, ends what is late, and lets recovery decide about the rest."""

from __future__ import annotations

from collections.abc import Callable, Collection
from random import Random
from typing import Final

import anyio

from dagrun.decide.recovery import PROCEED, settled_state
from dagrun.graph.frontier import Frontier
from dagrun.graph.live import LiveGraph
from dagrun.graph.node import Node
from dagrun.graph.patch import CheckedPatch, Origin
from dagrun.model.event import AttemptEnded, AttemptStarted, Reviewed
from dagrun.model.outcome import Decision, ErrorKind, Outcome, Recovery, State, Status
from dagrun.model.policy import Policy
from dagrun.runtime.accounts import Accounts
from dagrun.runtime.alarms import Alarms
from dagrun.runtime.attempt import Attempts
from dagrun.runtime.backend import is_being_cancelled, leave_leaked_scopes
from dagrun.runtime.finish import Finish
from dagrun.runtime.inside import Inside
from dagrun.runtime.judging import Judge
from dagrun.runtime.people import People
from dagrun.runtime.record import Record
from dagrun.runtime.reviews import Reviews, judged
from dagrun.runtime.slot import Rare, Slot, leaked_outcome, stopped_outcome
from dagrun.runtime.starting import Starting

_READY: Final = State.READY
_SUCCEEDED: Final = State.SUCCEEDED

CANCELLED_AROUND: Final = "the code around the run was cancelled"

# After such an end the task itself cannot be trusted any more.
_UNCLEAN: Final = frozenset(
    (ErrorKind.FOREIGN_CANCELLATION, ErrorKind.STRAY_CANCELLATION, ErrorKind.FORBIDDEN_EXCEPTION)
)


class Scheduler:
    """Runs the steps of one run.

    Args:
        graph: The state; read here, changed by the record.
        record: Makes the changes.
        frontier: Ready steps.
        starting: Asks all that must be asked before a call.
        people: Who may have to answer.
        accounts: What may be used.
        reviews: The critics; `None` if there are none.
        policy: The limits.
        random: For the jitter of retry delays.
        now: The clock of the loop.
        on_ready: Called when something has become ready by itself, to wake a worker.
        on_stop: Called once, if the run is ended early.
        on_more: Called when all has ended and the planner wants to be asked again; says whether it is.
        on_end: Called once, when every step has settled.

    Attributes:
        inside: Lets running tools ask people.
    """

    def __init__(
        self,
        *,
        graph: LiveGraph,
        record: Record,
        frontier: Frontier,
        starting: Starting,
        people: People,
        accounts: Accounts,
        reviews: Reviews | None,
        policy: Policy,
        random: Random,
        now: Callable[[], float],
        on_ready: Callable[[], None],
        on_stop: Callable[[], None],
        on_more: Callable[[], bool],
        on_end: Callable[[], None],
    ) -> None:
        self._graph = graph
        self._record = record
        self._frontier = frontier
        self._starting = starting
        self._people = people
        self._accounts = accounts
        self._reviews = reviews
        self._policy = policy
        self._judge = Judge(
            record=record,
            policy=policy,
            people=people,
            starting=starting,
            random=random,
            is_stopping=lambda: self.is_stopping,
        )
        self._now = now
        self._nudge = on_ready
        self._running: dict[str, Slot] = {}
        self.inside = Inside(frontier, record, people, now=now, nudge=on_ready, arm=self._arm)
        self._finish = Finish(
            graph=graph,
            record=record,
            people=people,
            policy=policy,
            stop_running=self._stop_running,
            on_stop=on_stop,
            on_more=on_more,
            on_end=on_end,
        )
        # The class of the running backend: made through anyio.CancelScope, each would look the backend up again.
        self._new_scope: Callable[[], anyio.CancelScope] = type(anyio.CancelScope())
        self._alarms: Alarms
        self._attempts: Attempts

    def open(self, alarms: Alarms, attempts: Attempts) -> None:
        """Take what exists only inside the task group of the run."""
        self._alarms = alarms
        self._attempts = self._starting.attempts = attempts
        if self._policy.max_seconds is not None:
            alarms.at(self._now() + self._policy.max_seconds, self._finish.out_of_time)
            if self._policy.warn_at is not None:
                alarms.at(self._now() + self._policy.max_seconds * self._policy.warn_at, self._nearly_out_of_time)

    def close(self) -> None:
        """Settle what is left, once no task of the run is alive."""
        for slot in list(self._running.values()):
            self._conclude(slot, None)
        self.stop(Status.CANCELLED, "the run was closed")

    # One step ---------------------------------------------------------------------------------------------

    async def run_step(self, node: Node, is_fresh: bool) -> bool:
        """Run one step to the end of its attempt; say whether the task is as good as new afterwards."""
        slot = self._begin(node, is_fresh)
        if slot is None:
            self._record.deliver()  # the next change may be an hour away
            return True
        outcome: Outcome | None = None  # stands when the attempt was cancelled, alone or with all around it
        try:
            with slot.scope:
                outcome = await self._attempts.perform(slot)
                if self._reviews is not None and outcome.state is _SUCCEEDED:
                    outcome = await self._review(slot, outcome, self._reviews)
        except RuntimeError:
            # Nothing but leaving the scope raises here: the tool has left one of its own open.
            leave_leaked_scopes(slot.scope)
            outcome = leaked_outcome(slot)
            return False
        finally:
            if outcome is None or outcome.state is not _SUCCEEDED or slot.was_interrupted:
                self._notice_cancellation(slot)
            self._conclude(slot, outcome)
            self._record.deliver()
        if outcome is None or slot.asked is not None:
            return False
        return outcome.failure is None or outcome.failure.kind not in _UNCLEAN

    def _notice_cancellation(self, slot: Slot) -> None:
        """Stop the run, if this attempt was the first to be told that the code around the run is cancelled.

        Whatever it made of that, swallowed it or raised something else, is then neither a success nor a failure.
        """
        if slot.asked is None and is_being_cancelled():
            self.stop(Status.CANCELLED, CANCELLED_AROUND)

    def _begin(self, node: Node, is_fresh: bool) -> Slot | None:
        """Start the attempt of a step that was taken; nothing if it turns out that there is nothing to call."""
        if node.attempts and node.id in self._running:
            self.inside.resume(self._running[node.id])
            return None
        if not self._is_startable(node):
            self._put_back(node)
            return None
        plan, record, tool = node.plan, self._record, node.tool
        slot = Slot(node, tool, self._new_scope(), is_fresh, self._now)
        if self._accounts.are_bound and not self._accounts.reserve(slot):
            self._put_back(node)
            return None
        if plan.is_timed or node.on_fallback:
            self._set_deadline(slot)
        self._running[node.id] = slot
        record.emit(AttemptStarted(record.next_seq(), record.at(), node.id, len(node.attempts) + 1, tool.name))
        failure = self._attempts.prepare(slot)
        if failure is not None:
            self._accounts.give_back(slot)
            self._conclude(slot, Outcome(State.FAILED, None, failure))
            return None
        return slot

    def _put_back(self, node: Node) -> None:
        """Give back the place of a step that is not called now."""
        self._frontier.release(node)
        self._end_if_nothing_is_left()

    def _is_startable(self, node: Node) -> bool:
        """Whether the tool is to be called now; if not, the step has been settled, expanded or held instead."""
        if node.state is not _READY or self._finish.stopped is not None:
            return False
        if not node.plan.is_plain or node.on_fallback:
            if not self._starting.is_startable(node):
                return False
            if not node.tool.effect.is_free and is_being_cancelled():
                self.stop(Status.CANCELLED, CANCELLED_AROUND)
                return False
        return not (node.plan.is_timed and self._starting.is_too_late(node))

    def _set_deadline(self, slot: Slot) -> None:
        limit = self._starting.seconds_for(slot.node)
        if limit is not None:
            slot.limit = limit
            slot.deadline = self._now() + limit
            self._arm(slot)

    # How an attempt ends ----------------------------------------------------------------------------------

    def _conclude(self, slot: Slot, outcome: Outcome | None) -> None:
        """Record the end of an attempt; *outcome* is none if it was cancelled."""
        if slot.is_done:
            return  # abandoned before; whatever comes now is too late
        asked = slot.asked
        if asked is None and slot.deadline is not None and self._now() > slot.deadline:
            asked, slot.reason = State.TIMED_OUT, "it came back after its deadline"
        elif asked is None and outcome is None:
            asked, slot.reason = State.CANCELLED, CANCELLED_AROUND
        if asked is not None:
            outcome = stopped_outcome(slot, asked, outcome)
        assert outcome is not None
        self._end(slot, outcome)

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
            record = self._record
            facts = (node.id, len(node.attempts), state, outcome, decision)
            record.emit(AttemptEnded(record.next_seq(), record.at(), *facts))
            self._frontier.release(node)
        else:
            self._end_rare(slot, slot.rare, state, outcome, decision)
        if decision is not PROCEED or node.parent is not None or node.plan.pauses_after:
            self._follow(node, outcome, decision, call.data if call is not None else b"")
        if not self._graph.unsettled or (self._accounts.are_bound and not self._running):
            self._end_if_nothing_is_left()

    def _end_rare(self, slot: Slot, rare: Rare, state: State, outcome: Outcome, decision: Decision) -> None:
        """Record the end of an attempt that was reviewed, was reserved for, or has asked a person."""
        record, node = self._record, slot.node
        seq, at, attempt = record.next_seq(), record.at(), len(node.attempts)
        if rare.verdicts is None:
            record.emit(AttemptEnded(seq, at, node.id, attempt, state, outcome, decision))
        else:
            record.emit(Reviewed(seq, at, node.id, attempt, state, rare.verdicts, outcome, decision))
        if rare.has_place:
            self._frontier.release(node)
        else:
            self._frontier.withdraw((node,))  # it may have stood in line for a place to go on
        self._accounts.settle(slot)

    def _follow(self, node: Node, outcome: Outcome, decision: Decision, call: bytes) -> None:
        """Do what was decided about an attempt that has been recorded."""
        record, recovery = self._record, decision.recovery
        if node.state is _READY:
            self._try_again(node, decision.delay)
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

    # Critics ----------------------------------------------------------------------------------------------

    async def _review(self, slot: Slot, outcome: Outcome, reviews: Reviews) -> Outcome:
        """Let the critics look at what an attempt gave; the attempt itself is over, and recorded, before that."""
        node, record = slot.node, self._record
        critics = reviews.wanted(node.plan.step)
        late = slot.deadline is not None and self._now() > slot.deadline
        if not critics or late or slot.asked is not None:
            return outcome
        decision = Decision(Recovery.REVIEW, "critics look at it first")
        facts = (node.id, len(node.attempts), State.RUNNING, outcome, decision)
        record.emit(AttemptEnded(record.next_seq(), record.at(), *facts))
        rare = slot.make_rare()
        rare.verdicts, slot.deadline = (), None
        self._accounts.settle(slot)
        record.deliver()
        self._nudge()  # this worker waits now, and its tool may never have
        rare.verdicts = await reviews.review(node.plan.step, outcome, critics)
        return judged(outcome, rare.verdicts)

    def _arm(self, slot: Slot) -> None:
        """Let an alarm ring at the deadline of an attempt."""
        assert slot.deadline is not None
        self._alarms.at(slot.deadline, lambda: self._out_of_patience(slot))

    def _try_again(self, node: Node, delay: float) -> None:
        if delay <= 0:
            self._frontier.push(node)
            return
        self._alarms.at(self._now() + delay, lambda: self._ready_again(node))

    def _ready_again(self, node: Node) -> None:
        if node.state is _READY:
            self._frontier.push(node)
            self._nudge()

    # Stopping ---------------------------------------------------------------------------------------------

    def _tell_to_stop(self, slot: Slot, asked: State, reason: str) -> None:
        if slot.asked is None:
            slot.tell_to_stop(asked, reason, self._policy.grace)
            assert slot.cutoff is not None
            self._alarms.at(slot.cutoff, lambda: self._abandon(slot))

    def _out_of_patience(self, slot: Slot) -> None:
        # Its time stands still while it waits for a person, and starts anew after that.
        if not slot.is_done and slot.deadline is not None and self._now() >= slot.deadline:
            self._tell_to_stop(slot, State.TIMED_OUT, f"it took longer than {slot.limit:g} s")

    def _abandon(self, slot: Slot) -> None:
        """The grace period is over: let the rest of the run go on without this step."""
        if not slot.is_done:
            self._conclude(slot, Outcome(State.ABANDONED))
            self._nudge()

    def cancel_step(self, node: Node, reason: str) -> bool:
        """Cancel one step, or the elements of a for_each; say whether there was anything left to cancel."""
        if node.state.is_settled:
            return False
        slot = self._running.get(node.id)
        if slot is not None:
            self._tell_to_stop(slot, State.CANCELLED, reason)
        elif node.children is not None:
            for child in node.children:
                self.cancel_step(child, reason)
        else:
            self._record.settle(node, State.CANCELLED, reason)
        self.settle_down()
        return True

    def splice(self, checked: CheckedPatch, origin: Origin, reason: str) -> None:
        """Apply a patch, and stop what it takes out while it runs. Nothing else is touched."""
        self._record.splice(checked, origin, reason)
        why = f"revision {self._graph.revision} of the plan does without it"
        for id_ in checked.consequence.cancelled:
            slot = self._running.get(id_)
            if slot is not None:
                self._tell_to_stop(slot, State.SUPERSEDED, why)
        self.settle_down()

    def settle_down(self) -> None:
        """After a change that no attempt has made: end the run if nothing is left, wake workers if something is."""
        self._end_if_nothing_is_left()
        self._nudge()
        self._record.deliver()

    def _end_if_nothing_is_left(self) -> None:
        still_wait = self._accounts.are_bound and self._accounts.feed()
        if still_wait and not self._running and (stuck := self._accounts.why_stuck()):
            self.stop(Status.OVER_BUDGET, stuck)
        self.finish_if_settled()

    def _nearly_out_of_time(self) -> None:
        self._accounts.save("seconds", self._record.at(), self._policy.max_seconds or 0.0)
        self.settle_down()

    @property
    def is_stopping(self) -> bool:
        """Whether the run is being ended early: what came now would never start, and never end."""
        return self._finish.stopped is not None

    def stop(self, status: Status, reason: str) -> None:
        """End the run early: cancel what runs, settle what has not started. The first reason counts."""
        self._finish.stop(status, reason)

    def _stop_running(self, reason: str) -> Collection[str]:
        for slot in list(self._running.values()):
            self._tell_to_stop(slot, State.CANCELLED, reason)
        return self._running

    def finish_if_settled(self) -> None:
        """End the run, if every step has settled and nothing is left to be decided."""
        self._finish.finish_if_settled()
