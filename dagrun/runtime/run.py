"""A run, as the host program holds it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextvars import Context
from functools import partial
from random import Random

import anyio
from anyio.abc import TaskGroup

from dagrun.errors import ContractError, Problem, SpliceRefused, StepNotFound
from dagrun.graph.budget import Budget
from dagrun.graph.checked import CheckedPlan
from dagrun.graph.frontier import Cap
from dagrun.graph.history import PlanHistory
from dagrun.graph.ledger import Ledger
from dagrun.graph.limits import make_frontier
from dagrun.graph.live import LiveGraph
from dagrun.graph.patch import CheckedPatch, Splicer
from dagrun.model.brief import Planner
from dagrun.model.event import RunStarted
from dagrun.model.outcome import State, Status, TriggerKind
from dagrun.model.patch import Consequence, Patch
from dagrun.model.protocols import Executor
from dagrun.model.question import Answer, Approver, Question, answer_from
from dagrun.model.toolbox import hint
from dagrun.model.value import Stored
from dagrun.model.verdict import Critic
from dagrun.runtime.accounts import Accounts
from dagrun.runtime.alarms import Alarms
from dagrun.runtime.artifacts import ArtifactFolder
from dagrun.runtime.attempt import Attempts
from dagrun.runtime.backend import clock
from dagrun.runtime.coordinator import Coordinator
from dagrun.runtime.metering import RunMeter
from dagrun.runtime.observers import DEFAULT_BUFFER, Observer, Subscription
from dagrun.runtime.people import People
from dagrun.runtime.record import Record
from dagrun.runtime.result import RunResult, StepResults
from dagrun.runtime.reviews import Reviews
from dagrun.runtime.scheduler import Scheduler
from dagrun.runtime.starting import Starting
from dagrun.runtime.workers import Workers


class Run:
    """A plan that is being carried out. Made by `dagrun.start`.

    Args:
        plan: The checked plan.
        inputs: What ``${input}`` stands for, stored.
        run_id: Its name, unique.
        executors: By name.
        artifacts: Where tools keep files.
        context: The context variables that every tool starts from.
        random: For the jitter of retry delays.
        shared: A cap that counts the steps of several runs, or none.
        budget: Ceilings that several runs share, or none.
        planner: Who is asked when the plan has to change, or nobody.
        critics: Who looks at what steps give.
        approver: Who answers questions, or nobody.
        attended: Whether the host answers them, through `pending` and `answer`.
        is_plan_only: Whether nothing runs: the planner's plan is all that is wanted.
    """

    def __init__(
        self,
        plan: CheckedPlan,
        *,
        inputs: Stored,
        run_id: str,
        executors: Mapping[str, Executor],
        artifacts: ArtifactFolder,
        context: Context,
        random: Random,
        shared: Cap | None = None,
        budget: Budget | None = None,
        planner: Planner | None = None,
        critics: Sequence[Critic] = (),
        approver: Approver | None = None,
        attended: bool = False,
        is_plan_only: bool = False,
    ) -> None:
        self.id = run_id
        self.artifacts = artifacts
        self._thread = threading.get_ident()
        self._plan = plan
        self._executors = executors
        self._context = context
        self._now = now = clock()
        self._ended = anyio.Event()
        self._frontier, caps_of = make_frontier(plan, shared, self._nudge)
        self._graph = LiveGraph(plan, inputs, self._frontier, caps_of)
        self._splicer = Splicer(self._graph)
        self._record = record = Record(self._graph, now, self._stop)
        self._ledger = ledger = Ledger(plan.policy, budget, self._on_room)
        self._people = People(
            run_id=run_id,
            record=record,
            policy=plan.policy,
            approver=approver,
            is_attended=attended,
            context=context,
            now=now,
            stop=self._stop,
            settle_down=self._settle_down,
        )
        record.on_void = self._people.forget
        record.on_pause = self._people.hold_at_pause
        self._accounts = Accounts(self._graph, record, plan.policy, ledger)
        meter = partial(RunMeter, ledger, self._on_charge)
        self._reviews = Reviews(critics, plan.policy, context, now, meter) if critics else None
        self._scheduler = Scheduler(
            graph=self._graph,
            record=record,
            frontier=self._frontier,
            starting=Starting(graph=self._graph, record=record, policy=plan.policy, people=self._people, now=now),
            people=self._people,
            accounts=self._accounts,
            reviews=self._reviews,
            policy=plan.policy,
            random=random,
            now=now,
            on_ready=self._nudge,
            on_stop=self._on_stop,
            on_more=lambda: self._coordinator is not None and self._coordinator.go_on(),
            on_end=self._end,
        )
        self._coordinator = self._coordinator_for(planner, random, is_plan_only=is_plan_only)
        self._alarms: Alarms
        self._workers: Workers

    def _coordinator_for(self, planner: Planner | None, random: Random, *, is_plan_only: bool) -> Coordinator | None:
        if planner is None:
            return None
        coordinator = Coordinator(
            planner=planner,
            run_id=self.id,
            record=self._record,
            splicer=self._splicer,
            scheduler=self._scheduler,
            ledger=self._ledger,
            people=self._people,
            context=self._context,
            random=random,
            now=self._now,
            on_charge=self._on_charge,
            is_plan_only=is_plan_only,
        )
        self._record.replan_on = frozenset(self._plan.policy.replan_on)
        self._record.on_trigger = coordinator.wake
        return coordinator

    # For the host program ---------------------------------------------------------------------------------

    @property
    def states(self) -> dict[str, State]:
        """Where every step stands now, elements of for_each included."""
        return {id_: node.state for id_, node in self._graph.nodes.items()}

    @property
    def has_ended(self) -> bool:
        """Whether every step has settled."""
        return self._ended.is_set()

    def events(self, buffer: int = DEFAULT_BUFFER) -> Subscription:
        """Watch the run from now on: an async iterator over its events.

        Args:
            buffer: Events kept for an observer that falls behind; beyond it sees a `Gap`.

        Raises:
            ContractError: A buffer without room for one event.
        """
        if buffer < 1:
            raise ContractError(f"buffer must be at least 1, got {buffer}")
        subscription = Subscription(buffer)
        self._record.watch(subscription)
        return subscription

    def cancel(self, step: str | None = None, reason: str = "cancelled by the host") -> bool:
        """Cancel one step, or the whole run. What depends on a cancelled step is skipped; the rest goes on.

        Args:
            step: The id of the step; `None` for the run.
            reason: Kept in the record.

        Returns:
            Whether there was something left to cancel.

        Raises:
            ContractError: It was called in another thread than that of the loop.
            StepNotFound: There is no such step.
        """
        # Before anything has changed: half a cancellation would leave a step that nobody ever wakes.
        self._must_be_in_loop("cancelled", "run_sync(run.cancel)")
        if step is not None and step not in self._graph.nodes:
            raise StepNotFound(f"the run has no step {step!r}{hint(step, self._graph.nodes)}")
        if step is None:
            was_running = not self.has_ended
            self._scheduler.stop(Status.CANCELLED, reason)
        else:
            was_running = self._scheduler.cancel_step(self._graph.nodes[step], reason)
        self._record.deliver()
        return was_running

    # Changing the plan ------------------------------------------------------------------------------------

    @property
    def plan(self) -> PlanHistory:
        """The plan as it stands at this instant, with all its revisions."""
        return PlanHistory(self._graph.plan.plan, self._graph.revisions)

    def check(self, patch: Patch) -> Consequence:
        """Say what *patch* would do to the plan at this instant, and change nothing.

        Raises:
            SpliceRefused: It has problems; all of them are in the error.
        """
        return self._checked(patch).consequence

    async def splice(self, patch: Patch) -> Consequence:
        """Apply *patch* to the plan, all of it at this instant; what it does not touch keeps running.

        Args:
            patch: The edits. With a *base*, it is refused if a later revision has changed a step that it names, or a
                neighbour of one that it edits.

        Returns:
            What it did.

        Raises:
            SpliceRefused: It has problems; all of them are in the error, and the plan is as it was.
        """
        self._must_be_in_loop()
        try:
            checked = self._checked(patch)
        except SpliceRefused as error:
            if self._graph.status is None:  # whoever is shown the end may still try
                self._record.refuse_patch("host", error.problems)
                self._record.deliver()
            raise
        self._scheduler.splice(checked, "host", patch.reason)
        if self._coordinator is not None and self._graph.triggers:
            self._coordinator.wake()
        return checked.consequence

    def _checked(self, patch: Patch) -> CheckedPatch:
        if self._scheduler.is_stopping:
            raise SpliceRefused((Problem("DR417", ""),))
        checked, problems = self._splicer.check(patch)
        if checked is None:
            raise SpliceRefused(problem for problem in problems if not problem.is_advice)
        return checked

    async def change_goal(self, goal: str) -> None:
        """Want something else: nothing starts that has not started, until the planner has found a plan for it.

        Args:
            goal: What the run is for from now on.

        Raises:
            ContractError: The run has no planner, has ended, or may not ask its planner about a changed goal.
        """
        self._must_be_in_loop()
        if self._coordinator is None or TriggerKind.GOAL_CHANGED not in self._plan.policy.replan_on:
            raise ContractError("only a run with a planner that is asked about it can change its goal: planner=…")
        if self.has_ended or self._scheduler.is_stopping:
            raise ContractError("the run has ended, or is being stopped")
        self._record.change_goal(goal)
        self._settle_down()

    # People -----------------------------------------------------------------------------------------------

    @property
    def pending(self) -> tuple[Question, ...]:
        """The questions that are open, in the order in which they were asked."""
        return tuple(self._graph.questions.values())

    async def answer(self, question: str | Question | Iterable[str | Question], answer: Answer | bool) -> None:
        """Answer an open question, or several approvals at once.

        Args:
            question: The question or its id; or several.
            answer: Yes, no, or an `Answer` with a value, a note, or the points of the checklist that were ticked.

        Raises:
            QuestionNotFound: It was never asked, has been answered, or has become void.
            AnswerRefused: The answer does not fit; or it says yes to several calls that change the world each time.
        """
        self._must_be_in_loop()
        several = [question] if isinstance(question, str | Question) else list(question)
        self._people.answer([q.id if isinstance(q, Question) else q for q in several], answer_from(answer))

    def _must_be_in_loop(self, done: str = "changed", how: str = "run(run.splice, …)") -> None:
        if threading.get_ident() != self._thread and not self.has_ended:
            raise ContractError(f"a run is {done} in its loop; in a thread, use anyio.from_thread.{how}")

    async def result(self) -> RunResult:
        """Wait for the run to end, and give its result. A step that would not stop does not hold it up."""
        await self._ended.wait()
        graph, seconds = self._graph, self._record.makespan
        assert graph.status is not None
        return RunResult(self.id, graph.status, graph.reason, StepResults(graph.nodes), self.artifacts, seconds, graph)

    # For the one who opens it -----------------------------------------------------------------------------

    def open(self, tasks: TaskGroup) -> None:
        """Start: every step that waits for nothing becomes ready."""
        record = self._record
        record.zero = self._now()
        self._alarms = Alarms(tasks, self._now, record.deliver)
        self._workers = Workers(tasks, self._frontier, self._scheduler.run_step, self._context, self._now)
        attempts = Attempts(
            run_id=self.id,
            graph=self._graph,
            executors=self._executors,
            artifacts=self.artifacts,
            context=self._context,
            grace=self._plan.policy.grace,
            on_suspend=self._on_suspend,
            on_progress=record.progress,
            now=self._now,
            ask_person=self._scheduler.inside.ask,
        )
        self._people.open(tasks, self._alarms)
        if self._reviews is not None:
            self._reviews.open(tasks)
        if self._coordinator is not None:
            self._coordinator.open(tasks)
        self._scheduler.open(self._alarms, attempts)
        goal = self._plan.plan.goal
        record.begin_run(RunStarted(record.next_seq(), record.at(), self.id, len(self._graph.nodes), goal, time.time()))
        if self._coordinator is not None:
            self._coordinator.begin()
        self._scheduler.finish_if_settled()
        record.deliver()
        self._nudge()

    def watch(self, observer: Observer) -> None:
        """Show the events of the run to *observer*, from now on."""
        self._record.watch(observer)

    async def wait_until_ended(self) -> None:
        """Wait until every step has settled."""
        await self._ended.wait()

    def interrupt(self, reason: str) -> None:
        """The code around the run was cancelled or failed: stop everything; the task group unwinds it."""
        self._scheduler.stop(Status.CANCELLED, reason)
        self._record.deliver()

    def close(self) -> None:
        """Settle what is left, once no task of the run is alive."""
        self._scheduler.close()
        self._record.deliver()

    def _on_suspend(self) -> None:
        self._record.deliver()
        self._workers.suspended()

    def _stop(self, status: Status, reason: str) -> None:  # the scheduler is made after those who call it
        self._scheduler.stop(status, reason)

    def _settle_down(self) -> None:
        self._scheduler.settle_down()

    def _on_room(self) -> None:
        """Another run has given back what this one waits for, or what it will never get."""
        if self._accounts.feed():
            self._alarms.at(self._now(), self._settle_down)  # not at once: either run may be amid a change
        self._nudge()

    def _on_charge(self) -> None:
        self._accounts.look()
        self._settle_down()

    def _on_stop(self) -> None:
        self._accounts.is_closed = True
        self._record.replan_on = ()
        if self._coordinator is not None:
            self._coordinator.close()

    def _end(self) -> None:
        self._ended.set()
        if self._coordinator is not None:
            self._coordinator.close()
        self._people.close()
        self._workers.stop()
        self._alarms.stop()
        self._frontier.leave()
        self._ledger.leave()

    def _nudge(self) -> None:
        if not self.has_ended:
            self._workers.nudge()
