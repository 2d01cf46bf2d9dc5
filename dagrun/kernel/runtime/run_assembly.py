"""Putting the parts of a run together: making, opening, resuming and closing them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from anyio.abc import TaskGroup

from dagrun.errors import JournalError
from dagrun.kernel.graph.fold import in_doubt
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.event import Event, RunResumed, RunStarted
from dagrun.kernel.model.outcome import Status
from dagrun.kernel.model.question import ControlMessage
from dagrun.kernel.runtime.backend import event_class
from dagrun.kernel.runtime.deadlines import Timers
from dagrun.kernel.runtime.people.inbox_messages import MessagesFromJournal
from dagrun.kernel.runtime.record.record import Record
from dagrun.kernel.runtime.record.recorder import JournalWatch
from dagrun.kernel.runtime.run_callbacks import RunCallbacks, weakly
from dagrun.kernel.runtime.run_parts import RunParts
from dagrun.kernel.runtime.run_setup import RunSetup
from dagrun.kernel.runtime.steps.attempt import AttemptRunner
from dagrun.kernel.runtime.steps.attempt_completion import DurationRecorder, learns
from dagrun.kernel.runtime.steps.scheduler import Scheduler
from dagrun.kernel.runtime.steps.workers import Workers

if TYPE_CHECKING:
    from dagrun.kernel.decide.durations import Durations
    from dagrun.kernel.model.policy import HedgeRule
    from dagrun.kernel.runtime.live_attempt import LiveAttempt
    from dagrun.kernel.runtime.planning.coordinator import Coordinator
    from dagrun.kernel.runtime.plugin_calls import CallClock
    from dagrun.kernel.runtime.run_features import CallSharer, CallStream, Composer, Hedging, PlacesOfCall, ProviderGate
    from dagrun.kernel.runtime.run_setup import CallSettings
    from dagrun.kernel.runtime.steps.attempt import AskInside


class RunFeatures(Protocol):
    """Makes the parts of a run that belong to features."""

    @property
    def windows(self) -> Mapping[str, Any]:
        """The limits that providers have shown to the runs of the engine; empty as long as there are none."""
        ...

    def places(self, clock: CallClock) -> PlacesOfCall:
        """Return the places of the models that one call of a planner or a critic asks; *clock* is its time."""
        ...

    def provider_limits(self, parts: RunParts, alarms: Timers) -> ProviderGate:
        """Return the limits of the providers of a run: one has refused a call for now, or the policy has a rate."""
        ...

    def composer(self, parts: RunParts, scheduler: Scheduler) -> Composer:
        """Return the part that composes the answer: the run has the option *compose*."""
        ...

    def hedging(self, parts: RunParts, rule: HedgeRule, durations: Durations, scheduler: Scheduler) -> Hedging:
        """Return the part that makes second calls beside slow ones: the policy has a *rule* for it.

        Args:
            parts: What the parts of the run share.
            rule: Which calls get a second one, and when.
            durations: How long the calls of each tool took.
            scheduler: Knows the running attempts.
        """
        ...

    def stream(self, parts: RunParts, scheduler: Scheduler, live: LiveAttempt, fan: Node) -> CallStream:
        """Return the stream of the elements of *fan*: the tool of *live*, whose call begins, takes them one by one."""
        ...

    def call_sharer(
        self,
        parts: RunParts,
        calls: CallSettings,
        *,
        root: str,
        ask_person: AskInside,
        tasks: TaskGroup,
        alarms: Timers,
    ) -> CallSharer:
        """Return the part that shares calls: the run has tools with a cache or a batch form.

        Args:
            parts: What the parts of the run share.
            calls: The settings of its calls.
            root: As for `AttemptRunner`.
            ask_person: As for `AttemptRunner`.
            tasks: The task group of the run.
            alarms: The alarms of the run.
        """
        ...


class RunAssembly:
    """Puts the parts of one run together, and opens and closes them.

    Args:
        setup: What the run is made of.
        features: Makes the parts that belong to features.

    Attributes:
        parts: What the parts share.
        scheduler: Runs the steps.
        coordinator: Asks the planner; `None` if there is none.
        ended: Set when the end of the run is recorded, or that it is suspended.
        learning: Notes how long calls take; `None` if the run has no use for that.
    """

    def __init__(self, setup: RunSetup, features: RunFeatures) -> None:
        self._setup = setup
        self._features = features
        self.ended = event_class()()
        self._up = up = RunCallbacks(
            suspended=self._on_suspend,
            charged=self._on_charge,
            on_stop=self._on_stop,
            on_end=self._on_end,
            ordered=self._on_order,
        )
        # A budget that several runs share outlives this run.
        on_room = weakly(self._on_room) if setup.shared.budget is not None else None
        self.parts = parts = RunParts(setup, up, on_room, features.windows, features.places)
        self._record = parts.record
        self.learning = DurationRecorder(setup.shared.durations) if learns(parts.policy, setup.shared.cap) else None
        self.scheduler = Scheduler(parts)
        up.open_stream = partial(features.stream, parts, self.scheduler)
        self.scheduler.hedges = self._make_hedging()
        self.scheduler.endings.learning = self.learning
        self.scheduler.endings.make_limits = partial(features.provider_limits, parts)
        self.coordinator = self._make_coordinator()
        self.composing = self._make_composer()
        run_log = parts.run_log
        self._letters = MessagesFromJournal(run_log, parts.graph, parts.people, up) if run_log is not None else None
        self._watch = JournalWatch(parts.record, up) if run_log is not None else None
        self._alarms: Timers
        self._workers: Workers
        self._sharing: CallSharer | None = None
        self._is_open = False

    def _make_hedging(self) -> Hedging | None:
        rule = self.parts.policy.hedge
        if rule is None:
            return None
        return self._features.hedging(self.parts, rule, self._setup.shared.durations, self.scheduler)

    def _make_coordinator(self) -> Coordinator | None:
        planner = self._setup.options["planner"]
        if planner is None:
            return None
        self._record.replan_on = frozenset(self.parts.policy.planning.replan_on)
        from dagrun.kernel.runtime.planning.coordinator import Coordinator  # here: few runs have a planner

        return Coordinator(self.parts, planner, self.scheduler, is_plan_only=self._setup.is_plan_only)

    def _make_composer(self) -> Composer | None:
        if self._setup.options["compose"] is None or self._setup.is_plan_only:
            return None
        return self._features.composer(self.parts, self.scheduler)

    @property
    def failure(self) -> JournalError | None:
        """The failure of the journal; `None` if it can be written."""
        return self._watch.failure if self._watch is not None else None

    # Opening ----------------------------------------------------------------------------------------------

    def open(self, tasks: TaskGroup, taken_over: Callable[[Record], None] | None = None) -> None:
        """Begin the record; nothing runs before `go`.

        Args:
            tasks: The task group of the run.
            taken_over: Settles the steps that the run does not have to do, because another run has done them.
        """
        record, setup = self._record, self._setup
        record.zero = self.parts.now()
        self._open_parts(tasks)
        count, goal = len(self.parts.graph.nodes), setup.plan.plan.goal
        facts = (setup.run_id, count, goal, time.time(), setup.opening)
        record.begin_run(RunStarted(record.next_seq(), record.at(), *facts))
        if taken_over is not None:
            taken_over(record)
            record.open_frames(setup.calls.artifacts)

    def go(self, tasks: TaskGroup) -> None:
        """Start the steps that wait for nothing."""
        if self.coordinator is not None:
            self.coordinator.begin()
        self._begin(tasks, 1)

    def _begin(self, tasks: TaskGroup, first: int) -> None:
        self._record.backlog.open(tasks)
        if self._letters is not None:
            self._letters.open(tasks, first)
        self.scheduler.on_external_change()

    def resume(self, tasks: TaskGroup, last: Event, resumed: Callable[[int, float], RunResumed]) -> None:
        """Resume a run whose state has been folded from its record.

        Args:
            tasks: The task group of the run.
            last: The last event on record.
            resumed: Makes the event that says that the run is resumed.
        """
        record = self._record
        record.zero = self.parts.now() - last.at
        self._open_parts(tasks)
        doubtful = in_doubt(self.parts.graph)
        record.resume_run(last.seq, last.at, resumed)
        if doubtful:
            record.reopen(doubtful, "an effect is unresolved, and may be resolved now")
        from dagrun.kernel.runtime.resume import Resumption

        record.open_frames(self._setup.calls.artifacts)
        Resumption(self.parts, self.scheduler, self.coordinator, tasks, was_over=bool(doubtful)).resume()
        self._begin(tasks, last.seq + 1)

    def _open_parts(self, tasks: TaskGroup) -> None:
        """Give the parts the objects that exist only inside the task group of the run."""
        parts, setup = self.parts, self._setup
        self._alarms = Timers(tasks, parts.now, parts.record.deliver)
        self._workers = workers = Workers(
            tasks,
            parts.frontier,
            self.scheduler.run_step,
            parts.context,
            now=parts.now,
            new_scope=parts.new_scope,
        )
        self._up.nudge = workers.nudge
        if setup.shared.cap is not None:
            parts.frontier.on_room = weakly(workers.nudge)  # the shared cap outlives the run, too
        root = setup.opening.root if setup.opening is not None else setup.run_id
        attempts = AttemptRunner(
            parts, setup.calls.executors, setup.calls.artifacts, root=root, ask_person=self.scheduler.inside.ask
        )
        if attempts.shares:
            attempts.sharing = self._sharing = self._features.call_sharer(
                parts, setup.calls, root=root, ask_person=self.scheduler.inside.ask, tasks=tasks, alarms=self._alarms
            )
        parts.people.open(tasks, self._alarms)
        if parts.reviews is not None:
            parts.reviews.open(tasks)
        if self.coordinator is not None:
            self.coordinator.open(tasks)
        self.scheduler.open(tasks, self._alarms, attempts)
        if self._watch is not None and parts.run_log is not None:
            self._watch.open(tasks, parts.run_log)
        self._is_open = True

    # What the parts tell each other -----------------------------------------------------------------------

    def _on_suspend(self) -> None:
        self._record.deliver()
        self._workers.suspended()

    def _on_room(self) -> None:
        """Another run has returned room that this run waits for, or there will never be room for this run."""
        if self.parts.accounts.feed():
            # Not at once: either run may be in the middle of a change.
            self._alarms.at(self.parts.now(), self.scheduler.on_external_change)
        self._workers.nudge()

    def _on_order(self, order: ControlMessage) -> None:
        """Carry out an order to stop. One about a step that is not there, or has ended, changes nothing."""
        if order.control == "suspend":
            self.scheduler.stopping.suspend(Status.CANCELLED, order.text)
        elif not order.step:
            self.cancel(None, order.text)
        elif (node := self.parts.graph.nodes.get(order.step)) is not None:
            self.cancel(node, order.text)

    def cancel(self, step: Node | None, reason: str) -> bool:
        """Cancel a step, or the run; return whether there was anything left to cancel."""
        if self.parts.graph.status is not None:
            return False  # also if it is suspended, and steps are open: its record is over
        was_running = True
        if step is None:
            self.scheduler.finish.stop(Status.CANCELLED, reason)
        else:
            was_running = self.scheduler.stopping.cancel_step(step, reason)
        self._record.deliver()
        return was_running

    def call_at(self, seconds: float, ring: Callable[[], None]) -> bool:
        """Call *ring* at a time of the run in seconds, if the run is open and has not ended."""
        if self._is_open:
            self._alarms.at(self._record.zero + seconds, ring)
        return self._is_open

    def _on_charge(self) -> None:
        self.parts.accounts.look()
        self.scheduler.on_external_change()

    def _on_stop(self) -> None:
        self.parts.accounts.is_closed = True
        self._record.replan_on = ()
        if self.coordinator is not None:
            self.coordinator.close()

    def _on_end(self) -> None:
        self.ended.set()
        if self.composing is not None:
            self.composing.tell()
        self._workers.stop()
        if self.coordinator is not None:
            self.coordinator.close()
        if self._letters is not None and self._watch is not None:
            self._letters.close()
            self._watch.close()
        self.parts.people.close()
        self._alarms.stop()
        self.scheduler.endings.release_kept()
        if self._sharing is not None:
            self._sharing.close()
        self.parts.frontier.leave()
        self.parts.ledger.leave()

    def interrupt(self, reason: str) -> None:
        """Stop everything: the code around the run was cancelled or failed. A run that is not open has nothing yet."""
        if self._is_open:
            self.scheduler.stopping.interrupt(reason)
            self._record.deliver()

    def close(self) -> None:
        """Settle the rest, once no task of the run is alive, and cut the references between the parts."""
        if self._is_open:
            self.scheduler.close()
            self._record.deliver()
        self._up.cut()
