"""Stopping attempts that are late, cancelled or dropped, or whose run ends or is suspended."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from anyio.abc import TaskGroup

from dagrun.kernel.checks.check_context import lowest_limit
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.outcome import Outcome, State, Status
from dagrun.kernel.runtime.deadlines import Timers
from dagrun.kernel.runtime.live_attempt import LiveAttempt
from dagrun.kernel.runtime.run_parts import RunParts
from dagrun.kernel.runtime.steps.run_completion import RunCompletion
from dagrun.kernel.runtime.stop_scope import last_turns


class Cancellation:
    """Cancels the running attempts of one run.

    Args:
        parts: What the parts of the run share.
        finish: Ends the run.
        running: The running attempts, by step.
    """

    def __init__(self, parts: RunParts, finish: RunCompletion, running: Mapping[str, LiveAttempt]) -> None:
        self._record = parts.record
        self._people = parts.people
        self._frontier = parts.frontier
        self._policy = parts.policy
        self._now = parts.now
        self._up = parts.up
        self._finish = finish
        self._running = running
        self._tasks: TaskGroup
        self._alarms: Timers

    def open(self, tasks: TaskGroup, alarms: Timers) -> None:
        """Set the task group of the run, and the timers."""
        self._tasks, self._alarms = tasks, alarms

    # One attempt ------------------------------------------------------------------------------------------

    def arm(self, live: LiveAttempt) -> None:
        """Set an alarm for the deadline of an attempt."""
        assert live.deadline is not None
        self._alarms.at(live.deadline, lambda: self._out_of_patience(live))

    @contextmanager
    def clock_stopped(self, live: LiveAttempt) -> Iterator[None]:
        """While this is entered, the time limit of an attempt does not run."""
        left = live.deadline - self._now() if live.deadline is not None else None
        _set_deadline(live, None)
        try:
            yield
        finally:
            if live.asked is None and left is not None:
                _set_deadline(live, self._now() + left)
                self.arm(live)

    def tell(self, live: LiveAttempt, asked: State, reason: str) -> None:
        """Cancel an attempt; if it does not end within the grace period, it is abandoned."""
        if live.asked is None:
            live.tell_to_stop(asked, reason, self._policy.grace)
            assert live.cutoff is not None
            self._alarms.at(live.cutoff, lambda: self._give_up((live,)))

    def _out_of_patience(self, live: LiveAttempt) -> None:
        # The deadline is lifted while the tool waits for a person, and set anew after that.
        if not live.is_done and live.deadline is not None and self._now() >= live.deadline:
            self.tell(live, State.TIMED_OUT, f"{_limit_that_struck(live)}{self._suspicion()}")

    def _suspicion(self) -> str:
        """Return a possible reason why a call hung, in words: dagrun cannot see what a tool waits for."""
        runs = self._frontier.others_waiting
        if not runs:
            return ""
        waited = "another run of its engine waited" if runs == 1 else f"{runs} other runs of its engine waited"
        return f", and {waited} for a place (max_running); if it waits for such a run, the two wait for each other"

    def _give_up(self, slots: Sequence[LiveAttempt]) -> None:
        """Abandon the running ones of *slots* after their grace period, with a cancellation at every await."""
        if not all(live.is_done for live in slots):
            self._tasks.start_soon(self._after_last_turns, slots, name="dagrun grace")

    async def _after_last_turns(self, slots: Sequence[LiveAttempt]) -> None:
        def are_done() -> bool:
            return all(live.is_done for live in slots)

        await last_turns(are_done)
        for live in slots:
            if not live.is_done:
                live.scope.give_up()
        await last_turns(are_done)  # on asyncio they have been dropped then
        for live in slots:
            if not live.is_done:
                self._up.conclude(live, Outcome(State.ABANDONED))
                self._up.nudge()

    def cancel_step(self, node: Node, reason: str) -> bool:
        """Cancel one step, or the elements of a for_each; return whether there was anything left to cancel."""
        live = self._running.get(node.id)
        if live is None:
            self._record.backlog.finish()
        if node.state.is_settled:
            return False
        if live is not None:
            self.tell(live, State.CANCELLED, reason)
        elif node.children is not None:
            for child in node.children:
                self.cancel_step(child, reason)
        else:
            self._record.settle(node, State.CANCELLED, reason)
        self._up.on_external_change()
        return True

    # The whole run ----------------------------------------------------------------------------------------

    def stop_running(self, reason: str) -> Collection[str]:
        """Cancel all running attempts for good; return the ids of their steps."""
        slots = list(self._running.values())
        for live in slots:
            live.tell_to_stop(State.CANCELLED, reason, self._policy.grace)
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
        for live in list(self._running.values()):
            if live.tool.effect.is_free or (live.rare is not None and live.rare.verdicts is not None):
                self._let_go(live, reason)
            else:
                self._alarms.at(self._now() + self._policy.grace, partial(self._let_go, live, reason))
        self._up.on_external_change()

    def let_go_of_waiting(self) -> None:
        """Stop the calls that wait for elements or for people: the run is suspended until people answer."""
        assert self._finish.suspending is not None
        asking = self._people.asking
        for live in list(self._running.values()):
            if live.node.id in asking or (live.rare is not None and live.rare.stream is not None):
                self._let_go(live, self._finish.suspending[1])

    def _let_go(self, live: LiveAttempt, reason: str) -> None:
        if not live.is_done:
            live.make_rare().is_let_go = True
            self.tell(live, State.CANCELLED, reason)

    def interrupt(self, reason: str) -> None:
        """End the run, because the code around it is cancelled; with a journal, suspend it."""
        self._finish.at_once()  # soon there will be no task that could settle the rest
        if self._finish.may_wait:
            self._finish.suspend(Status.CANCELLED, reason)
            for live in list(self._running.values()):
                if live.scope.is_inside:
                    live.scope.stop()  # it may clean up; as it is not asked to end, it has no end on record
            self._finish.suspend_if_idle(self._running)
        else:
            self._finish.stop(Status.CANCELLED, reason)


def _set_deadline(live: LiveAttempt, deadline: float | None) -> None:
    live.deadline = deadline
    if live.context is not None:
        live.context.deadline = deadline


def _limit_that_struck(live: LiveAttempt) -> str:
    """Return the time limit that an attempt has reached, in words: its own, its step's, or the policy's."""
    plan, limit = live.node.plan, live.limit
    timeout = lowest_limit(plan.timeout, live.tool.timeout)
    if plan.step.deadline is not None and (timeout is None or limit < timeout):
        return f"its deadline of {plan.step.deadline:g} s passed"
    is_own = limit in (plan.step.timeout, plan.tool.timeout, live.tool.timeout)
    return f"it took longer than {limit:g} s" + ("" if is_own else " (timeout of the policy)")
