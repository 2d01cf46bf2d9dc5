"""The scheduler: it starts what is ready, ends what is late, and lets recovery decide about the rest."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

import anyio

from dagrun.decide.recovery import PROCEED, Situation, decide, settled_state, state_after_stop
from dagrun.decide.status import NO_APPROVER, status_of
from dagrun.graph.frontier import Frontier
from dagrun.graph.live import LiveGraph, Node
from dagrun.model.event import AttemptEnded, AttemptStarted
from dagrun.model.outcome import Decision, ErrorKind, Failure, Outcome, Recovery, State, Status
from dagrun.model.policy import Policy
from dagrun.runtime.alarms import Alarms
from dagrun.runtime.attempt import Attempts
from dagrun.runtime.backend import is_being_cancelled, leave_leaked_scopes
from dagrun.runtime.record import Record
from dagrun.runtime.slot import Slot

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
        policy: The limits.
        random: For the jitter of retry delays.
        now: The clock of the loop.
        on_ready: Called when something has become ready by itself, to wake a worker.
        on_end: Called once, when every step has settled.
    """

    def __init__(
        self,
        *,
        graph: LiveGraph,
        record: Record,
        frontier: Frontier,
        policy: Policy,
        random: Random,
        now: Callable[[], float],
        on_ready: Callable[[], None],
        on_end: Callable[[], None],
    ) -> None:
        self._graph = graph
        self._record = record
        self._frontier = frontier
        self._policy = policy
        self._random = random
        self._now = now
        self._nudge = on_ready
        self._on_end = on_end
        self._running: dict[str, Slot] = {}
        self._stopped: tuple[Status, str] | None = None
        self._has_ended = False
        # The class of the running backend: made through anyio.CancelScope, each would look the backend up again.
        self._new_scope: Callable[[], anyio.CancelScope] = type(anyio.CancelScope())
        self._alarms: Alarms
        self._attempts: Attempts

    def open(self, alarms: Alarms, attempts: Attempts) -> None:
        """Take what exists only inside the task group of the run."""
        self._alarms = alarms
        self._attempts = attempts
        if self._policy.max_seconds is not None:
            alarms.at(self._now() + self._policy.max_seconds, self._out_of_time)

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
        except RuntimeError:
            # Nothing but leaving the scope raises here: the tool has left one of its own open.
            leave_leaked_scopes(slot.scope)
            outcome = self._leaked(slot)
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
        if not self._is_startable(node) or (node.plan.is_timed and self._is_too_late(node)):
            self._frontier.release(node)
            self.finish_if_settled()
            return None
        plan, record, tool = node.plan, self._record, node.tool
        slot = Slot(node, tool, self._new_scope(), is_fresh, self._now)
        if plan.is_timed or node.on_fallback:
            self._set_deadline(slot)
        self._running[node.id] = slot
        record.emit(AttemptStarted(record.next_seq(), record.at(), node.id, len(node.attempts) + 1, tool.name))
        failure = self._attempts.prepare(slot)
        if failure is not None:
            self._conclude(slot, Outcome(State.FAILED, None, failure))
            return None
        return slot

    def _is_startable(self, node: Node) -> bool:
        """Whether the tool is to be called now; if not, the step has been settled or expanded instead."""
        if node.state is not _READY or self._stopped is not None:
            return False
        plan = node.plan
        if plan.is_plain and not node.on_fallback:
            return True
        if node.parent is None:
            if plan.step.when is not None and not self._holds(node):
                return False
            if plan.items is not None:
                self._expand(node)
                return False
        if node.tool.needs_approval:
            self._record.settle(node, State.SKIPPED, NO_APPROVER)
            return False
        if not node.tool.effect.is_free and is_being_cancelled():
            self.stop(Status.CANCELLED, CANCELLED_AROUND)
            return False
        return True

    def _is_too_late(self, node: Node) -> bool:
        """Whether the deadline of the step passed while it waited for its turn; if so, the step has been settled."""
        left = self._seconds_left(node)
        if left is None or left > 0:
            return False
        text = "its deadline passed before it could begin"
        self._record.fail_unstarted(node, Failure(ErrorKind.TIMEOUT, text, nothing_happened=True), State.TIMED_OUT)
        return True

    def _holds(self, node: Node) -> bool:
        condition = node.plan.step.when
        assert condition is not None
        failure = self._attempts.failed_condition(condition)
        if failure is None:
            return True
        if failure.kind is ErrorKind.CONDITION_MISMATCH:
            self._record.fail_unstarted(node, failure)
        else:
            self._record.settle(node, State.SKIPPED, f"when: {failure.message}", is_tolerated=True)
        return False

    def _expand(self, node: Node) -> None:
        """Give a for_each its elements, if the ceilings allow so many."""
        items = self._attempts.elements(node)
        if not isinstance(items, Failure):
            refused = self._too_many(len(items))
            if refused is None:
                self._record.expand(node, items)
                return
            items = Failure(ErrorKind.CEILING, refused, nothing_happened=True)
        self._record.fail_unstarted(node, items)

    def _too_many(self, count: int) -> str | None:
        used, policy = len(self._graph.nodes), self._policy
        if count > policy.max_fan_out:
            return f"ceiling of {policy.max_fan_out} elements for one for_each: {count} wanted"
        if policy.max_steps is not None and used + count > policy.max_steps:
            return f"ceiling of {policy.max_steps} steps is spent: {used} used, {count} more wanted"
        return None

    def _set_deadline(self, slot: Slot) -> None:
        node = slot.node
        limits = [node.plan.timeout] if node.plan.timeout is not None else []
        if slot.tool is not node.plan.tool and slot.tool.timeout is not None:
            limits.append(slot.tool.timeout)
        left = self._seconds_left(node)
        if left is not None:
            limits.append(left)
        if limits:
            slot.limit = min(limits)
            slot.deadline = self._now() + slot.limit
            self._alarms.at(slot.deadline, lambda: self._out_of_patience(slot))

    def _seconds_left(self, node: Node) -> float | None:
        """Seconds until the deadline of the whole step, which starts with its first attempt, or its expansion."""
        deadline = node.plan.step.deadline
        if deadline is None:
            return None
        begun = node.attempts[0].started if node.attempts else None
        if node.parent is not None:
            begun = node.parent.expanded
        return deadline if begun is None else begun + self._record.zero + deadline - self._now()

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
            outcome = self._stopped_outcome(slot, asked, outcome)
        assert outcome is not None
        self._end(slot, outcome)

    @staticmethod
    def _stopped_outcome(slot: Slot, asked: State, outcome: Outcome | None) -> Outcome:
        """The outcome of an attempt that was told to stop: a value that arrives late is never used."""
        vouched = outcome is not None and outcome.failure is not None and outcome.failure.nothing_happened
        still_running = outcome is not None and outcome.state is State.ABANDONED
        state = state_after_stop(slot.tool.effect, asked, vouched=vouched, still_running=still_running)
        timed_out = asked is State.TIMED_OUT
        kind = ErrorKind.TIMEOUT if timed_out else ErrorKind.CANCELLED
        reason = f"{slot.reason}; it would not stop" if still_running else slot.reason
        # What would not stop would not stop the next time either.
        failure = Failure(kind, reason, is_transient=timed_out and not still_running, nothing_happened=vouched)
        return Outcome(state, None, failure, slot.tokens, slot.cost)

    @staticmethod
    def _leaked(slot: Slot) -> Outcome:
        failure = Failure(ErrorKind.EXCEPTION, "the tool left a cancel scope or a task group open")
        state = State.FAILED if slot.tool.effect.is_free else State.UNKNOWN
        return Outcome(state, None, failure, slot.tokens, slot.cost)

    def _end(self, slot: Slot, outcome: Outcome) -> None:
        """Let recovery decide about *outcome*, record both, and do what follows."""
        node = slot.node
        slot.is_done = True
        slot.call = None  # it leads back to the slot, and a circle at every step would keep the garbage collector busy
        del self._running[node.id]
        if outcome.state is _SUCCEEDED:
            decision, state = PROCEED, _SUCCEEDED
        else:
            decision = decide(outcome, self._situation(slot))
            if self._stopped is not None and decision.recovery in (Recovery.RETRY, Recovery.FALL_BACK):
                decision = Decision(Recovery.GIVE_UP, "the run is being stopped")
            state = settled_state(outcome, decision)
        record = self._record
        attempt = len(node.attempts)
        record.emit(AttemptEnded(record.next_seq(), record.at(), node.id, attempt, state, outcome, decision))
        self._frontier.release(node)
        if state is _READY:
            self._try_again(node, decision.delay)
            return
        if state is not _SUCCEEDED or node.parent is not None:
            record.after_end(node)
            if decision.recovery is Recovery.STOP:
                self.stop(Status.FAILED, f"{node.id} failed, and its on_failure is stop")
        if not self._graph.unsettled:
            self.finish_if_settled()

    def _situation(self, slot: Slot) -> Situation:
        node, step = slot.node, slot.node.plan.step
        fallback = node.plan.fallback
        strays = ErrorKind.STRAY_CANCELLATION
        mine = [a for a in node.attempts if a.tool == slot.tool.name]
        spoilt = sum(1 for a in mine if a.outcome and a.outcome.failure and a.outcome.failure.kind is strays)
        return Situation(
            effect=slot.tool.effect,
            attempt=max(1, len(mine) - spoilt),
            rule=step.retry or self._policy.retry,
            fallback=fallback.name if fallback is not None and not node.on_fallback else None,
            on_failure=step.on_failure,
            seconds_left=self._seconds_left(node),
            draw=self._random.random(),
        )

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
        if not slot.is_done:
            self._tell_to_stop(slot, State.TIMED_OUT, f"it took longer than {slot.limit:g} s")

    def _abandon(self, slot: Slot) -> None:
        """The grace period is over: let the rest of the run go on without this step."""
        if not slot.is_done:
            self._conclude(slot, Outcome(State.ABANDONED))
            self._nudge()

    def _out_of_time(self) -> None:
        left = sum(1 for node in self._graph.planned() if not node.state.is_settled)
        limit = self._policy.max_seconds
        text = f"ceiling of {limit:g} seconds is spent: {left} of {len(self._graph.plan.steps)} steps had not ended"
        self.stop(Status.OVER_BUDGET, text)

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
        self.finish_if_settled()
        self._nudge()
        return True

    def stop(self, status: Status, reason: str) -> None:
        """End the run early: cancel what runs, settle what has not started. The first reason counts."""
        if self._stopped is not None or self._has_ended:
            return
        self._stopped = (status, reason)
        for slot in list(self._running.values()):
            self._tell_to_stop(slot, State.CANCELLED, reason)
        for node in list(self._graph.nodes.values()):
            if not node.state.is_settled and node.id not in self._running and node.children is None:
                self._record.settle(node, State.CANCELLED, reason)
        self.finish_if_settled()

    def finish_if_settled(self) -> None:
        """End the run, if every step has settled."""
        if self._graph.unsettled or self._has_ended:
            return
        self._has_ended = True
        self._record.end_run(*status_of(self._record.unsuccessful(), len(self._graph.plan.steps), self._stopped))
        self._on_end()
