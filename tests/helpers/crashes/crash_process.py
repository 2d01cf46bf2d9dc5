"""One process of a run, and what a crash at any of its instants would leave."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import anyio

from crash_cases import Approver, Case, CasePlanner, Critic, answer_to, small_step
from crash_met import going_on
from crash_world import LIFE, TOOLS, Life, World
from dagrun import Add, Drop, Engine, Event, MemoryJournal, Patch, Question, Replace, Run, Status
from dagrun.errors import AnswerRefused, ContractError, QuestionNotFound, SpliceRefused
from dagrun.events import QuestionAsked
from dagrun.journal.memory import MemoryRunLog, _KeptRun
from dagrun.kernel.graph.fold import state_hash
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.model.question import AnswerMessage
from dagrun.kernel.model.value import decode_or_reason

ANSWER_KEY = "0123456789abcdef" * 4
MOST_RECORDS: Final = 2_000  # no run needs half of them: one that makes more would go on for ever
RUN: Final = "run"


class Hang(Exception):
    """A run that does not end."""


@dataclass(slots=True)
class Instant:
    """What a crash would leave.

    Attributes:
        texts: The records.
        world: Outside.
        letters: That lie there.
        kind: ``record``, ``before the effect``, ``after the effect``, or ``end``.
        where: How many records had been made, and how many of them are left.
        met: What was going on.
        is_whole: Whether no change of the run is cut in two.
    """

    texts: list[bytes]
    world: World
    letters: dict[int, bytes]
    kind: str
    where: tuple[int, int]
    met: frozenset[str]
    is_whole: bool

    def __str__(self) -> str:
        return f"{self.kind} {self.where[1]} of {self.where[0]} ({', '.join(sorted(self.met))})"


class CrashRunLog(MemoryRunLog):
    """Keeps every record at once, and says so; acknowledges it later."""

    acked = 0
    latency = 0.0
    on_record: Callable[[], None]

    def append(self, text: bytes) -> int:
        """Add a record, and keep it: a crash may cut a unit in two."""
        self._kept.texts.append(text)
        if len(self._kept.texts) > MOST_RECORDS:
            raise Hang("the run makes records without end")
        self._last += 1
        self.is_whole = False
        self.on_record()
        return self._last

    def flush(self) -> None:
        """The end of a unit."""
        self.is_whole = True
        self._kept_last = self._last

    is_whole = True

    async def durable(self, seq: int | None = None) -> None:
        """Acknowledge what there is, a little later."""
        self.flush()
        wanted = self._last if seq is None else seq
        if self.latency and wanted > self.acked:
            await anyio.sleep(self.latency)
        self.acked = max(self.acked, wanted)


class CrashJournal(MemoryJournal):
    """Keeps one run, and knows its run log."""

    run_log_type: ClassVar[type[MemoryRunLog]] = CrashRunLog

    def __init__(self, on_run_log: Callable[[CrashRunLog], None]) -> None:
        super().__init__()
        self._on_run_log = on_run_log

    async def create(self, run_id: str) -> MemoryRunLog:
        return self._told(await super().create(run_id))

    async def open(self, run_id: str, *, steal: bool = False) -> MemoryRunLog:
        return self._told(await super().open(run_id, steal=steal))

    def _told(self, run_log: MemoryRunLog) -> MemoryRunLog:
        assert isinstance(run_log, CrashRunLog)
        self._runs[RUN].answer_key = run_log.answer_key = ANSWER_KEY  # a run goes on in another journal of this kind
        self._on_run_log(run_log)
        return run_log

    def put(self, texts: list[bytes], letters: Mapping[int, bytes]) -> None:
        """Keep the records of a run that another journal has left."""
        kept = self._runs[RUN] = _KeptRun(RUN)
        kept.texts, kept.letters = list(texts), dict(letters)
        kept.answer_key = ANSWER_KEY
        kept.posted = max(letters, default=0)

    @property
    def has_record(self) -> bool:
        """Whether the record of the run was created."""
        return RUN in self._runs

    @property
    def is_held(self) -> bool:
        """Whether somebody holds the run."""
        return self._runs[RUN].owner is not None

    @property
    def texts(self) -> list[bytes]:
        return self._runs[RUN].texts

    @property
    def letters(self) -> dict[int, bytes]:
        return self._runs[RUN].letters


@dataclass(slots=True)
class Ended:
    """How one process of a run came to its end.

    Attributes:
        texts: The records.
        hash: Of the state.
        status: Of the run.
        steps: How each step ended: its state and what it gave.
        graph: The last state.
    """

    texts: list[bytes]
    hash: str
    status: Status
    steps: dict[str, tuple[str, Any]]
    graph: LiveGraph


class Process:
    """One process of a run, from its start or its resumption to its end.

    Args:
        case: The run.
        world: Outside; it is changed.
        keep: Says whether a crash at this instant is wanted, by the number of the instant.
        cut: Decides how many of the records that were not acknowledged are left.
    """

    def __init__(self, case: Case, world: World, keep: Callable[[int], bool], cut: random.Random) -> None:
        self._case = case
        self.world = world
        self._keep = keep
        self._cut = cut
        self.instants: list[Instant] = []
        self._count = 0
        self._run_log: CrashRunLog
        self._run: Run | None = None
        self._asked: Any = None
        self.journal = CrashJournal(self._take_run_log)

    def _take_run_log(self, run_log: CrashRunLog) -> None:
        self._run_log = run_log
        run_log.acked = run_log._last
        run_log.latency = self._case.latency
        run_log.on_record = lambda: self._mark("record")

    def _mark(self, kind: str) -> None:
        self._count += 1
        if not self._keep(self._count):
            return
        texts = self.journal.texts
        made = left = len(texts)
        if self._case.latency:
            left = self._cut.choice((self._run_log.acked, made, self._cut.randint(self._run_log.acked, made)))
        left = max(left, 1)
        graph = self._run._assembly.parts.graph if self._run is not None else None
        self.instants.append(
            Instant(
                texts[:left],
                self.world.copy(),
                dict(self.journal.letters),
                kind,
                (made, left),
                frozenset(going_on(graph)) if graph is not None and left == made else frozenset(),
                self._run_log.is_whole if left == made else True,
            )
        )

    async def carry_out(self, before: Instant | None = None) -> Ended:
        """Run to the end, or until the run is suspended."""
        LIFE.set(Life(self.world, self._mark))
        if before is not None:
            self.journal.put(before.texts, before.letters)
        case = self._case
        asked, hears = anyio.create_memory_object_stream[str](1_000)

        def on_event(event: Event) -> None:
            if isinstance(event, QuestionAsked):
                asked.send_nowait(event.question.id)

        facts: dict[str, Any] = {
            "journal": self.journal,
            "on_event": on_event,
            "planner": CasePlanner(case) if case.has_planner else None,
            "critics": [Critic(case)] if case.has_critics else (),
            "approver": Approver(case) if case.people == "approver" else None,
            "attended": case.people == "attended",
        }
        async with asked, hears, Engine() as engine, self._opened(engine, facts, before) as run:
            self._run = run
            async with anyio.create_task_group() as tasks:
                for number, (time, what, step) in enumerate(case.host):
                    if number not in self.world.done:
                        tasks.start_soon(self._act, number, time, what, step)
                if case.people == "letters":
                    tasks.start_soon(self._write_letters, hears)
                if case.people == "attended":
                    for question in run.pending:
                        asked.send_nowait(question.id)
                    tasks.start_soon(self._attend, hears)
                result = await run.result()
                tasks.cancel_scope.cancel()
            graph = run._assembly.parts.graph
            self.world.acked.append(("result", (len(self.journal.texts), str(result.status))))
            self._mark("end")
        steps = {id_: (str(step.state), decode_or_reason(step.stored)) for id_, step in result.steps.items()}
        return Ended(list(self.journal.texts), state_hash(graph), result.status, steps, graph)

    def suspended(self) -> Instant:
        """What is there when the run was suspended, and people have answered."""
        texts, letters = list(self.journal.texts), dict(self.journal.letters)
        return Instant(texts, self.world, letters, "suspended", (len(texts), len(texts)), frozenset(), True)

    def next(self) -> Process:
        """The process that goes on after this one; its instants are counted on."""
        later = Process(self._case, self.world, self._keep, self._cut)
        later.instants, later._count = self.instants, self._count
        return later

    @asynccontextmanager
    async def _opened(self, engine: Engine, facts: dict[str, Any], before: Instant | None) -> AsyncIterator[Run]:
        case = self._case
        if before is not None:
            async with engine.resume(RUN, tools=TOOLS, **facts) as run:
                yield run
            return
        facts |= {"run_id": RUN, "seed": case.seed, "tools": TOOLS, "policy": case.policy}
        if case.drafted:
            facts["goal"] = "find it out"
        async with engine.start(None if case.drafted else case.plan, **facts) as run:
            yield run

    # What the host does -----------------------------------------------------------------------------------

    async def _act(self, number: int, time: float, what: str, step: str) -> None:
        await anyio.sleep(time)
        run = self._run
        assert run is not None
        self.world.done.add(number)
        if what in ("cancel", "stop", "suspend"):
            if what == "stop":
                run.cancel()
            elif what == "suspend":
                run.suspend()
            elif step in run.states:
                run.cancel(step)
            return
        try:
            if what == "goal":
                await run.change_goal(f"another one, {number}")
                self.world.acked.append(("goal", f"another one, {number}"))
            else:
                await self._splice(run, number, what, step)
        except (SpliceRefused, ContractError):
            pass

    async def _splice(self, run: Run, number: int, what: str, step: str) -> None:
        id_ = f"h{number}"
        edit: Add | Drop | Replace
        match what:
            case "add":
                new = small_step(id_, tool="put")
                needs = (step,) if step in run.states else ()
                edit = Add(step=new.model_copy(update={"depends_on": needs}))
            case "replace":
                edit = Replace(id=step, step=small_step(id_, tool="scan"), cancel=True)
            case _:
                edit = Drop(id=step, cancel=what == "drop hard")
        patch = Patch(edits=[edit])
        if isinstance(edit, Drop):
            behind = [
                s.id for s in run.plan.current.steps if step in run._assembly.parts.graph.nodes[s.id].plan.depends_on
            ]
            if behind:
                patch = Patch(edits=[edit, *(Drop(id=i, cancel=what == "drop hard") for i in behind)])
        await run.splice(patch)
        self.world.acked.append(("splice", id_ if what in ("add", "replace") else ""))

    async def _attend(self, hears: Any) -> None:
        run = self._run
        assert run is not None
        async for id_ in hears:
            await anyio.sleep(0.6)
            question = next((q for q in run.pending if q.id == id_), None)
            if question is None:
                continue
            try:
                await run.answer(question, answer_to(self._case, question, self.world))
            except (QuestionNotFound, AnswerRefused):
                continue
            self.world.acked.append(("answer", id_))

    async def _write_letters(self, hears: Any) -> None:
        """Somebody elsewhere answers what is asked, while the run goes on."""
        run = self._run
        assert run is not None
        async for id_ in hears:
            await anyio.sleep(0.6)
            question = next((q for q in run.pending if q.id == id_), None)
            if question is not None:
                await self.journal.post(RUN, letter_to(self._case, question, self.world))


def letter_to(case: Case, question: Question, world: World) -> bytes:
    """What somebody elsewhere answers."""
    return AnswerMessage.of(question.id, answer_to(case, question, world), ANSWER_KEY).model_dump_json().encode()
