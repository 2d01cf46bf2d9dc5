"""A run, as the host program holds it."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextvars import Context
from random import Random

import anyio
from anyio.abc import TaskGroup

from dagrun.errors import ContractError, StepNotFound
from dagrun.graph.checked import CheckedPlan
from dagrun.graph.frontier import Cap
from dagrun.graph.limits import make_frontier
from dagrun.graph.live import LiveGraph
from dagrun.model.event import RunStarted
from dagrun.model.outcome import State, Status
from dagrun.model.protocols import Executor
from dagrun.model.toolbox import hint
from dagrun.model.value import Stored
from dagrun.runtime.alarms import Alarms
from dagrun.runtime.artifacts import ArtifactFolder
from dagrun.runtime.attempt import Attempts
from dagrun.runtime.backend import clock
from dagrun.runtime.observers import DEFAULT_BUFFER, Observer, Subscription
from dagrun.runtime.record import Record
from dagrun.runtime.result import RunResult, StepResults
from dagrun.runtime.scheduler import Scheduler
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
    ) -> None:
        self.id = run_id
        self.artifacts = artifacts
        self._thread = threading.get_ident()
        self._plan = plan
        self._executors = executors
        self._context = context
        self._now = clock()
        self._ended = anyio.Event()
        self._frontier, caps_of = make_frontier(plan, shared, self._nudge)
        self._graph = LiveGraph(plan, inputs, self._frontier, caps_of)
        self._record = Record(self._graph, self._now, lambda reason: self._scheduler.stop(Status.FAILED, reason))
        self._scheduler = Scheduler(
            graph=self._graph,
            record=self._record,
            frontier=self._frontier,
            policy=plan.policy,
            random=random,
            now=self._now,
            on_ready=self._nudge,
            on_end=self._end,
        )
        self._alarms: Alarms
        self._workers: Workers

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
        if threading.get_ident() != self._thread and not self.has_ended:
            raise ContractError(
                "a run is cancelled in its loop; in a thread, use anyio.from_thread.run_sync(run.cancel)"
            )
        if step is not None and step not in self._graph.nodes:
            raise StepNotFound(f"the run has no step {step!r}{hint(step, self._graph.nodes)}")
        if step is None:
            was_running = not self.has_ended
            self._scheduler.stop(Status.CANCELLED, reason)
        else:
            was_running = self._scheduler.cancel_step(self._graph.nodes[step], reason)
        self._record.deliver()
        return was_running

    async def result(self) -> RunResult:
        """Wait for the run to end, and give its result. A step that would not stop does not hold it up."""
        await self._ended.wait()
        graph, record = self._graph, self._record
        assert graph.status is not None
        assert record.ended_at is not None
        steps = StepResults(graph.nodes)
        makespan = record.ended_at - record.zero
        return RunResult(self.id, graph.status, graph.reason, steps, self.artifacts, makespan, graph)

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
        )
        self._scheduler.open(self._alarms, attempts)
        goal = self._plan.plan.goal
        record.begin_run(RunStarted(record.next_seq(), record.at(), self.id, len(self._graph.nodes), goal, time.time()))
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

    def _end(self) -> None:
        self._ended.set()
        self._workers.stop()
        self._alarms.stop()
        self._frontier.leave()

    def _nudge(self) -> None:
        if not self.has_ended:
            self._workers.nudge()
