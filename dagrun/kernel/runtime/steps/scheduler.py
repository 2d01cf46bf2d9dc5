"""The scheduler: it runs the steps that are ready, each to the end of its attempt.

*Workers* are an elastic pool of tasks, each of which runs one step after another. A step that never suspends needs no
task of its own. Another worker is woken for the ready steps only when a step suspends, and only one at a time: each
wakes the next when its own step suspends. So steps that suspend for one turn of the loop share a few workers, and steps
that wait longer get one each.

A worker hands a ready step to `Scheduler.run_step`, which does the following, and every part of it in its own file:

1. Admission: everything is asked that must be asked before a call; the step may be settled, expanded or held instead.
2. The attempt: arguments are filled in, its start is written to the journal if the call has an effect, the tool is
   called, perhaps with a second call beside it (`Hedging`), and critics look at its output.
3. The ending: recovery decides about the outcome, both are recorded, and what follows is done (`AttemptCompletion`).

`Cancellation` tells attempts to stop, and `RunCompletion` ends the run. A change that no attempt has made is followed
by `on_external_change`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextvars import Context
from functools import partial
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from dagrun.kernel.decide.replanning import unagreed_calls
from dagrun.kernel.graph.node import Node
from dagrun.kernel.graph.step_order import Frontier
from dagrun.kernel.model.critic import Sources
from dagrun.kernel.model.outcome import Decision, ErrorKind, Outcome, Recovery, State, Status
from dagrun.kernel.runtime.backend import (
    Timers,
    event_class,
    innermost_of,
    is_being_cancelled,
    is_cancellation,
    leave_leaked_scopes,
    uncancel_task,
)
from dagrun.kernel.runtime.live_attempt import LiveAttempt, OptionalAttemptState, leaked_outcome
from dagrun.kernel.runtime.run_features import Hedging
from dagrun.kernel.runtime.run_parts import RunParts
from dagrun.kernel.runtime.steps.admission import Admission, AskFromTool
from dagrun.kernel.runtime.steps.attempt import AttemptRunner
from dagrun.kernel.runtime.steps.attempt_completion import CANCELLED_AROUND, AttemptCompletion, RecoveryDecider
from dagrun.kernel.runtime.steps.reviews import Reviews, judged
from dagrun.kernel.runtime.steps.run_completion import Cancellation, RunCompletion
from dagrun.kernel.runtime.stop_scope import StopScope

if TYPE_CHECKING:
    from dagrun.errors import Problem
    from dagrun.kernel.graph.patches.apply_patch import CheckedPatch
    from dagrun.kernel.graph.patches.check_patch import Origin


class WorkerScope:
    """A scope around the steps of one worker, entered by ``with``.

    A running step has the scope to itself. A step that ends as it should leaves the scope unchanged, and the next step
    may run in it; after any other end, the worker ends, and the scope with it. That spares most steps a scope of their
    own, which would be a quarter of the cost of a step.

    Args:
        scope: The cancel scope; not entered yet.

    Attributes:
        scope: The cancel scope.
        has_leaked: Whether a step has left a scope or a task group of its own open in it; then it was left at once.
        is_innermost: Returns whether no other scope is open in it.
    """

    __slots__ = ("has_leaked", "is_innermost", "scope")

    is_innermost: Callable[[], bool]

    def __init__(self, scope: StopScope) -> None:
        self.scope = scope
        self.has_leaked = False

    def __enter__(self) -> Self:
        self.scope.__enter__()
        self.is_innermost = innermost_of(self.scope.raw)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self.has_leaked:
            return error is not None and is_cancellation(error)
        return bool(self.scope.__exit__(kind, error, trace))

    def close_leaks(self) -> None:
        """Close by force the scopes and task groups that the step has left open."""
        self.has_leaked = True
        try:
            self.scope.__exit__(None, None, None)
        except RuntimeError:
            leave_leaked_scopes(self.scope.raw)


KEEP_IDLE: Final = 16  # beyond that, waiting costs more than starting again
STREAK: Final = 50  # steps in a row, after which other tasks get a turn
BREATH: Final = 0.005  # seconds, after which other tasks get a turn


class Workers:
    """The pool of one run.

    Args:
        tasks: The task group that owns every worker.
        frontier: Holds the ready steps.
        run_step: Runs one step to the end of its attempt; returns whether the task can run another step afterwards.
        context: The context variables of the run, for every worker.
        now: The clock of the loop.
        new_scope: Makes the scope of each worker.
    """

    def __init__(
        self,
        tasks: TaskGroup,
        frontier: Frontier,
        run_step: Callable[[Node, WorkerScope, bool], Awaitable[bool]],
        context: Context,
        *,
        now: Callable[[], float],
        new_scope: Callable[[], StopScope],
    ) -> None:
        self._tasks = tasks
        self._frontier = frontier
        self._run_step = run_step
        self._context = context
        self._now = now
        self._idle: list[anyio.Event] = []
        self._on_the_way: list[Node] = []  # steps that were taken, and handed to a task that has not begun yet
        frontier.elsewhere.append(self._on_the_way)
        self._coming = 0  # workers that were woken or started and have not looked at the frontier yet
        self._suspensions = 0
        self._new_scope = new_scope
        self._new_event = event_class()
        self._is_over = False

    def nudge(self) -> None:
        """Wake a worker for the ready steps: called when a step suspends, or becomes ready by itself."""
        if self._coming < 1 and not self._is_over and self._frontier.room():
            self._wake()

    def suspended(self) -> None:
        """Note that a step has suspended: its worker cannot run the next step, and other tasks get a turn."""
        self._suspensions += 1
        self.nudge()

    def stop(self) -> None:
        """End the idle workers: the run has ended."""
        self._is_over = True
        for event in self._idle:
            event.set()
        self._idle.clear()

    def _wake(self) -> None:
        self._coming += 1
        if self._idle:
            self._idle.pop().set()
        else:
            self._start(None)

    def _start(self, node: Node | None) -> None:
        self._tasks.create_task(self._work(node), name="dagrun worker", context=self._context)

    async def _work(self, node: Node | None) -> None:
        """Run ready steps one after another; retire after an end that was not clean."""
        try:
            await self._in_scope(node)
            await uncancel_task()
        finally:
            self.nudge()

    async def _in_scope(self, node: Node | None) -> None:
        try:
            with WorkerScope(self._new_scope()) as own:
                await self._go_on(node, own)
        except BaseException as error:
            # A cancellation that a tool left behind and that ends an idle worker does no harm, if it stops here.
            if not is_cancellation(error) or is_being_cancelled():
                raise

    async def _go_on(self, node: Node | None, own: WorkerScope) -> None:
        if node is None:
            self._coming -= 1
        elif node in self._on_the_way:
            self._on_the_way.remove(node)
        else:  # a splice has taken it back meanwhile
            self._frontier.release(node)
            node = None
        is_fresh, streak, since = True, 0, self._now()
        while True:
            node = node or self._frontier.take()
            if node is None:
                if not await self._rest():
                    return
                streak, since = 0, self._now()
                continue
            before = self._suspensions
            if not is_fresh and (node.on_fallback or not node.plan.may_repeat):
                # A cancellation that an earlier step left behind must not hit a call that cannot be repeated.
                self._on_the_way.append(node)
                self._start(node)
            elif not await self._run_step(node, own, is_fresh):
                return
            node, is_fresh, streak = None, False, streak + 1
            if self._suspensions != before:  # this very step has suspended: else no other worker could have run
                streak, since = 0, self._now()
            elif streak >= STREAK or self._now() - since > BREATH:
                await checkpoint()
                streak, since = 0, self._now()

    async def _rest(self) -> bool:
        """Wait for a step to become ready; return whether to continue."""
        if self._is_over or len(self._idle) >= KEEP_IDLE:
            return False
        event = self._new_event()
        self._idle.append(event)
        try:
            await event.wait()
        except BaseException:
            if event in self._idle:
                self._idle.remove(event)
            else:
                self._coming -= 1  # it was woken, and ends before it takes a step: its end wakes another worker
            raise
        if self._is_over:
            return False
        self._coming -= 1
        return True


_READY: Final = State.READY
_SUCCEEDED: Final = State.SUCCEEDED

MAX_SHOWN: Final = 5  # ids of running steps

# After such an end the task itself cannot be trusted any more.
_UNCLEAN: Final = frozenset(
    (ErrorKind.FOREIGN_CANCELLATION, ErrorKind.STRAY_CANCELLATION, ErrorKind.FORBIDDEN_EXCEPTION)
)


class Scheduler:
    """Runs the steps of one run.

    Args:
        parts: What the parts of the run share.

    Attributes:
        finish: Ends the run.
        inside: Lets running tools ask people.
        stopping: Tells running attempts to stop.
        endings: Records how attempts end, and does what follows.
        running: The running attempts, by step.
        hedges: Makes second calls beside slow ones; `None` if the policy wants none.
    """

    def __init__(self, parts: RunParts) -> None:
        self._parts = parts
        self._graph = parts.graph
        self._record = parts.record
        self._frontier = parts.frontier
        self._people = parts.people
        self._accounts = parts.accounts
        self._reviews = parts.reviews
        self._policy = parts.policy
        self._now = parts.now
        self._up = up = parts.up
        self._new_scope = parts.new_scope
        self._is_written = parts.run_log is not None
        self._windows = parts.windows
        self._has_rates = any(pool.has_rate for pool in parts.policy.pools.values())
        self._is_limited = self._has_rates or self._accounts.are_bound
        self._running: dict[str, LiveAttempt] = {}
        self.running: Mapping[str, LiveAttempt] = self._running
        self._starting = starting = Admission(parts)
        self.finish = finish = RunCompletion(parts)
        self.stopping = Cancellation(parts, finish, self._running)
        self.endings = AttemptCompletion(parts, RecoveryDecider(parts, starting), finish, self._running)
        self.inside = AskFromTool(parts)
        self.hedges: Hedging | None = None
        self._attempts: AttemptRunner
        self._perform: Callable[[LiveAttempt], Coroutine[Any, Any, Outcome]]
        up.on_external_change, up.end_if_nothing_is_left = self.on_external_change, self._end_if_nothing_is_left
        up.stop, up.stop_running = finish.stop, self.stopping.stop_running
        up.conclude, up.end_interrupted = self.endings.conclude, self.end_interrupted
        up.ask_again, up.cancelled_around = starting.ask_again, self._on_cancelled_around
        up.clock_stopped = self.stopping.clock_stopped

    def __repr__(self) -> str:
        return f"<Scheduler: {self.standing()}>"

    def standing(self) -> str:
        """Return how many steps are in each state, and which of them run, for the user of a debugger."""
        counts = Counter(node.state for node in self._graph.nodes.values())
        more = len(self._running) - MAX_SHOWN
        shown = ", ".join(islice(self._running, MAX_SHOWN)) + (f" and {more} more" if more > 0 else "")
        texts = (
            f"{counts[state]} {state}" + (f" ({shown})" if state is State.RUNNING else "")
            for state in State
            if counts[state]
        )
        return ", ".join(texts) or "no steps"

    def open(self, tasks: TaskGroup, alarms: Timers, attempts: AttemptRunner) -> None:
        """Set the task group of the run, and the parts that exist only inside it."""
        self.stopping.open(tasks, alarms)
        self.endings.alarms = alarms
        self._attempts = self._starting.attempts = self.endings.attempts = attempts
        if self.hedges is None:
            self._perform = attempts.perform
        else:
            self.hedges.open(tasks, alarms, attempts)
            self._perform = self.hedges.perform
        self.finish.alarms = alarms
        limit = self._policy.max_seconds  # the seconds before a run is resumed count, too
        if limit is not None:
            self.finish.ring_after(limit, self.finish.out_of_time)
            if self._policy.warn_at is not None:
                self.finish.ring_after(limit * self._policy.warn_at, self._nearly_out_of_time)

    def close(self) -> None:
        """Settle the rest, once no task of the run is alive."""
        self.finish.at_once()
        for live in list(self._running.values()):
            self.endings.conclude(live, None)
        self.endings.close()
        self.stopping.interrupt("the run was closed")

    # One step ---------------------------------------------------------------------------------------------

    async def run_step(self, node: Node, own: WorkerScope, is_fresh: bool) -> bool:
        """Run one step to the end of its attempt; return whether the task can run another step afterwards.

        Args:
            node: The step.
            own: The scope of the task.
            is_fresh: Whether nothing else ran on this task before.
        """
        live = self._begin(node, own.scope, is_fresh)
        if live is None:
            self._record.deliver()  # the next change may come in an hour
            # Code of the host has looked at its arguments, and may have told it to stop.
            return not own.scope.is_told
        outcome: Outcome | None = None  # remains if the attempt is cancelled, alone or with the code around the run
        try:
            if self._is_written and self._attempts.must_be_written(live.tool):
                outcome = await self._attempts.write_start(live)
            if outcome is None:
                outcome = await self._perform(live)
            if self._reviews is not None and outcome.state is _SUCCEEDED:
                unreviewed, outcome = outcome, None  # if the review is cancelled, it has not passed
                outcome = await self._review(live, unreviewed, self._reviews)
        finally:
            live.has_left = True
            if not own.is_innermost():
                own.close_leaks()
                outcome = leaked_outcome(live)
            if outcome is None or outcome.state is not _SUCCEEDED or live.was_interrupted:
                self._notice_cancellation(live)
            self.endings.conclude(live, outcome)
            if self.hedges is not None:
                self.hedges.left(live)
            self._record.deliver()
        # `is_told` without its call, as this runs at every step.
        if live.asked is not None or own.scope.cutoff is not None or own.has_leaked:
            return False
        return outcome.failure is None or outcome.failure.kind not in _UNCLEAN

    def _notice_cancellation(self, live: LiveAttempt) -> None:
        """Stop the run, if this attempt was the first to be cancelled with the code around the run.

        If the tool swallowed the cancellation, or raised another error, that is neither a success nor a failure.
        """
        if live.asked is None and (live.scope.is_told or is_being_cancelled()):
            self._on_cancelled_around()

    def _on_cancelled_around(self) -> None:
        self.stopping.interrupt(CANCELLED_AROUND)

    def _begin(self, node: Node, scope: StopScope, is_fresh: bool) -> LiveAttempt | None:
        """Start the attempt of a step; return `None` if no tool is to be called now."""
        if node.latest is not None and node.id in self._running:
            self.inside.resume(self._running[node.id], node)
            return None
        if not self._is_startable(node):
            self._put_back(node)
            return None
        plan = node.plan
        tool = node.tool if node.on_fallback else plan.tool
        live = LiveAttempt(node, tool, scope, is_fresh, self._now)
        if (self._windows or self._is_limited) and not self._has_room(live):
            self._put_back(node)
            return None
        if plan.is_timed or node.on_fallback:
            self._set_deadline(live)
        self._running[node.id] = live
        self._record.start_attempt(node, tool.name)
        failure = self._attempts.prepare(live)
        if failure is not None:
            self._accounts.give_back(live)
            self.endings.conclude(live, Outcome(State.FAILED, None, failure))
            return None
        return live

    def _has_room(self, live: LiveAttempt) -> bool:
        """Reserve provider and ceilings for the call of *live*; if there is no room, its step waits."""
        has_provider = bool(self._windows) or self._has_rates
        if has_provider and not self.endings.provider_limits.may_start(live.node):
            return False
        if self._accounts.are_bound and not self._accounts.reserve(live):
            return False
        if has_provider:
            self.endings.provider_limits.begin(live)
        return True

    def _put_back(self, node: Node) -> None:
        """Release the place of a step that is not called now."""
        self._frontier.release(node)
        self._end_if_nothing_is_left()

    def _is_startable(self, node: Node) -> bool:
        """Whether the tool is to be called now; if not, the step has been settled, expanded or held instead."""
        if node.state is not _READY or self.finish.is_closing:
            return False
        if not node.plan.is_plain or node.on_fallback:
            if not self._starting.is_startable(node):
                return False
            if not node.tool.effect.is_free and is_being_cancelled():
                self._on_cancelled_around()
                return False
        return not (node.plan.is_timed and self._starting.is_too_late(node))

    def _set_deadline(self, live: LiveAttempt) -> None:
        limit = self._starting.seconds_for(live.node)
        if limit is not None:
            live.limit = limit
            live.deadline = self._now() + limit
            self.stopping.arm(live)

    # Critics ----------------------------------------------------------------------------------------------

    async def _review(self, live: LiveAttempt, outcome: Outcome, reviews: Reviews) -> Outcome:
        """Ask the critics about the output of an attempt; the end of the attempt itself is recorded first."""
        node, record = live.node, self._record
        critics = reviews.wanted(node.plan.step)
        late = live.deadline is not None and self._now() > live.deadline
        if not critics or late or live.asked is not None:
            return outcome
        decision = Decision(Recovery.REVIEW, "critics look at it first")
        record.end_attempt(node, State.RUNNING, outcome, decision)
        rare = live.make_rare()
        rare.verdicts, live.deadline = (), None
        self._accounts.settle(live)
        record.deliver()
        self._up.nudge()  # this worker waits now, and its tool may never have
        rare.verdicts = await reviews.review(node.plan.step, outcome, critics, self._sources_of(node))
        return judged(outcome, rare.verdicts)

    def _sources_of(self, node: Node) -> Sources:
        """Return a function that decodes the sources of *node*, if a critic asks for them."""

        def decoded() -> dict[str, Any]:
            from dagrun.kernel.graph.confidence import sources_of

            return sources_of(self._graph, node)

        return decoded

    def end_interrupted(self, node: Node, stopped: str = "") -> None:
        """Record the end of an attempt that ended with its process; *stopped* is why the run is ended, if it is."""
        live = LiveAttempt(node, node.called(node.attempts[-1].tool), self._new_scope(), True, self._now)
        self.endings.end_interrupted(live, stopped)

    def review_again(self, node: Node) -> Callable[[], Coroutine[Any, Any, None]]:
        """Begin a review again that ended with its process.

        Returns:
            A coroutine function that does the review; the step counts as running from now on.
        """
        attempt = node.attempts[-1]
        unreviewed = attempt.outcome
        assert unreviewed is not None
        live = LiveAttempt(node, node.called(attempt.tool), self._new_scope(), True, self._now)
        live.tokens, live.cost, live.rare = unreviewed.tokens, unreviewed.cost, OptionalAttemptState(verdicts=())
        self._running[node.id] = live
        self._frontier.occupy(node)
        return partial(self._review_again, live, unreviewed)

    async def _review_again(self, live: LiveAttempt, unreviewed: Outcome) -> None:
        outcome: Outcome | None = None
        try:
            with live.scope:
                step = live.node.plan.step
                critics = self._reviews.wanted(step) if self._reviews is not None else []
                if self._reviews is not None and critics:
                    live.make_rare().verdicts = verdicts = await self._reviews.review(
                        step, unreviewed, critics, self._sources_of(live.node)
                    )
                    unreviewed = judged(unreviewed, verdicts)
                outcome = unreviewed
        finally:
            if outcome is None:
                self._notice_cancellation(live)
            self.endings.conclude(live, outcome)
            self.on_external_change()

    # Changes from outside ---------------------------------------------------------------------------------

    def splice(
        self,
        checked: CheckedPatch,
        origin: Origin,
        reason: str,
        *,
        is_agreed: bool = False,
        request: int = 0,
        refused: tuple[Problem, ...] = (),
    ) -> None:
        """Apply a patch, and stop the running steps that it takes out. No other step is touched.

        Args:
            checked: The patch.
            origin: Who made it.
            reason: Why, in a sentence.
            is_agreed: Whether a person has seen the patch, and agreed to it.
            request: The number of the request to the planner that it answers.
            refused: Why other edits of that answer were refused.
        """
        guards = unagreed_calls(self._graph, checked) if origin == "planner" and not is_agreed else {}
        self._record.splice(checked, origin, reason, guards, request, refused=refused)
        why = f"revision {self._graph.revision} of the plan does without it"
        for id_ in checked.consequence.cancelled:
            live = self._running.get(id_)
            if live is not None:
                self.stopping.tell(live, State.SUPERSEDED, why)
        self.on_external_change()

    def on_external_change(self) -> None:
        """Follow a change that no attempt has made: end the run if nothing is left, else wake workers."""
        self._end_if_nothing_is_left()
        self._up.nudge()
        self._record.deliver()

    def _end_if_nothing_is_left(self) -> None:
        if self._record.backlog.is_pending:
            return  # this is called again when all are settled
        self.finish.count_on()
        still_wait = self._accounts.are_bound and self._accounts.feed()
        if still_wait and len(self._running) <= self._accounts.waiting and (stuck := self._accounts.why_stuck()):
            self.finish.stop(Status.OVER_BUDGET, stuck)
        self.finish.finish_if_settled()
        if self._graph.questions or self.finish.suspending is not None:
            self._people.turn_away()
            self.finish.suspend_if_idle(self._running)
            if self.finish.suspending is not None and self._running and (self._accounts.waiting or self._people.asking):
                self.stopping.let_go_of_waiting()

    def _nearly_out_of_time(self) -> None:
        self._accounts.save("seconds", self._record.at(), self._policy.max_seconds or 0.0)
        self.on_external_change()
