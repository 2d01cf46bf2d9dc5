"""The end of a run: when every step has settled; or earlier, because it is stopped or suspended.

`Cancellation` stops attempts that are late, cancelled or dropped, or whose run ends or is suspended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from anyio.abc import TaskGroup

from dagrun.errors import ValueRefused
from dagrun.kernel.checks.check_context import lowest_limit
from dagrun.kernel.decide.questions import only_waiting
from dagrun.kernel.decide.recovery import status_of
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.outcome import Outcome, State, Status
from dagrun.kernel.model.value import encode, store_text, to_json
from dagrun.kernel.runtime.backend import Timers
from dagrun.kernel.runtime.live_attempt import LiveAttempt
from dagrun.kernel.runtime.result import answer_of
from dagrun.kernel.runtime.run_parts import RunParts
from dagrun.kernel.runtime.stop_scope import last_turns

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
        # The deadline is lifted while the tool waits for a person, and set again after that.
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
