"""Random runs of one payment whose call is cut at a random moment, in each of the ways, while its server works on.

A server books after the cut as well, up to the time of *reconcile_after*: whoever believes its "no" before that pays
twice. The oracle looks at the books alone: however the run has gone, there is one payment at most.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final
from unittest import mock

import anyio

import dagrun
from catching import Parts
from crash_process import RUN
from dagrun import Applied, Drop, Patch, Plan, Policy, Replace, RetryRule, Run, Step, ToolContext
from dagrun.errors import CannotResume, SpliceRefused
from dagrun.kernel.decide.questions import seconds_until_no_counts
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.tool import AnyTool, make_tool
from dagrun.kernel.runtime.people.approvers import ApproverCalls
from dagrun.testing import run_virtual
from keeping import Keeping
from simulation import replaced

WAYS: Final = ("cancel", "cancel the step", "suspend", "drop", "replace", "crash")
FATES: Final = ("never", "early", "late", "late", "late", "well")


@dataclass
class Service:
    """Books payments, some of them after their call was cut.

    Args:
        rng: Decides.
        limit: Seconds that a call may take; or no limit.
        after: The *reconcile_after* that is declared; or none.
        is_idempotent: Whether payments with the same key are one.

    Attributes:
        books: When each payment is booked, and its key.
        met: What was met.
    """

    rng: random.Random
    limit: float | None
    after: float | None
    is_idempotent: bool
    books: list[tuple[float, str]] = field(default_factory=list)
    met: Counter[str] = field(default_factory=Counter)
    _cut: list[str] = field(default_factory=list)  # keys of late calls that the process was at work on when it died
    _is_dying: bool = False

    @property
    def until(self) -> float:
        """The longest that it takes to book after a cut; what is documented."""
        return max(30.0, 2 * (self.limit or 0.0)) if self.after is None else self.after

    @property
    def payments(self) -> int:
        """How many payments there are in the end."""
        return len({key for _, key in self.books}) if self.is_idempotent else len(self.books)

    async def pay(self, context: ToolContext) -> str:
        key, fate = context.idempotency_key, self.rng.choice(FATES)
        self.met[f"call {fate}"] += 1
        if fate == "early":
            self.books.append((anyio.current_time(), key))
        try:
            await anyio.sleep(self.rng.choice((0.0, self.rng.uniform(0.0, 3.0), 9.0)))
            if fate != "well" or self.rng.random() < 0.2:
                raise ConnectionError("the line is lost")
            fate = ""
            self.books.append((anyio.current_time(), key))
            return "paid"
        finally:
            if fate == "late" and self._is_dying:
                self._cut.append(key)
            elif fate == "late":
                self._book_late(key)

    def _book_late(self, key: str) -> None:
        self.books.append((anyio.current_time() + self.rng.random() * self.until, key))

    async def look(self, key: str) -> Applied | bool | None:
        found = any(known == key and when <= anyio.current_time() for when, known in self.books)
        if not found and any(known == key for _, known in self.books):
            self.met["asked too early"] += 1
        await anyio.sleep(self.rng.choice((0.0, 0.2, 5.0)))
        return Applied("found") if found else False

    async def die(self, run: Run) -> None:
        """Let the process of a run end; it may have worked on its calls until `taken_over`."""
        self._is_dying = True
        run.cancel()
        await run.result()
        self._is_dying = False

    def taken_over(self) -> None:
        """The former owner is gone for sure: what it was at work on is booked from now on."""
        for key in self._cut:
            self._book_late(key)
        self._cut.clear()


SERVICE: Final[ContextVar[Service]] = ContextVar("SERVICE")


async def pay(context: ToolContext) -> str:
    """Pay."""
    return await SERVICE.get().pay(context)


async def look(key: str) -> Applied | bool | None:
    """Find out whether a payment was made."""
    return await SERVICE.get().look(key)


# Made once: to make a tool takes longer than a case.
TOOLS: Final = [make_tool(pay, effect=effect, needs_approval=False) for effect in ("effectful", "idempotent")]


@contextmanager
def _clock_of_day() -> Iterator[None]:
    """The clock of day goes with the virtual one."""

    def now() -> float:
        return 1.6e9 + anyio.current_time()

    with mock.patch.object(time, "time", now):
        yield


async def _carry_out(rng: random.Random) -> Service:
    limit = rng.choice((None, 0.5, 2.0, 25.0))
    service = Service(rng, limit, rng.choice((None, None, 0.5, 7.0, 100.0)), rng.random() < 0.3)
    SERVICE.set(service)
    tools = [
        dataclasses.replace(TOOLS[service.is_idempotent], timeout=limit, reconcile=look, reconcile_after=service.after)
    ]
    retry = RetryRule(max_attempts=rng.choice((1, 2, 3)), first_delay=0.1)
    policy, journal = Policy(retry=retry, grace=rng.choice((0.1, 1.0))), Keeping()
    lives = rng.choice((1, 2, 2, 3))
    for life in range(lives):
        service.taken_over()
        try:
            if life == 0:
                plan = Plan(steps=[Step(id="p", tool="pay")])
                context = dagrun.start(plan, tools=tools, policy=policy, journal=journal, run_id=RUN)
            else:
                context = dagrun.resume(RUN, tools=tools, policy=policy, journal=journal)
            async with context as run:
                if life < lives - 1:
                    journal = await _interfere(run, journal, service)
                else:
                    service.met[str((await run.result()).status)] += 1
        except CannotResume:
            service.met["over"] += 1
            break
        await anyio.sleep(rng.choice((0.0, rng.uniform(0.0, 2 * service.until), 1000.0)))
    service.taken_over()
    return service


async def _interfere(run: Run, journal: Keeping, service: Service) -> Keeping:
    """Cut the run in one of the ways, at some moment; return the journal that it is resumed from."""
    rng, way = service.rng, service.rng.choice(WAYS)
    with anyio.move_on_after(rng.choice((rng.uniform(0.0, 1.0), rng.uniform(0.0, 1.2 * service.until)))):
        await run.result()
        return journal
    service.met[way] += 1
    left = journal
    match way:
        case "cancel":
            run.cancel()
        case "cancel the step":
            run.cancel("p")
        case "suspend":
            run.suspend()
        case "crash":
            left = Keeping()
            left.put(journal.texts)
            await service.die(run)
        case _:
            same = Step(id="q", tool="pay")
            edit = Drop(id="p", cancel=True) if way == "drop" else Replace(id="p", step=same, cancel=True)
            try:
                await run.splice(Patch(edits=[edit]))
            except SpliceRefused:
                service.met[f"{way} refused"] += 1
                run.cancel()
    if way != "crash" and rng.random() < 0.5:
        run.cancel()
    await run.result()
    return left


def run_cut_calls(seeds: range, parts: Parts | None = None) -> Iterator[tuple[int, Service]]:
    """Carry out the case of each seed, with *parts* of the engine replaced; yield what became of it."""

    async def carry_out_some(some: range) -> list[tuple[int, Service]]:
        with _clock_of_day():
            return [(seed, await _carry_out(random.Random(seed))) for seed in some]

    for first in range(0, len(seeds), 100):  # a loop for each case would take twice as long
        with replaced(parts or {}):
            done = run_virtual(carry_out_some, seeds[first : first + 100])
        yield from done


# Ways to believe a no too early ---------------------------------------------------------------------------------------


def at_once(node: Node) -> float:
    """A no counts, whenever it is said."""
    return 0.0


def from_the_start(node: Node) -> float:
    """The time runs from the beginning of the call."""
    last = node.attempts[-1]
    return seconds_until_no_counts(node) - last.duration


class CountsWhenItIsSaid(ApproverCalls):
    """An ask counts that ended late enough, whenever it began."""

    async def _answer_in_time(self, node: Node, tool: AnyTool) -> Any:
        cut = node.attempts[-1].ended
        assert cut is not None
        self._seconds_since, exact = lambda at: exact(at) + 5.0, self._seconds_since
        try:
            return await super()._answer_in_time(node, tool)
        finally:
            self._seconds_since = exact


EARLY_MUTANTS: Final[Mapping[str, Parts]] = {
    "a no counts at once": {seconds_until_no_counts: at_once},
    "the time runs from the beginning of the call": {seconds_until_no_counts: from_the_start},
    "an ask counts that began too early": {ApproverCalls: CountsWhenItIsSaid},
}
