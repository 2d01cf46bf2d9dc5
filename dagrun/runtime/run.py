"""A run, as the host program holds it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from anyio.abc import TaskGroup

from dagrun.decide.durations import Durations
from dagrun.errors import ContractError, Problem, SpliceRefused, StepNotFound
from dagrun.graph.fold import fold
from dagrun.graph.patches.apply_patch import CheckedPatch
from dagrun.graph.plan_history import PlanHistory
from dagrun.model.event import Event, RunResumed
from dagrun.model.outcome import State, Status, TriggerKind
from dagrun.model.patch import Consequence, Patch
from dagrun.model.question import Answer, Question, answer_from
from dagrun.model.toolbox import hint
from dagrun.runtime.backend import let_others_run
from dagrun.runtime.record.observers import DEFAULT_BUFFER, Observer, Subscription
from dagrun.runtime.record.record import Record
from dagrun.runtime.result import RunResult, StepResults
from dagrun.runtime.run_assembly import RunAssembly
from dagrun.runtime.run_setup import RunSetup


class Run:
    """A plan that is being carried out. Made by `dagrun.start` or `dagrun.resume`.

    Args:
        setup: What it is made of.

    Attributes:
        id: Its name.
        artifacts: Where the files of its tools are.
    """

    def __init__(self, setup: RunSetup) -> None:
        self.id = setup.run_id
        self.artifacts = setup.artifacts
        self._thread = threading.get_ident()
        self._plan = setup.plan
        self._tape = setup.tape
        self._assembly = assembly = RunAssembly(setup)
        self._graph = assembly.parts.graph
        self._record = assembly.parts.record
        self._people = assembly.parts.people
        self._scheduler = assembly.scheduler
        self._coordinator = assembly.coordinator

    def __repr__(self) -> str:
        graph, scheduler = self._graph, self._scheduler
        status = graph.status or ("stopping" if scheduler.finish.is_closing else "running")
        return f"<Run {self.id} {status}: {scheduler.standing()}>"

    # For the host program ---------------------------------------------------------------------------------

    @property
    def states(self) -> dict[str, State]:
        """Where every step stands now, elements of for_each included."""
        return {id_: node.state for id_, node in self._graph.nodes.items()}

    @property
    def has_ended(self) -> bool:
        """Whether every step has settled, or the run is suspended."""
        return self._assembly.ended.is_set()

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

        Nothing starts any more in a run that is cancelled. Of more than 500 steps that this ends some may be open still
        when it comes back: they are settled in portions, between which others in the loop get their turn.

        Args:
            step: The id of the step; `None` for the run.
            reason: Kept in the record.

        Returns:
            Whether there was something left to cancel.

        Raises:
            ContractError: It was called in another thread than that of the loop; or the reason is no text.
            StepNotFound: There is no such step.
        """
        # Before anything has changed: half a cancellation would leave a step that nobody ever wakes.
        self._must_be_in_loop("cancelled", "run_sync(run.cancel)")
        _must_be_text(reason)
        if step is not None and step not in self._graph.nodes:
            raise StepNotFound(f"the run has no step {step!r}{hint(step, self._graph.nodes)}")
        if self._graph.status is not None:
            return False  # it may be suspended, with steps that are open: its record is over
        if step is None:
            was_running = True
            self._scheduler.finish.stop(Status.CANCELLED, reason)
        else:
            was_running = self._scheduler.stopping.cancel_step(self._graph.nodes[step], reason)
        self._record.deliver()
        return was_running

    def suspend(self, reason: str = "suspended by the host") -> bool:
        """Let nothing start any more, and end as soon as nothing runs, so that the run can be resumed later.

        Steps that only look are stopped; a call with an effect gets the grace period to end by itself. What is stopped
        and does not end is left behind after one more.

        Args:
            reason: Kept in the record.

        Returns:
            Whether the run was going on.

        Raises:
            ContractError: The run has no journal to resume it from; or this is another thread than that of the loop; or
                the reason is no text.
        """
        self._must_be_in_loop("suspended", "run_sync(run.suspend)")
        _must_be_text(reason)
        if self._tape is None:
            raise ContractError("only a run with a journal can be suspended: journal=…")
        was_running = not self.has_ended
        self._scheduler.stopping.suspend(Status.CANCELLED, reason)
        return was_running

    async def _durable(self) -> None:
        """Wait until all that has happened so far is durable."""
        if self._tape is None:
            return
        failure = self._assembly.failure
        if failure is not None:
            raise type(failure)(*failure.args) from failure  # itself, it would lead back to the run, which keeps it
        await self._tape.durable()

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
        await self._durable()
        return checked.consequence

    def _checked(self, patch: Patch) -> CheckedPatch:
        if self._scheduler.finish.is_closing:
            raise SpliceRefused((Problem("DR417", ""),))
        self._record.skips.skip_rest()
        checked, problems = self._assembly.parts.splicer.check(patch)
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
        if self.has_ended or self._scheduler.finish.is_closing:
            raise ContractError("the run has ended, or is being stopped")
        self._record.change_goal(goal)
        self._scheduler.settle_down()
        await self._durable()

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
        await self._durable()

    def _must_be_in_loop(self, done: str = "changed", how: str = "run(run.splice, …)") -> None:
        if threading.get_ident() != self._thread and not self.has_ended:
            raise ContractError(f"a run is {done} in its loop; in a thread, use anyio.from_thread.{how}")

    async def result(self) -> RunResult:
        """Wait for the run to end, or to be suspended, and give its result.

        A step that would not stop does not hold it up. With a journal, all that the result says is durable.

        Raises:
            JournalFailed: The journal could not be written; the run was ended then, and what it did last is not on
                record.
            OwnerLost: Another process has taken the run over, and goes on with it.
        """
        await self._assembly.ended.wait()
        await self._durable()
        graph, seconds = self._graph, self._record.makespan
        assert graph.status is not None
        return RunResult(self.id, graph.status, graph.reason, StepResults(graph.nodes), self.artifacts, seconds, graph)

    # For the one who opens it -----------------------------------------------------------------------------

    async def open(self, tasks: TaskGroup, taken_over: Callable[[Record], None] | None = None) -> None:
        """Start; see `RunAssembly.open`. With a journal, nothing is called before it is on record that the run exists.

        Raises:
            JournalFailed: The journal cannot be written.
        """
        if self._tape is not None:
            # The state was just built, and the whole plan is about to be written as text.
            await let_others_run()
        self._assembly.open(tasks, taken_over)
        if self._tape is not None:
            await self._tape.durable()
        self._assembly.go(tasks)

    def fold(self, recorded: Iterable[Event]) -> None:
        """Take the state that the events on record say, before the run is taken up.

        Raises:
            JournalDamaged: They do not follow from each other.
        """
        fold(self._graph, recorded, self.id)

    async def take_up(self, tasks: TaskGroup, last: Event, resumed: Callable[[int, float], RunResumed]) -> None:
        """Go on; see `RunAssembly.take_up`."""
        self._assembly.take_up(tasks, last, resumed)

    @property
    def learned(self) -> Durations | None:
        """How long the calls of this run took; `None` if it had no use for that, and did not look."""
        return None if self._assembly.learning is None else self._assembly.learning.new

    def watch(self, observer: Observer) -> None:
        """Show the events of the run to *observer*, from now on."""
        self._record.watch(observer)

    async def wait_until_ended(self) -> None:
        """Wait until every step has settled, or the run is suspended."""
        if not self.has_ended:  # else that would be one more turn of the loop for nothing
            await self._assembly.ended.wait()

    def interrupt(self, reason: str) -> None:
        """The code around the run was cancelled or failed: stop everything; the task group unwinds it."""
        self._assembly.interrupt(reason)

    def close(self) -> None:
        """Settle what is left, once no task of the run is alive."""
        self._assembly.close()


def _must_be_text(reason: object) -> None:
    """Refuse, before anything has changed, what no record could say."""
    if not isinstance(reason, str):
        raise ContractError(f"a reason is a text, got {type(reason).__name__}")
