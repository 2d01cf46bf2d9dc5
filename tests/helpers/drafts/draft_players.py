"""Who plays a case of a draft: a planner that writes by script, the host, and the same plan run in one piece."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import anyio

from acts import STAGE, TOOLS, Stage
from dagrun import Add, Asked, Brief, Drop, Engine, Event, Patch, Question, Run, RunResult, Step
from dagrun.errors import ContractError, ModelError, SpliceRefused
from dagrun.events import PlannerCalled, Progress
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node
from dagrun.kernel.graph.step_order import Frontier
from dagrun.testing import run_virtual
from draft_cases import DraftCase, repair_of, steps_of
from draft_rules import RETRY_AFTER, Said, broken_rules, counted, differences, folded, open_requests
from histories import judge
from simulation import replaced, simulate
from watched import Watch, WatchedGraph

FOR_EVER: Final = 100_000.0  # virtual seconds; no case needs a thousand
AROUND: Final = "around"
LAST_BREATH: Final = 0.01
BUSY: Final = ModelError("busy", is_transient=True, retry_after=RETRY_AFTER)
WATCHED: Final = 4  # one in so many runs is watched at each transition, which costs ten times as much


@dataclass
class Report:
    """What came of a case.

    Attributes:
        broken: Every rule that was broken.
        counts: What was exercised.
    """

    broken: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


class ScriptedPlanner:
    """Plays the script of a case, mends it if it is refused, and leaves everything else as it is."""

    def __init__(self, case: DraftCase) -> None:
        self.said = Said()
        self._case = case
        self._busy = case.busy

    def revise(self, brief: Brief) -> Any:
        """Answer *brief*."""
        is_first = brief.is_first and not brief.refused
        self.said.kinds.append("first" if is_first else "repair" if brief.is_first else "later")
        self.said.asked.append(anyio.current_time())
        if is_first and self._busy:
            self._busy -= 1
            return self._later(BUSY)
        if is_first:
            return self._write(self._case.script)
        answer = repair_of(self._case, list(brief.steps)) if brief.is_first else None
        return self._write([self._case.thinks, *answer]) if isinstance(answer, list) else self._later(answer)

    async def _later(self, answer: Any) -> Any:
        with _Telling(self.said):
            await anyio.sleep(self._case.thinks)
            if isinstance(answer, BaseException):
                raise answer
            return answer

    async def _write(self, script: Any) -> AsyncIterator[Any]:
        with _Telling(self.said):
            for act in script:
                if isinstance(act, BaseException):
                    raise act
                if isinstance(act, int | float):
                    await anyio.sleep(act)
                    continue
                self.said.steps += [(anyio.current_time(), step) for step in steps_of(act)]
                try:
                    yield act
                except GeneratorExit:
                    await anyio.sleep(LAST_BREATH)  # to close a connection takes a moment
                    raise


class _Telling:
    """Counts the answers that are being given."""

    def __init__(self, said: Said) -> None:
        self._said = said

    def __enter__(self) -> None:
        self._said.now += 1
        self._said.most = max(self._said.most, self._said.now)

    def __exit__(self, *_: object) -> None:
        self._said.now -= 1
        self._said.closed += 1


class LeavesIt:
    """A planner that leaves every plan as it is, after as much thought."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def revise(self, brief: Brief) -> None:
        """Answer *brief*."""
        await anyio.sleep(self._seconds)


def _person(case: DraftCase) -> Callable[[Question], Any] | None:
    """Somebody who is asked about plans, and has no answer to anything else."""
    if case.person is None:
        return None
    seconds, says = case.person

    async def answer(question: Question) -> bool | None:
        await anyio.sleep(seconds)
        return says if question.kind is Asked.PATCH else None

    return answer


class Player:
    """One run of a case, and who troubles it."""

    def __init__(self, case: DraftCase, watch: Watch) -> None:
        self.case = case
        self.watch = watch
        self.planner = ScriptedPlanner(case)
        self.seen: list[Event] = []
        self.stage = Stage()
        self.run: Run | None = None
        self.result: RunResult | None = None
        self.faults: list[str] = []
        self._around: anyio.CancelScope

    async def play(self) -> None:
        """Run it to its end."""
        case = self.case
        STAGE.set(self.stage)
        with anyio.move_on_after(FOR_EVER) as whole, anyio.CancelScope() as self._around:
            async with (
                Engine() as engine,
                engine.start(
                    goal="the goal",
                    tools=TOOLS,
                    policy=case.policy,
                    planner=self.planner,
                    approver=_person(case),
                    run_id="run",
                    seed=case.seed,
                    on_event=self._see,
                ) as self.run,
                anyio.create_task_group() as tasks,
            ):
                for time, what in case.cancels:
                    tasks.start_soon(self._at, time, partial(self._cancel, what))
                for time, seed in case.patches:
                    tasks.start_soon(self._patch_at, time, seed)
                for time in case.goals:
                    tasks.start_soon(self._change_goal_at, time)
                await self.run.result()
                tasks.cancel_scope.cancel()
        if whole.cancelled_caught:
            self.faults.append("the run did not end")
        elif self.run is not None:
            self.result = await self.run.result()

    async def _at(self, time: float, do: Callable[[], None]) -> None:
        await anyio.sleep(time)
        do()

    def _cancel(self, what: str | None) -> None:
        if self.run is None:
            return
        if what == AROUND:
            self.watch.is_interrupted = True
            self._around.cancel()
        elif what is None or what in self.run.states:
            self.run.cancel(what)

    async def _patch_at(self, time: float, seed: int) -> None:
        await anyio.sleep(time)
        assert self.run is not None
        rng = random.Random(seed)
        ids = [id_ for id_ in self.run.states if "[" not in id_]
        new = Step(id=f"host{seed}", tool="pure_act", args={"acts": [{"does": "succeeds", "seconds": 1.0, "gives": 2}]})
        edits: list[Any] = [Drop(id=rng.choice(ids))] if ids and rng.random() < 0.5 else [Add(step=new)]
        if rng.random() < 0.2:  # with an id that the planner wants, too
            edits = [Add(step=new.model_copy(update={"id": rng.choice(self.case.plan.steps).id}))]
        try:
            await self.run.splice(Patch(edits=edits))
        except SpliceRefused:
            return

    async def _change_goal_at(self, time: float) -> None:
        await anyio.sleep(time)
        assert self.run is not None
        try:
            await self.run.change_goal("another goal")
        except ContractError:
            return  # it has ended, or may not ask

    def _see(self, event: Event) -> None:
        self.seen.append(event)
        if isinstance(event, PlannerCalled) and event.fault != "it was told to stop":
            others = [number for number in open_requests(self.seen) if number != event.request]
            if self.planner.said.now > len(others):
                self.faults.append(f"{event}, but its answer is not closed")
        for number, what in self.case.cancels_at:
            if number == len(self.seen):
                self._cancel(what)


class _Nobody(Frontier):
    """Where ready steps go when nobody takes them."""

    def push(self, node: Node) -> None:
        pass


def run_draft(case: DraftCase, replacements: Mapping[Any, Any] | None = None, *, is_watched: bool = False) -> Report:
    """Run *case*, with some parts of the runtime replaced, on the back end that its seed chooses."""
    report, watch = Report(), Watch()
    player = Player(case, watch)
    parts = watch.parts(replacements or {}) if is_watched else dict(replacements or {})
    try:
        with replaced(parts):
            _virtually(player.play, case.seed)
        report.broken += [*watch.broken, *player.faults, *_problems(player)]
    except BaseException as error:  # noqa: BLE001  (whatever a broken runtime may let out)
        report.broken.append(f"the simulation ended with {error!r}")
    if player.result is not None and not report.broken:
        report.counts += counted(case, player.seen, player.planner.said, player.result)
    return report


def _virtually(main: Callable[[], Any], seed: int) -> Any:
    return simulate(main, seed) if seed % 2 else run_virtual(main, backend="asyncio")


def _problems(player: Player) -> list[str]:
    if player.result is None or player.run is None:
        return ["there is no result"]
    case, graph = player.case, player.run._graph
    applied = [event for event in player.seen if not isinstance(event, Progress)]
    found = list(broken_rules(case, graph, player.seen, player.planner.said))
    if isinstance(graph, WatchedGraph):
        found += judge(graph, applied, player.seen, player.stage)
    found += folded(graph, applied, LiveGraph(graph.plan, graph.inputs, _Nobody()))
    calls = [(id_, attempt.number) for id_, node in graph.nodes.items() for attempt in node.attempts]
    if not set(player.stage.entered) <= set(calls):
        found.append("a tool was called, and the record does not know of it")
    if left := [node for node in graph.nodes.values() if not node.state.is_settled]:
        found.append(f"not settled: {left}")
    if case.is_calm and not found:
        found += differences(case, player.result, _in_one_piece(case), player.seen)
    return found


def _in_one_piece(case: DraftCase) -> RunResult:
    async def main() -> RunResult:
        STAGE.set(Stage())
        async with Engine() as engine:
            return await engine.run(
                case.plan,
                tools=TOOLS,
                policy=case.policy,
                planner=LeavesIt(case.thinks),
                approver=_person(case),
                run_id="run",
                seed=case.seed,
            )

    result: RunResult = _virtually(main, case.seed)
    return result
