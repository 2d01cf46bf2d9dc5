"""What is inside a run: its parts, how they are put together, opened, taken up from a record, and closed."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from anyio.abc import TaskGroup

from dagrun.errors import JournalError
from dagrun.graph.ledger import Ledger
from dagrun.graph.patches.check_patch import Splicer
from dagrun.graph.reopen import in_doubt
from dagrun.model.event import Event, RunResumed, RunStarted
from dagrun.model.planner import Planner
from dagrun.model.redaction.redactor import REDACTOR
from dagrun.runtime.backend import clock, event_class
from dagrun.runtime.deadlines import Alarms
from dagrun.runtime.journal_watch import JournalWatch
from dagrun.runtime.metering import RunMeter
from dagrun.runtime.people.letters import AnswersFromJournal
from dagrun.runtime.people.people import People
from dagrun.runtime.planning.coordinator import Coordinator
from dagrun.runtime.record.record import Record
from dagrun.runtime.record.recorder import Recorder
from dagrun.runtime.resume import Resumption
from dagrun.runtime.run_setup import RunSetup, random_of, state_of
from dagrun.runtime.steps.accounts import Accounts
from dagrun.runtime.steps.admission import Starting
from dagrun.runtime.steps.attempt import Attempts
from dagrun.runtime.steps.call_durations import Learning, learns
from dagrun.runtime.steps.hedging import Hedges
from dagrun.runtime.steps.reviews import Reviews
from dagrun.runtime.steps.scheduler import Scheduler
from dagrun.runtime.steps.workers import Workers
from dagrun.runtime.upcalls import Upcalls, weakly


class Machine:
    """The parts of one run.

    Args:
        setup: What it is made of.

    Attributes:
        graph: The state.
        record: Its owner.
        splicer: Checks patches.
        scheduler: Runs the steps.
        coordinator: Asks the planner; `None` if there is none.
        people: Asks people.
        ended: Set when the end of the run is recorded, or that it is suspended.
        learning: Notes how long calls take; `None` if the run has no use for it.
    """

    def __init__(self, setup: RunSetup) -> None:
        self._setup = setup
        plan, policy, tape, context = setup.plan, setup.plan.policy, setup.tape, setup.calls.context
        self._now = now = clock()
        self.ended = event_class()()
        built = setup.built or state_of(setup, partial(setup.shared.durations.medians_of, plan.toolbox))
        self._frontier, self.graph = built.frontier, built.graph
        self._frontier.on_room = weakly(self.nudge) if setup.shared.cap is not None else None
        self._up = up = Upcalls(
            nudge=self.nudge,
            suspended=self._on_suspend,
            charged=self._on_charge,
            on_stop=self._on_stop,
            on_end=self._on_end,
        )
        self.splicer = Splicer(self.graph)
        context.run(REDACTOR.set, plan.redactor)
        self._writer = Recorder(tape, self.graph, up, plan.secrets) if tape is not None else None
        keep, flush = (None, None) if self._writer is None else (self._writer.keep, self._writer.flush)
        self.record = record = Record(self.graph, now, up, keep, flush)
        on_room = weakly(self._on_room) if setup.shared.budget is not None else None
        self._ledger = Ledger(policy, setup.shared.budget, on_room)
        self.people = people = self._make_people()
        up.forget, up.hold_at_pause = people.forget, people.hold_at_pause
        self._accounts = Accounts(self.graph, record, policy, self._ledger)
        meter = partial(RunMeter, self._ledger, record, up)
        self._reviews = Reviews(critics, policy, context, now, meter) if (critics := setup.options["critics"]) else None
        self.scheduler = self._make_scheduler()
        self.scheduler.hedges = self._make_hedges()
        self.learning = Learning(setup.shared.durations) if learns(policy, setup.shared.cap) else None
        self.scheduler.endings.learning = self.learning
        self.coordinator = self._make_coordinator(setup.options["planner"])
        self._letters = AnswersFromJournal(tape, self.graph, people, up) if tape is not None else None
        self._watch = JournalWatch(record, up) if tape is not None else None
        self._alarms: Alarms
        self._workers: Workers
        self._is_open = False

    def _make_people(self) -> People:
        setup = self._setup
        return People(
            run_id=setup.run_id,
            record=self.record,
            policy=setup.plan.policy,
            approver=setup.options["approver"],
            is_attended=setup.options["attended"],
            context=setup.calls.context,
            now=self._now,
            up=self._up,
            can_wait=setup.tape is not None,
        )

    def _make_scheduler(self) -> Scheduler:
        record, policy, people = self.record, self._setup.plan.policy, self.people
        self._random = random_of(self._setup.options["seed"])
        return Scheduler(
            graph=self.graph,
            record=record,
            frontier=self._frontier,
            starting=Starting(graph=self.graph, record=record, policy=policy, people=people, now=self._now),
            people=people,
            accounts=self._accounts,
            reviews=self._reviews,
            policy=policy,
            random=self._random,
            now=self._now,
            up=self._up,
            may_wait=self._setup.tape is not None,
        )

    def _make_hedges(self) -> Hedges | None:
        policy = self._setup.plan.policy
        if policy.hedge is None:
            return None
        return Hedges(
            policy.hedge,
            grace=policy.grace,
            graph=self.graph,
            record=self.record,
            frontier=self._frontier,
            running=self.scheduler.running,
            accounts=self._accounts,
            reviews=self._reviews,
            durations=self._setup.shared.durations,
            share=self._setup.shared.hedge_share,
            now=self._now,
            finish=self.scheduler.finish,
            up=self._up,
        )

    def _make_coordinator(self, planner: Planner | None) -> Coordinator | None:
        if planner is None:
            return None
        setup = self._setup
        coordinator = Coordinator(
            planner=planner,
            run_id=setup.run_id,
            record=self.record,
            splicer=self.splicer,
            scheduler=self.scheduler,
            ledger=self._ledger,
            people=self.people,
            context=setup.calls.context,
            random=self._random,
            now=self._now,
            up=self._up,
            is_plan_only=setup.is_plan_only,
        )
        self.record.replan_on = frozenset(setup.plan.policy.replan_on)
        self._up.wake_planner, self._up.go_on = coordinator.wake, coordinator.go_on
        return coordinator

    @property
    def failure(self) -> JournalError | None:
        """Why the journal cannot be written any more, if that is so."""
        return self._watch.failure if self._watch is not None else None

    @property
    def has_ended(self) -> bool:
        """Whether every step has settled, or the run is suspended."""
        return self.ended.is_set()

    # Opening ----------------------------------------------------------------------------------------------

    def open(self, tasks: TaskGroup, taken_over: Callable[[Record], None] | None = None) -> None:
        """Begin the record; nothing runs before `go`.

        Args:
            tasks: The task group of the run.
            taken_over: Settles what the run does not have to do again, because another one has done it.
        """
        record, setup = self.record, self._setup
        record.zero = self._now()
        self._open_parts(tasks)
        count, goal = len(self.graph.nodes), setup.plan.plan.goal
        facts = (setup.run_id, count, goal, time.time(), setup.opening)
        record.begin_run(RunStarted(record.next_seq(), record.at(), *facts))
        if taken_over is not None:
            taken_over(record)

    def go(self, tasks: TaskGroup) -> None:
        """Start what waits for nothing."""
        if self.coordinator is not None:
            self.coordinator.begin()
        self._begin(tasks)

    def _begin(self, tasks: TaskGroup) -> None:
        self.record.skips.open(tasks)
        self.record.last_look.open(tasks)
        if self._letters is not None:
            self._letters.open(tasks)
        self.scheduler.settle_down()

    def take_up(self, tasks: TaskGroup, last: Event, resumed: Callable[[int, float], RunResumed]) -> None:
        """Go on with a run whose state has been folded from its record.

        Args:
            tasks: The task group of the run.
            last: The last event on record.
            resumed: Makes the event that says that it goes on.
        """
        self.record.zero = self._now() - last.at
        self._open_parts(tasks)
        doubtful = in_doubt(self.graph)
        self.record.take_up(last.seq, last.at, resumed)
        if doubtful:
            self.record.reopen(doubtful, "an effect is in doubt, and may be settled now")
        Resumption(
            graph=self.graph,
            record=self.record,
            frontier=self._frontier,
            scheduler=self.scheduler,
            people=self.people,
            accounts=self._accounts,
            ledger=self._ledger,
            coordinator=self.coordinator,
            alarms=self._alarms,
            tasks=tasks,
            was_over=bool(doubtful),
        ).go_on()
        self._begin(tasks)

    def _open_parts(self, tasks: TaskGroup) -> None:
        """Give the parts what exists only inside the task group of the run."""
        record, setup = self.record, self._setup
        self._alarms = Alarms(tasks, self._now, record.deliver)
        self._workers = Workers(tasks, self._frontier, self.scheduler.run_step, setup.calls.context, self._now)
        attempts = Attempts(
            run_id=setup.run_id,
            graph=self.graph,
            executors=setup.calls.executors,
            artifacts=setup.calls.artifacts,
            context=setup.calls.context,
            grace=setup.plan.policy.grace,
            on_progress=record.progress,
            now=self._now,
            ask_person=self.scheduler.inside.ask,
            root=setup.opening.root if setup.opening is not None else setup.run_id,
            up=self._up,
            tape=setup.tape,
        )
        self._up.key_of = attempts.key_of
        self.people.open(tasks, self._alarms)
        if self._reviews is not None:
            self._reviews.open(tasks)
        if self.coordinator is not None:
            self.coordinator.open(tasks)
        self.scheduler.open(tasks, self._alarms, attempts)
        if self.scheduler.hedges is not None:
            self.scheduler.hedges.open(tasks, setup.calls.context, self._alarms, attempts)
        if setup.tape is not None and self._watch is not None:
            self._watch.open(tasks, setup.tape)
        self._is_open = True

    # What the parts tell each other -----------------------------------------------------------------------

    def _on_suspend(self) -> None:
        self.record.deliver()
        self._workers.suspended()

    def _on_room(self) -> None:
        """Another run has given back what this one waits for, or what it will never get."""
        if self._accounts.feed():
            self._alarms.at(self._now(), self.scheduler.settle_down)  # not at once: either run may be amid a change
        self.nudge()

    def _on_charge(self) -> None:
        self._accounts.look()
        self.scheduler.settle_down()

    def _on_stop(self) -> None:
        self._accounts.is_closed = True
        self.record.replan_on = ()
        if self.coordinator is not None:
            self.coordinator.close()

    def _on_end(self) -> None:
        self.ended.set()
        if self.coordinator is not None:
            self.coordinator.close()
        if self._letters is not None and self._watch is not None:
            self._letters.close()
            self._watch.close()
        self.people.close()
        self._workers.stop()
        self._alarms.stop()
        self._frontier.leave()
        self._ledger.leave()

    def interrupt(self, reason: str) -> None:
        """Stop everything: the code around the run was cancelled or failed. One that was not opened has nothing yet."""
        if self._is_open:
            self.scheduler.stopping.interrupt(reason)
            self.record.deliver()

    def close(self) -> None:
        """Settle what is left, once no task of the run is alive; the parts let go of each other."""
        if self._is_open:
            self.scheduler.close()
            self.record.deliver()
        self._up.cut()

    def nudge(self) -> None:
        """Wake a worker, if there is anything to do."""
        if not self.has_ended:
            self._workers.nudge()
