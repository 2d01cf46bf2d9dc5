"""Runs a random case with every check that there is."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import trio

from acts import GRACE, STAGE, TOOLS, Stage
from dagrun import CheckedPlan, Engine, Event, Run, check
from dagrun.errors import ContractError
from dagrun.events import AttemptStarted
from fresh_runs import differences
from histories import count, judge, trace_of
from oracle import disagreements
from random_cases import Case
from rules import unfinished
from simulation import replaced, simulate, tasks_alive
from splice_actors import RandomApprover, RandomPlanner, splice_late, try_patches
from watched import Watch, WatchedGraph

FOR_EVER: Final = 100_000.0  # virtual seconds; no case needs a thousand
LATE: Final = 4  # one in so many patches of the host is handed in later than it was made
AROUND: Final = "around"  # cancel the code around the run


@dataclass
class Report:
    """What came of a case.

    Attributes:
        case: To do it again.
        broken: Every rule that was broken.
        counts: What was exercised.
        seen: What the observers of its runs saw.
        resumed: How often trio resumed a task.
    """

    case: Case
    broken: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    seen: list[list[Event]] = field(default_factory=list)
    resumed: int = 0

    @property
    def trace(self) -> str:
        """A hash over every event and its time."""
        return hashlib.sha256("\n".join(map(trace_of, self.seen)).encode()).hexdigest()


def run_case(case: Case, replacements: Mapping[Any, Any] | None = None) -> Report:
    """Run *case*, with some parts of the runtime replaced."""
    report, watch = Report(case), Watch()
    report.broken = watch.broken
    plan = check(case.plan, TOOLS, policy=case.policy)
    actors = [_Actor(case, plan, watch) for _ in range(2 if case.shared else 1)]
    beat = _Beat(case, actors[0])
    try:
        with replaced(watch.parts(replacements or {})):
            simulate(lambda: _play(case, actors, watch, beat), case.seed)
        for actor in actors:
            watch.broken += actor.problems()
    except BaseException as error:  # noqa: BLE001  (whatever a broken runtime may let out)
        watch.broken.append(f"the simulation ended with {error!r}")
    for actor in actors:
        report.counts.update(count(actor.seen))
        report.counts["cancels"] += actor.cancels
    report.counts.update(watch.counts)
    report.resumed = beat.resumed
    report.seen = [actor.seen for actor in actors]
    return report


async def _play(case: Case, actors: list[_Actor], watch: Watch, beat: _Beat) -> None:
    before = tasks_alive()
    async with Engine(max_running=case.shared) as engine, anyio.create_task_group() as tasks:
        trio.lowlevel.add_instrument(beat)
        for actor in actors:
            tasks.start_soon(actor.play, engine)
    if tasks_alive() != before:
        watch.broken.append("tasks are left behind")
    for frontier in watch.frontiers:
        if frontier.taken or frontier.taken_back:
            watch.broken.append(f"{[*frontier.taken, *frontier.taken_back]} were never given back")
    for cap in watch.taken_under:
        if cap.used or cap.waiting or cap.promised:
            watch.broken.append("a cap still counts steps, or runs that wait for it, of runs that are over")


class _Beat(trio.abc.Instrument):
    """Counts how often any task is resumed, and cancels when the count says so."""

    def __init__(self, case: Case, actor: _Actor) -> None:
        self._case = case
        self._actor = actor
        self.resumed = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.resumed += 1
        for number, what in self._case.cancels_between:
            if number == self.resumed:
                self._actor.cancel(what)


class _Actor:
    """One run of a case, who watches it, and who troubles it."""

    def __init__(self, case: Case, plan: CheckedPlan, watch: Watch) -> None:
        self._case = case
        self._plan = plan
        self._watch = watch
        self._stage = Stage()
        self._run: Run | None = None
        self._planner = RandomPlanner(case.planner, watch) if case.planner is not None else None
        self._approver = RandomApprover(case.approver) if case.approver is not None else None
        self._around: anyio.CancelScope
        self._stopped: tuple[int, float] | None = None
        self.seen: list[Event] = []
        self.cancels = 0

    async def play(self, engine: Engine) -> None:
        STAGE.set(self._stage)
        with anyio.move_on_after(FOR_EVER) as whole, anyio.CancelScope() as self._around:
            running = engine.start(
                self._plan,
                run_id="run",
                seed=self._case.seed,
                on_event=self._see,
                planner=self._planner,
                approver=self._approver,
            )
            async with running as self._run, anyio.create_task_group() as tasks:
                if self._planner is not None:
                    self._planner.run = self._run
                for time, what in self._case.cancels:
                    tasks.start_soon(self._cancel_at, time, what)
                for time, seed in self._case.patches:
                    tasks.start_soon(self._patch_at, time, seed)
                for time in self._case.goals:
                    tasks.start_soon(self._change_goal_at, time)
                await self._run.result()
                tasks.cancel_scope.cancel()
        if whole.cancelled_caught:
            self._watch.broken.append("the run did not end")

    async def _cancel_at(self, time: float, what: str | None) -> None:
        await anyio.sleep(time)
        self.cancel(what)

    async def _patch_at(self, time: float, seed: int) -> None:
        await anyio.sleep(time)
        assert self._run is not None
        if seed % LATE == 0:
            await splice_late(self._run, seed, self._watch)
        else:
            try_patches(self._run, seed, self._watch)

    async def _change_goal_at(self, time: float) -> None:
        await anyio.sleep(time)
        assert self._run is not None
        try:
            await self._run.change_goal(f"something else at {time}")
        except ContractError as error:
            if not (self._run.has_ended or self._run._scheduler.finish.is_closing):
                self._watch.broken.append(f"the goal could not be changed: {error}")

    def cancel(self, what: str | None) -> None:
        """Cancel a step, the run (`None`), or the code around it."""
        if self._run is None:
            return
        if what == AROUND:
            self._around.cancel()
            self._watch.is_interrupted = True
            self.cancels += 1
            return
        self.cancels += self._run.cancel(what)
        if what is None and self._stopped is None:
            self._stopped = len(self._graph.applied), self._run._record.at()

    def _see(self, event: Event) -> None:
        try:
            self._look(event)
        except Exception as error:  # noqa: BLE001  (an observer that raises is not called again)
            self._watch.broken.append(f"the observer failed: {error!r}, when {event} was shown")

    def _look(self, event: Event) -> None:
        self.seen.append(event)
        if self._run is not None:
            # Observers are told between changes: nothing may be half done then.
            self._watch.broken += [f"{problem}, when {event} was shown" for problem in unfinished(self._graph)]
        for number, what in self._case.cancels_at:
            if number == len(self.seen):
                self.cancel(what)
        for number, seed in self._case.patches_at:
            if number == len(self.seen) and self._run is not None and not self._run.has_ended:
                try_patches(self._run, seed, self._watch)

    @property
    def _graph(self) -> WatchedGraph:
        assert self._run is not None, "the run never began"
        assert isinstance(self._run._graph, WatchedGraph)
        return self._run._graph

    def problems(self) -> list[str]:
        """Everything that is wrong now that the run is over."""
        graph = self._graph
        found = list(judge(graph, graph.applied, self.seen, self._stage))
        if self._case.is_calm:
            found += disagreements(graph)
            if graph.revisions:
                self._watch.counts["fresh runs"] += 1
                found += differences(graph, self._case.seed)
        if self._stopped is not None:
            position, time = self._stopped
            later = [event for event in graph.applied[position:] if isinstance(event, AttemptStarted)]
            found += [f"{event} after the run was cancelled" for event in later]
            if graph.applied[-1].at > time + GRACE + 1e-6:
                found.append(f"the run went on for {graph.applied[-1].at - time} s after it was cancelled")
        return found
