"""`Run`: a run as the host program holds it; and how its parts are put together: made, opened, resumed and closed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from anyio.abc import TaskGroup

from dagrun.errors import ContractError, JournalError, Problem, SpliceRefused, StepNotFound, hint
from dagrun.kernel.decide.durations import Durations
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node
from dagrun.kernel.graph.plan_history import PlanHistory
from dagrun.kernel.model.event import Event, RunResumed, RunStarted
from dagrun.kernel.model.outcome import State, Status, TriggerKind
from dagrun.kernel.model.patch import Consequence, Patch
from dagrun.kernel.model.question import Answer, ControlMessage, Question, answer_from
from dagrun.kernel.runtime.backend import Timers, event_class, named_loop, yield_to_loop
from dagrun.kernel.runtime.people.inbox_messages import MessagesFromJournal
from dagrun.kernel.runtime.record.event_log import DEFAULT_BUFFER, JournalWatch, Observer, Subscription
from dagrun.kernel.runtime.record.record import Record
from dagrun.kernel.runtime.result import RunResult, StepResults
from dagrun.kernel.runtime.run_callbacks import RunCallbacks, weakly
from dagrun.kernel.runtime.run_parts import CallSettings, RunParts, RunSetup
from dagrun.kernel.runtime.steps.attempt import AttemptRunner
from dagrun.kernel.runtime.steps.attempt_completion import DurationRecorder, learns
from dagrun.kernel.runtime.steps.scheduler import Scheduler, Workers
from dagrun.presenters import notebook_bundle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dagrun.kernel.graph.patches.apply_patch import CheckedPatch
    from dagrun.kernel.model.policy import HedgeRule
    from dagrun.kernel.model.secrets import Secrets
    from dagrun.kernel.model.value import ArtifactStore
    from dagrun.kernel.runtime.live_attempt import LiveAttempt
    from dagrun.kernel.runtime.planning.coordinator import Coordinator
    from dagrun.kernel.runtime.plugin_calls import CallClock
    from dagrun.kernel.runtime.run_features import (
        AnswerPiece,
        CallSharer,
        CallStream,
        Composer,
        FrameFiles,
        Hedging,
        PlacesOfCall,
        ProviderGate,
    )
    from dagrun.kernel.runtime.steps.attempt import AskInside


class Run:
    """A plan that is being carried out. Made by `dagrun.start` or `dagrun.resume`.

    Args:
        setup: The options and inputs that it is made of.
        features: Makes its parts that belong to features.

    Attributes:
        id: The id of the run.
        artifacts: The store of the files of its tools.
    """

    def __init__(self, setup: RunSetup, features: RunFeatures) -> None:
        self.id = setup.run_id
        self.artifacts = setup.calls.artifacts
        self._thread = threading.get_ident()
        self._plan = setup.plan
        self._run_log = setup.run_log
        self._assembly = assembly = RunAssembly(setup, features)
        self._graph = assembly.parts.graph
        self._record = assembly.parts.record
        self._people = assembly.parts.people
        self._scheduler = assembly.scheduler
        self._coordinator = assembly.coordinator

    def __repr__(self) -> str:
        graph, scheduler = self._graph, self._scheduler
        status = graph.status or ("stopping" if scheduler.finish.is_closing else "running")
        return f"<Run {self.id} {status}: {scheduler.standing()}>"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return notebook_bundle(self)

    # For the host program ---------------------------------------------------------------------------------

    @property
    def states(self) -> dict[str, State]:
        """The state of every step now, elements of for_each included."""
        return {id_: node.state for id_, node in self._graph.nodes.items()}

    @property
    def graph(self) -> LiveGraph:
        """The state of the run, read-only, for code that shows it to people."""
        return self._graph

    @property
    def seconds(self) -> float:
        """Seconds since the start of the run, or from its start to its end."""
        return self._record.makespan

    @property
    def has_ended(self) -> bool:
        """Whether every step has settled, or the run is suspended."""
        return self._assembly.ended.is_set()

    def events(self, buffer: int = DEFAULT_BUFFER) -> Subscription:
        """Watch the run from now on: an async iterator over its events.

        Args:
            buffer: Events kept for an observer that falls behind; it sees a `Gap` in place of older ones.

        Raises:
            ContractError: The buffer has no room for one event.
        """
        if buffer < 1:
            raise ContractError(f"buffer must be at least 1, got {buffer}")
        subscription = Subscription(buffer)
        self._record.watch(subscription)
        return subscription

    def cancel(self, step: str | None = None, reason: str = "cancelled by the host") -> bool:
        """Cancel one step, or the whole run. Steps that depend on a cancelled step are skipped; all others run on.

        Nothing starts any more in a run that is cancelled. If this ends more than 200 steps, some of them may still be
        open when it returns: they are settled in later turns, so that other tasks in the loop get theirs.

        Args:
            step: The id of the step; `None` for the run.
            reason: The reason for the record.

        Returns:
            Whether there was something left to cancel.

        Raises:
            ContractError: It was called outside the thread of the loop; or the reason is no text.
            StepNotFound: There is no such step.
        """
        # Before anything has changed: half a cancellation would leave a step that is never woken.
        self._must_be_in_loop("cancelled", "run_sync(run.cancel)")
        _must_be_text(reason)
        if step is not None and step not in self._graph.nodes:
            raise StepNotFound(f"the run has no step {step!r}{hint(step, self._graph.nodes)}")
        with named_loop():
            return self._assembly.cancel(None if step is None else self._graph.nodes[step], reason)

    def suspend(self, reason: str = "suspended by the host") -> bool:
        """Start no more steps, and end as soon as nothing runs, so that the run can be resumed later.

        Calls without an effect are stopped; a call with an effect gets the grace period to end by itself. A call that
        is stopped and does not end is left behind after one more grace period.

        Args:
            reason: The reason for the record.

        Returns:
            Whether the run had not ended.

        Raises:
            ContractError: The run has no journal to resume it from; or it was called outside the thread of the loop; or
                the reason is no text.
        """
        self._must_be_in_loop("suspended", "run_sync(run.suspend)")
        _must_be_text(reason)
        if self._run_log is None:
            raise ContractError("only a run with a journal can be suspended: journal=…")
        was_running = not self.has_ended
        with named_loop():
            self._scheduler.stopping.suspend(Status.CANCELLED, reason)
        return was_running

    async def _durable(self) -> None:
        """Wait until all that has happened so far is durable."""
        if self._run_log is None:
            return
        failure = self._assembly.failure
        if failure is not None:
            raise type(failure)(*failure.args) from failure  # the traceback of *failure* itself leads back to the run
        await self._run_log.durable()

    # Changing the plan ------------------------------------------------------------------------------------

    @property
    def plan(self) -> PlanHistory:
        """The plan as it stands at this instant, with all its revisions."""
        return PlanHistory(self._graph.plan.plan, self._graph.revisions)

    def check(self, patch: Patch) -> Consequence:
        """Return the changes that *patch* would make to the plan now, and change nothing.

        Raises:
            SpliceRefused: The patch has problems; all of them are in the error.
        """
        return self._checked(patch).consequence

    async def splice(self, patch: Patch) -> Consequence:
        """Apply *patch* to the plan, all of it at this instant. Steps that it does not touch keep running.

        Args:
            patch: The edits. With a *base*, the patch is refused if a later revision has changed a step that it names,
                or a neighbour of a step that it edits.

        Returns:
            What the patch did.

        Raises:
            SpliceRefused: The patch has problems; all of them are in the error, and the plan is unchanged.
        """
        self._must_be_in_loop()
        try:
            checked = self._checked(patch)
        except SpliceRefused as error:
            if self._graph.status is None:  # an observer that is shown the end may still try
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
        self._record.backlog.finish()
        checked, problems = self._record.splicer.check(patch)
        if checked is None:
            raise SpliceRefused(problem for problem in problems if not problem.is_advice)
        return checked

    async def change_goal(self, goal: str) -> None:
        """Change the goal of the run: steps that have not started wait until the planner has found a plan for it.

        Args:
            goal: The goal from now on.

        Raises:
            ContractError: The run has no planner, has ended, or may not ask its planner about a changed goal.
        """
        self._must_be_in_loop()
        if self._coordinator is None or TriggerKind.GOAL_CHANGED not in self._plan.policy.planning.replan_on:
            raise ContractError("only a run with a planner that is asked about it can change its goal: planner=…")
        if self.has_ended or self._scheduler.finish.is_closing:
            raise ContractError("the run has ended, or is being stopped")
        self._record.change_goal(goal)
        self._scheduler.on_external_change()
        await self._durable()

    # People -----------------------------------------------------------------------------------------------

    @property
    def pending(self) -> tuple[Question, ...]:
        """The open questions, in the order in which they were asked."""
        return tuple(self._graph.questions.values())

    async def answer(self, question: str | Question | Iterable[str | Question], answer: Answer | bool) -> None:
        """Answer an open question, or several approvals at once.

        Args:
            question: The question or its id; or several.
            answer: Yes, no, or an `Answer` with a value, a note, or the points of the checklist that were ticked.

        Raises:
            QuestionNotFound: A question was never asked, has been answered, or has become void.
            AnswerRefused: The answer does not fit; or it approves several calls that change the world each time.
        """
        self._must_be_in_loop()
        several = [question] if isinstance(question, str | Question) else list(question)
        self._people.answer([q.id if isinstance(q, Question) else q for q in several], answer_from(answer))
        await self._durable()

    def _must_be_in_loop(self, done: str = "changed", how: str = "run(run.splice, …)") -> None:
        if threading.get_ident() != self._thread and not self.has_ended:
            raise ContractError(f"a run is {done} in its loop; in a thread, use anyio.from_thread.{how}")

    def answer_stream(self) -> AsyncIterator[AnswerPiece]:
        """Iterate over the text of the answer while it is composed (``compose=``), in pieces, to the end of the run.

        A piece is a `str`. If the call that writes the answer fails and is made again, the first piece of the new text
        has ``is_anew``, and all before is void. The whole answer comes as one piece at the end if its tool streams
        nothing (`ToolContext.stream`), and if a person or a critic has to look at it first; and nothing comes if it is
        not handed out. Only `result` says whether the run has succeeded.

        Raises:
            ContractError: The run does not compose its answer.
        """
        if self._assembly.composing is None:
            raise ContractError("only a run that composes its answer can stream it: compose=…")
        return self._assembly.composing.stream(self._assembly.ended, self.result)

    async def result(self) -> RunResult:
        """Wait for the run to end, or to be suspended, and return its result.

        A step that would not stop does not delay it. With a journal, everything in the result is durable.

        Raises:
            JournalFailed: The journal could not be written; the run was ended then, and what it did last is not on
                record.
            OwnerLost: Another process has taken the run over, and has resumed it.
        """
        await self._assembly.ended.wait()
        await self._durable()
        graph, seconds = self._graph, self._record.makespan
        assert graph.status is not None
        return RunResult(self.id, graph.status, graph.reason, StepResults(graph.nodes), self.artifacts, seconds, graph)

    # For the engine that opens it -------------------------------------------------------------------------

    async def open(self, tasks: TaskGroup, taken_over: Callable[[Record], None] | None = None) -> None:
        """Start the run; see `RunAssembly.open`. With a journal, no tool is called before the start is on record.

        Raises:
            JournalFailed: The journal cannot be written.
        """
        if self._run_log is not None:
            # Building the state took time, and so will writing the whole plan as text.
            await yield_to_loop()
        self._assembly.open(tasks, taken_over)
        if self._run_log is not None:
            await self._run_log.durable()
        self._assembly.go(tasks)

    def fold(self, recorded: Iterable[Event]) -> None:
        """Fold the events on record into the state, before the run is resumed.

        Raises:
            JournalDamaged: The events do not follow from each other.
        """
        from dagrun.kernel.graph.fold import fold

        fold(self._graph, recorded, self.id)

    async def resume(self, tasks: TaskGroup, last: Event, resumed: Callable[[int, float], RunResumed]) -> None:
        """Resume the run; see `RunAssembly.resume`."""
        self._assembly.resume(tasks, last, resumed)

    @property
    def learned(self) -> Durations | None:
        """How long the calls of this run took; `None` if it had no use for that, and did not measure."""
        return None if self._assembly.learning is None else self._assembly.learning.new

    def watch(self, observer: Observer) -> None:
        """Show the events of the run to *observer*, from now on."""
        self._record.watch(observer)

    def call_at(self, seconds: float, ring: Callable[[], None]) -> bool:
        """Call *ring* in the loop at a time of the run in seconds, unless the run has ended.

        Returns:
            Whether the run goes on: before its begin and after its end, nothing is called.

        Raises:
            ContractError: This is not the thread of the loop.
        """
        self._must_be_in_loop("shown", "run_sync(dagrun.show, run)")
        return not self.has_ended and self._assembly.call_at(seconds, ring)

    async def wait_until_ended(self) -> None:
        """Wait until every step has settled, or the run is suspended."""
        if not self.has_ended:  # else waiting would cost a turn of the loop
            await self._assembly.ended.wait()

    def interrupt(self, reason: str) -> None:
        """Stop everything, because the code around the run was cancelled or failed; the task group unwinds the run."""
        self._assembly.interrupt(reason)

    def close(self) -> None:
        """Settle the rest, once no task of the run is alive."""
        self._assembly.close()


def _must_be_text(reason: object) -> None:
    """Refuse a reason that is no text, before anything has changed."""
    if not isinstance(reason, str):
        raise ContractError(f"a reason is a text, got {type(reason).__name__}")


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

    def frames(self, artifacts: ArtifactStore, secrets: Secrets) -> FrameFiles:
        """Return the part that keeps frames in *artifacts*: the run has tools with objects in memory."""
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
        self._frames = self._make_frames()
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

    def _make_frames(self) -> FrameFiles | None:
        if not self.parts.graph.has_objects:
            return None
        return self._features.frames(self._setup.calls.artifacts, self.parts.graph.plan.secrets)

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
            self._open_frames()

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
        from dagrun.kernel.graph.fold import in_doubt
        from dagrun.kernel.runtime.resume import Resumption

        record = self._record
        record.zero = self.parts.now() - last.at
        self._open_parts(tasks)
        doubtful = in_doubt(self.parts.graph)
        record.resume_run(last.seq, last.at, resumed)
        if doubtful:
            record.reopen(doubtful, "an effect is unresolved, and may be resolved now")
        self._open_frames()
        Resumption(self.parts, self.scheduler, self.coordinator, tasks, was_over=bool(doubtful)).resume()
        self._begin(tasks, last.seq + 1)

    def _open_frames(self) -> None:
        """Load the frames that are stored as files: the run is resumed, or has taken over their outputs."""
        if self._frames is not None:
            from dagrun.kernel.graph.fold import open_frames

            open_frames(self.parts.graph, self._frames.opened)

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
        attempts.frames = self._frames
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
