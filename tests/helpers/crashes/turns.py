"""Stops in every turn of the loop: a run is killed, cancelled or suspended in its n-th turn, and is resumed from that.

A turn is a pass of the loop: on asyncio a call of `_run_once`, on trio a return from waiting for the world.
"""

from __future__ import annotations

import asyncio
import random
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, Literal

import anyio
import trio

from crash_cases import Case
from crash_process import RUN, Ended, Instant, Process
from crash_rules import judge, judge_instant
from crash_world import World
from crashing import FOR_EVER, _to_end
from dagrun import Event, Run, State, Status
from dagrun.api.replaying import replayed
from dagrun.codec import decode_event
from dagrun.errors import JournalDamaged
from dagrun.events import (
    AttemptEnded,
    AttemptStarted,
    QuestionAnswered,
    Reviewed,
    RunEnded,
    RunReopened,
    RunResumed,
    RunSuspended,
    Spliced,
    StepSettled,
)
from dagrun.kernel.graph.fold import state_hash
from dagrun.testing import run_virtual
from simulation import seeded_schedule

Way = Literal["kill", "cancel", "suspend", "scope", "task"]
WAYS: Final[dict[str, tuple[Way, ...]]] = {
    "asyncio": ("kill", "cancel", "suspend", "scope", "task"),
    "trio": ("kill", "cancel", "suspend", "scope"),
}
MOST_PROBLEMS: Final = 10


@dataclass
class TurnReport:
    """What came of the stops of a case.

    Attributes:
        turns: Of the run that nobody stopped.
        stops: How often it was stopped, by way.
        broken: What was wrong, with the place.
        met: How the stopped runs were left.
    """

    turns: int = 0
    stops: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    met: Counter[str] = field(default_factory=Counter)


class _Beat(trio.abc.Instrument):
    """Counts the turns of a loop of trio."""

    def __init__(self, turn: Callable[[], None]) -> None:
        self._turn = turn

    def after_io_wait(self, timeout: float) -> None:
        self._turn()


@contextmanager
def _each_turn(turn: Callable[[], None]) -> Iterator[None]:
    """Call *turn* at the start of each turn of the running loop."""
    try:
        loop: Any = asyncio.get_running_loop()
    except RuntimeError:
        beat = _Beat(turn)
        trio.lowlevel.add_instrument(beat)
        try:
            yield
        finally:
            trio.lowlevel.remove_instrument(beat)
        return
    once = loop._run_once

    def counted() -> None:
        turn()
        once()

    loop._run_once = counted
    try:
        yield
    finally:
        del loop._run_once


class _Stopped:
    """One process that is stopped in its n-th turn.

    Args:
        process: The process.
        at: The turn; 0 for none.
        way: How it is stopped.
    """

    def __init__(self, process: Process, at: int, way: Way) -> None:
        self.process = process
        self.turns = 0
        self.ended: Ended | None = None
        self.problem = ""
        self.left: list[bytes] | None = None  # by a kill
        self.world: World | None = None
        self._at = at
        self._way = way
        self._scope: anyio.CancelScope | None = None
        self._task: asyncio.Task[Any] | None = None

    async def work(self, before: Instant | None) -> None:
        """Run until it ends or is stopped."""
        with _each_turn(self._turn):
            try:
                with anyio.CancelScope() as self._scope, anyio.fail_after(FOR_EVER):
                    if self._way == "task" and self._at:
                        await self._as_task(before)
                    else:
                        self.ended = await self.process.carry_out(before)
            except Exception as error:  # noqa: BLE001  (whatever a broken runtime lets out)
                trace = "".join(line for line in traceback.format_exception(error) if "dagrun" in line)
                self.problem = f"it ended with {error!r}\n{trace[-1500:]}"

    async def _as_task(self, before: Instant | None) -> None:
        self._task = asyncio.create_task(self.process.carry_out(before))
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            self.ended = self._task.result()

    def _turn(self) -> None:
        self.turns += 1
        if self.turns != self._at:
            return
        run: Run | None = self.process._run
        assert self._scope is not None
        match self._way:
            case "kill":
                self.left = list(self.process.journal.texts) if self.process.journal.has_record else []
                self.world = self.process.world.copy()
                self._scope.cancel()
            case "scope":
                self._scope.cancel()
            case "task":
                if self._task is not None:
                    self._task.cancel()
            case "cancel" if run is not None:
                run.cancel()
            case "suspend" if run is not None:
                run.suspend()
            case _:
                pass


def stop_everywhere(case: Case, backend: str, *, part: float = 1.0, ways: Sequence[Way] = ()) -> TurnReport:
    """Carry *case* out, then once more for each turn, stopped there in one of the ways; look at what comes of each.

    Args:
        case: The run.
        backend: Of the loop.
        part: Of the turns that are stopped in.
        ways: How the runs are stopped; all ways of the backend by default.
    """
    report, rng = TurnReport(), random.Random(f"turns {case.seed} {backend}")
    with seeded_schedule(case.seed):
        whole = _once(case, 0, "scope", backend)
        report.turns = whole.turns
        if whole.problem:
            report.broken.append(f"not stopped: {whole.problem}")
            return report
        ways = ways or WAYS[backend]
        for turn in range(1, whole.turns + 1):
            if rng.random() >= part or len(report.broken) >= MOST_PROBLEMS:
                continue
            way = rng.choice(ways)
            report.stops[way] += 1
            where = f"{way} in turn {turn} of {whole.turns}"
            report.broken += [f"{where}: {problem}" for problem in _judged(case, turn, way, backend, report)]
    return report


def _once(case: Case, at: int, way: Way, backend: str) -> _Stopped:
    stopped = _Stopped(Process(case, World(), lambda _: False, random.Random(0)), at, way)
    run_virtual(stopped.work, None, backend=backend)
    return stopped


def _judged(case: Case, turn: int, way: Way, backend: str, report: TurnReport) -> Iterator[str]:
    stopped = _once(case, turn, way, backend)
    if stopped.problem:
        yield stopped.problem
        return
    process = stopped.process
    if not process.journal.has_record:
        report.met["no record"] += 1
        return
    if process.journal.is_held:
        yield "the record is held, and nobody is there"
    texts = list(process.journal.texts) if stopped.left is None else stopped.left
    world = process.world if stopped.world is None else stopped.world
    if not texts:
        report.met["no event"] += 1
        return
    events = [decode_event(text) for text in texts]
    report.met[type(events[-1]).__name__] += 1
    graph = process._run._assembly.parts.graph if process._run is not None and stopped.left is None else None
    yield from _record_problems(events, None if graph is None else state_hash(graph))
    last = events[-1]
    if isinstance(last, RunEnded) and last.status is not Status.UNKNOWN:
        return
    instant = Instant(texts, world, dict(process.journal.letters), "turn", (len(texts),) * 2, frozenset(), True)
    yield from judge_instant(case, instant)
    world.life += 1
    later = Process(case, world, lambda _: False, random.Random(0))
    try:
        ended = run_virtual(_to_end, case, later, instant, backend=backend)
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  (whatever a broken runtime lets out)
        trace = "".join(line for line in traceback.format_exception(error) if "dagrun" in line)
        yield f"resumed, it ended with {error!r}\n{trace[-1500:]}"
        return
    report.met["resumed"] += 1
    yield from judge(case, world, ended)
    yield from _record_problems([decode_event(text) for text in ended.texts], ended.hash)


def _record_problems(events: list[Event], live: str | None) -> Iterator[str]:
    """Read a record and replay it; *live* is the hash of the state that the run had."""
    yield from _in_order(events)
    if isinstance(events[-1], RunEnded):
        yield from _doubts(events, events[-1])
    try:
        folded = replayed(RUN, events)
    except JournalDamaged as error:
        yield f"it cannot be replayed: {error}"
        return
    if live is not None and folded.hash != live:
        yield "a replay gives another state than the run had"


def _in_order(events: list[Event]) -> Iterator[str]:
    """Nothing follows an end but the opening of the run."""
    if [event.seq for event in events] != list(range(1, len(events) + 1)):
        yield "the numbers of the records have gaps"
    for before, after in pairwise(events):
        if isinstance(before, RunEnded | RunSuspended) and not isinstance(after, RunResumed | RunReopened):
            yield f"{type(after).__name__} follows {type(before).__name__}"


def _doubts(events: list[Event], end: RunEnded) -> Iterator[str]:
    """An effect that nobody knows of makes the run `unknown`, also if its step was replaced or dropped.

    Found from the events alone. Only the same idempotent call, made by a substitute, settles a doubt about a step that
    has left the plan.
    """
    last: dict[str, State] = {}
    tools: dict[str, str] = {}
    substitutes: dict[str, str] = {}
    gone: set[str] = set()
    for event in events:
        match event:
            case AttemptStarted():
                tools[event.step] = event.tool
            case Spliced():
                substitutes |= event.consequence.replaced
                gone.update(event.consequence.dropped, event.consequence.replaced)
            case AttemptEnded() | StepSettled() | Reviewed():
                last[event.step] = event.state
            case QuestionAnswered() if event.step and event.state is not None:
                last[event.step] = event.state
    if end.status is Status.UNKNOWN:
        return
    for step, state in last.items():
        if state is State.UNKNOWN and not _is_repeated(step, tools, substitutes, last):
            left = " and has left the plan" if step in gone or _parent(step) in gone else ""
            yield f"{step} is in doubt{left}, and the run has ended as {end.status}"


def _is_repeated(step: str, tools: dict[str, str], substitutes: dict[str, str], last: dict[str, State]) -> bool:
    """Whether a substitute of *step* has made the same idempotent call, and that one has succeeded."""
    at = substitutes.get(step) or substitutes.get(_parent(step))
    while at is not None:
        if last.get(at) is State.SUCCEEDED and tools.get(at) == tools.get(step) == "put":
            return True
        at = substitutes.get(at)
    return False


def _parent(step: str) -> str:
    return step.partition("[")[0]
