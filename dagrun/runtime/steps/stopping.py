"""Stopping attempts that are late, cancelled or dropped, or whose run ends or is suspended."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from anyio.abc import TaskGroup

from dagrun.checks.check_context import lowest_limit
from dagrun.graph.node import Node
from dagrun.model.outcome import Outcome, State, Status
from dagrun.runtime.deadlines import Alarms
from dagrun.runtime.run_parts import RunParts
from dagrun.runtime.slot import Slot
from dagrun.runtime.steps.finish import Finish
from dagrun.runtime.stop_scope import last_turns


class Stopping:
    """Cancels the running attempts of one run.

    Args:
        parts: What the parts of the run share.
        finish: Ends the run.
        running: The running attempts, by step.
    """

    def __init__(self, parts: RunParts, finish: Finish, running: Mapping[str, Slot]) -> None:
        self._record = parts.record
        self._people = parts.people
        self._frontier = parts.frontier
        self._policy = parts.policy
        self._now = parts.now
        self._up = parts.up
        self._finish = finish
        self._running = running
        self._tasks: TaskGroup
        self._alarms: Alarms

    def open(self, tasks: TaskGroup, alarms: Alarms) -> None:
        """Set the task group of the run, and the timers."""
        self._tasks, self._alarms = tasks, alarms

    # One attempt ------------------------------------------------------------------------------------------

    def arm(self, slot: Slot) -> None:
        """Set an alarm for the deadline of an attempt."""
        assert slot.deadline is not None
        self._alarms.at(slot.deadline, lambda: self._out_of_patience(slot))

    @contextmanager
    def clock_stopped(self, slot: Slot) -> Iterator[None]:
        """While this is entered, the time limit of an attempt does not run."""
        left = slot.deadline - self._now() if slot.deadline is not None else None
        _set_deadline(slot, None)
        try:
            yield
        finally:
            if slot.asked is None and left is not None:
                _set_deadline(slot, self._now() + left)
                self.arm(slot)

    def tell(self, slot: Slot, asked: State, reason: str) -> None:
        """Cancel an attempt; if it does not end within the grace period, it is abandoned."""
        if slot.asked is None:
            slot.tell_to_stop(asked, reason, self._policy.grace)
            assert slot.cutoff is not None
            self._alarms.at(slot.cutoff, lambda: self._give_up((slot,)))

    def _out_of_patience(self, slot: Slot) -> None:
        # The deadline is lifted while the tool waits for a person, and set anew after that.
        if not slot.is_done and slot.deadline is not None and self._now() >= slot.deadline:
            self.tell(slot, State.TIMED_OUT, f"{_limit_that_struck(slot)}{self._suspicion()}")

    def _suspicion(self) -> str:
        """Return a possible reason why a call hung, in words: dagrun cannot see what a tool waits for."""
        runs = self._frontier.others_waiting
        if not runs:
            return ""
        waited = "another run of its engine waited" if runs == 1 else f"{runs} other runs of its engine waited"
        return f", and {waited} for a place (max_running); if it waits for such a run, the two wait for each other"

    def _give_up(self, slots: Sequence[Slot]) -> None:
        """Abandon the running ones of *slots* after their grace period, with a cancellation at every await."""
        if not all(slot.is_done for slot in slots):
            self._tasks.start_soon(self._after_last_turns, slots, name="dagrun grace")

    async def _after_last_turns(self, slots: Sequence[Slot]) -> None:
        def are_done() -> bool:
            return all(slot.is_done for slot in slots)

        await last_turns(are_done)
        for slot in slots:
            if not slot.is_done:
                slot.scope.give_up()
        await last_turns(are_done)  # on asyncio they have been dropped then
        for slot in slots:
            if not slot.is_done:
                self._up.conclude(slot, Outcome(State.ABANDONED))
                self._up.nudge()

    def cancel_step(self, node: Node, reason: str) -> bool:
        """Cancel one step, or the elements of a for_each; return whether there was anything left to cancel."""
        slot = self._running.get(node.id)
        if slot is None and not self._finish.is_settling:
            self._record.skips.skip_rest()
        if node.state.is_settled:
            return False
        if slot is not None:
            self.tell(slot, State.CANCELLED, reason)
        elif node.children is not None:
            for child in node.children:
                self.cancel_step(child, reason)
        elif self._finish.is_settling:
            return False  # it is being cancelled with the run, for the reason of the run
        else:
            self._record.settle(node, State.CANCELLED, reason)
        self._up.settle_down()
        return True

    # The whole run ----------------------------------------------------------------------------------------

    def stop_running(self, reason: str) -> Collection[str]:
        """Cancel all running attempts for good; return the ids of their steps."""
        slots = list(self._running.values())
        for slot in slots:
            slot.tell_to_stop(State.CANCELLED, reason, self._policy.grace)
        if slots:  # they are late together, so one alarm is enough
            self._alarms.at(self._now() + self._policy.grace, partial(self._give_up, slots))
        return self._running

    def suspend(self, status: Status, reason: str) -> None:
        """Start no more steps, and end as soon as nothing runs, so that the run can be resumed later.

        A call without an effect is stopped at once; a call with an effect gets the grace period to end by itself. A
        call that has not ended then is treated as after a crash.
        """
        if self._finish.is_closing or self._finish.has_ended:
            return
        self._finish.suspend(status, reason)
        for slot in list(self._running.values()):
            if slot.tool.effect.is_free or (slot.rare is not None and slot.rare.verdicts is not None):
                self._let_go(slot, reason)
            else:
                self._alarms.at(self._now() + self._policy.grace, partial(self._let_go, slot, reason))
        self._up.settle_down()

    def let_go_of_waiting(self) -> None:
        """Stop the calls that wait for elements or for people: the run is suspended until people answer."""
        assert self._finish.suspending is not None
        asking = self._people.asking
        for slot in list(self._running.values()):
            if slot.node.id in asking or (slot.rare is not None and slot.rare.stream is not None):
                self._let_go(slot, self._finish.suspending[1])

    def _let_go(self, slot: Slot, reason: str) -> None:
        if not slot.is_done:
            slot.make_rare().is_let_go = True
            self.tell(slot, State.CANCELLED, reason)

    def interrupt(self, reason: str) -> None:
        """End the run, because the code around it is cancelled; with a journal, suspend it."""
        self._finish.at_once()  # soon there will be no task that could settle the rest
        if self._finish.may_wait:
            self._finish.suspend(Status.CANCELLED, reason)
            for slot in list(self._running.values()):
                if slot.scope.is_inside:
                    slot.scope.stop()  # it may clean up; as it is not asked to end, it has no end on record
            self._finish.suspend_if_idle(self._running)
        else:
            self._finish.stop(Status.CANCELLED, reason)


def _set_deadline(slot: Slot, deadline: float | None) -> None:
    slot.deadline = deadline
    if slot.context is not None:
        slot.context.deadline = deadline


def _limit_that_struck(slot: Slot) -> str:
    """Return the time limit that an attempt has reached, in words: its own, its step's, or the policy's."""
    plan, limit = slot.node.plan, slot.limit
    timeout = lowest_limit(plan.timeout, slot.tool.timeout)
    if plan.step.deadline is not None and (timeout is None or limit < timeout):
        return f"its deadline of {plan.step.deadline:g} s passed"
    is_own = limit in (plan.step.timeout, plan.tool.timeout, slot.tool.timeout)
    return f"it took longer than {limit:g} s" + ("" if is_own else " (timeout of the policy)")
