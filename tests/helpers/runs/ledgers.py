"""Runs that reserve and settle in any order, held against a book of what their tools have truly used."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, NamedTuple

from dagrun import Budget, Policy, tool
from dagrun.kernel.graph.ledger import Ledger, Reservation
from dagrun.kernel.model.tool import AnyTool

NEARLY: Final = 1 + 1e-12  # sums of the book are sums of floats


@tool(effect="read", max_tokens=100, max_cost=0.1)
async def think() -> None: ...


@tool(effect="effectful", max_tokens=7, max_cost=0.07)
async def ask() -> None: ...


@tool(effect="read", max_cost=0.3)
async def search() -> None: ...


@tool(effect="pure")
async def add() -> None: ...


@tool(effect="read")
async def look() -> None: ...


TOOLS: Final[tuple[AnyTool, ...]] = (think, ask, search, add)


STORIES: Final = ("reserve", "truth", "nothing", "nonsense", "never made", "leave")
NONSENSE: Final[tuple[tuple[Any, Any], ...]] = ((-5, -1.0), (math.nan, math.nan), (10**400, math.inf), (-1, None))


class Happening(NamedTuple):
    """One thing that happens to one of three runs: it reserves, ends a call with a report of some sort, or ends."""

    run: int
    story: str
    choice: int
    part: float
    other_part: float


@dataclass
class Call:
    """What one call has truly used; its worst case while nobody knows."""

    tool: AnyTool
    reservation: Reservation
    tokens: float
    cost: float
    is_open: bool = True

    @classmethod
    def of(cls, made: AnyTool, reservation: Reservation) -> Call:
        return cls(made, reservation, made.max_tokens or 0, made.max_cost or 0)


@dataclass
class Run:
    """A run, its calls, and how often it was told that there is room."""

    policy: Policy
    ledger: Ledger
    calls: list[Call] = field(default_factory=list)
    told: list[int] = field(default_factory=list)
    is_waiting: bool = False

    def open(self) -> list[Call]:
        return [call for call in self.calls if call.is_open]


@dataclass(frozen=True)
class Limits:
    """Ceilings, as the book counts them."""

    max_attempts: int | None
    max_calls_by_tool: dict[str, int]
    max_tokens: int | None
    max_cost: float | None

    def excess(self, calls: list[Call], more: AnyTool | None = None, rounding: float = 0) -> list[str]:
        """What is above its ceiling, *more* called as well, and each cost rounded up by so much."""
        tools = [call.tool for call in calls] + ([more] if more is not None else [])
        tokens = [call.tokens for call in calls] + [(more and more.max_tokens) or 0]
        costs = [call.cost + rounding for call in calls] + [(more and more.max_cost) or 0]
        counts: list[tuple[str, float, float | None]] = [
            ("attempts", len(tools), self.max_attempts),
            ("tokens", sum(tokens), self.max_tokens),
            ("cost", math.fsum(costs), self.max_cost and self.max_cost * NEARLY),
        ]
        by_tool = ((f"calls of {name}", limit) for name, limit in self.max_calls_by_tool.items())
        counts += [(name, sum(f"calls of {t.name}" == name for t in tools), limit) for name, limit in by_tool]
        found = [f"{name}: {used} of {limit}" for name, used, limit in counts if limit is not None and used > limit]
        if more is not None and more is not add:  # what names no bound must find something left
            bounds = {"tokens": more.max_tokens, "cost": more.max_cost}
            spent = {name for name, used, limit in counts if limit is not None and used >= limit}
            found += [name for name, bound in bounds.items() if bound is None and name in spent]
        return found


SHARED: Final = Limits(60, {"ask": 12}, 1500, 3.0)
OWN: Final = (
    Policy(max_attempts=20, max_tokens=900, max_cost=1.0, max_calls_by_tool={"think": 7}),
    Policy(max_cost=0.7),
    Policy(),
)


class World:
    """Three runs that share a budget, and what happens to them, one thing after another.

    Args:
        kind: The ledger; a broken one must be noticed.
    """

    def __init__(self, kind: type[Ledger] = Ledger) -> None:
        self.budget = Budget(**vars(SHARED))
        self.runs: list[Run] = []
        for number, policy in enumerate(OWN):
            told: list[int] = []
            ledger = kind(policy, self.budget, lambda told=told, number=number: told.append(number))  # type: ignore[misc]
            self.runs.append(Run(policy, ledger, told=told))

    def reserve(self, run: Run, made: AnyTool) -> Iterator[str]:
        before = self.figures()
        reservation = run.ledger.reserve(made)
        misfits = limits_of(run.policy).excess(run.calls, made, 1e-9) + SHARED.excess(self.calls(), made, 1e-9)
        run.is_waiting = run.is_waiting or (reservation is None and bool(SHARED.excess(self.calls(), made)))
        if reservation is not None:
            run.calls.append(Call.of(made, reservation))
            return
        if not misfits:
            yield f"{made.name} was refused, though it fits"
        if before != self.figures():
            yield f"{made.name} was refused, and something was taken all the same"
        if not run.ledger.why_not(made, 1):
            yield f"{made.name} was refused without a reason"

    def settle(self, run: Run, call: Call, event: Happening) -> Iterator[str]:
        """Report the truth, or nothing, or nonsense; once more, now and then."""
        tokens: Any = 0
        cost: Any = None
        if event.story == "truth":
            tokens, cost = int(call.tokens * event.part), call.cost * event.other_part
            # A zero beside a figure that is none is not believed.
            call.tokens, call.cost = (
                (tokens if tokens or not cost else call.tokens),
                (cost if cost or not tokens else call.cost),
            )
        elif event.story == "nonsense":
            tokens, cost = NONSENSE[event.choice % len(NONSENSE)]
        call.is_open = False
        if event.story == "never made":
            run.calls.remove(call)
        for _ in range(1 + event.choice % 2):
            if event.story == "never made":
                run.ledger.withdraw(call.reservation)
            else:
                run.ledger.settle(call.reservation, tokens, cost, is_reported=event.story != "nothing")
        yield from self.forgotten()

    def leave(self, run: Run) -> Iterator[str]:
        """End a run in the middle of things; whoever still calls it may go on with what it has left."""
        run.is_waiting = False
        run.told.clear()
        had_open = bool(run.open())
        run.ledger.leave()
        for call in run.open():
            call.is_open = False
        if run.told:
            yield "a run that has left was told that there is room"
        if had_open:
            yield from self.forgotten()

    def forgotten(self) -> Iterator[str]:
        """Runs that wait for a shared ceiling, and were not told that something has ended."""
        for number, run in enumerate(self.runs):
            if run.is_waiting and not run.told:
                yield f"run {number} waits for room, and nobody told it that a call has ended"
            run.is_waiting = False
            run.told.clear()

    def calls(self) -> list[Call]:
        return [call for run in self.runs for call in run.calls]

    def figures(self) -> list[dict[str, float]]:
        return [run.ledger.left() | run.ledger.used() for run in self.runs]

    def broken(self) -> Iterator[str]:
        """Every law that does not hold at this instant."""
        for number, run in enumerate(self.runs):
            for excess in limits_of(run.policy).excess(run.calls):
                yield f"run {number} is above its ceiling: {excess}"
            yield from _wrong_figures(run)
        for excess in SHARED.excess(self.calls()):
            yield f"the runs together are above their ceiling: {excess}"


def _wrong_figures(run: Run) -> Iterator[str]:
    used, left = run.ledger.used(), run.ledger.left()
    for name, limit in (("tokens", run.policy.max_tokens), ("cost", run.policy.max_cost)):
        if limit is None:
            continue
        ended = math.fsum(getattr(call, name) for call in run.calls if not call.is_open)
        if used[name] < ended / NEARLY or not 0 <= left[name] <= limit - used[name] + 1e-9:
            yield f"of {name}, {used[name]} are said to be used and {left[name]} left, but {ended} were used of {limit}"
        if not run.open() and used[name] + left[name] < limit / NEARLY:
            yield f"some {name} stay reserved, though nothing runs"


def taken(ledger: Ledger, tool: AnyTool) -> Reservation:
    """A reservation, which must be had."""
    reservation = ledger.reserve(tool)
    assert reservation is not None
    return reservation


def limits_of(policy: Policy) -> Limits:
    return Limits(policy.max_attempts, policy.max_calls_by_tool, policy.max_tokens, policy.max_cost)


def play(events: Iterable[Happening], kind: type[Ledger] = Ledger) -> list[str]:
    """Let things happen; give every law that was broken, at the first instant at which one was."""
    world = World(kind)
    for event in events:
        run = world.runs[event.run]
        opened = run.open()
        if event.story == "reserve" or not opened:
            found = list(world.reserve(run, TOOLS[event.choice % len(TOOLS)]))
        elif event.story == "leave":
            found = list(world.leave(run))
        else:
            found = list(world.settle(run, opened[event.choice % len(opened)], event))
        found += world.broken()
        if found:
            return found
    return []


def chance(seed: int, count: int = 150) -> list[Happening]:
    """Many things that happen, by chance."""
    random = Random(seed)
    weights = [8, 4, 2, 2, 2, 0.5]
    return [
        Happening(
            random.randrange(3),
            random.choices(STORIES, weights)[0],
            random.randrange(100),
            random.choice((random.random(), 1.0)),
            random.choice((random.random(), 1.0)),
        )
        for _ in range(count)
    ]
