"""Tools that use tokens and money, and a book that is kept from the events alone of what runs have used."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import anyio

import dagrun
from dagrun import Event, Plan, Policy, RetryRule, Step, ToolContext, ToolError
from dagrun.events import AttemptEnded, AttemptStarted
from dagrun.kernel.model.outcome import ErrorKind
from dagrun.kernel.model.tool import AnyTool

NEARLY: Final = 1e-9  # sums of the book are sums of floats

# What a call reports: a part of its worst case, nothing, or what cannot be.
NOTHING: Final = -1.0
NONSENSE: Final = -2.0


async def _use(context: ToolContext, tokens: int, cost: float, seconds: float, part: float, fails: str) -> str:
    await anyio.sleep(seconds)
    if part >= 0:
        context.report_usage(tokens=int(tokens * part), cost=cost * part)
    elif part == NONSENSE:
        for figures in ({"tokens": -5}, {"tokens": math.nan}, {"cost": math.nan}, {"tokens": 5, "cost": -0.1}):
            with suppress(ValueError):
                context.report_usage(**figures)
    match fails:
        case "once" if context.attempt == 1:
            raise ConnectionError("lost")
        case "always":
            raise ToolError("no")
        case "doubt":
            raise ValueError("who knows")
    return "used"


@dagrun.tool(effect="read", max_tokens=100, max_cost=0.5)
async def think(context: ToolContext, seconds: float = 1.0, part: float = 1.0, fails: str = "") -> str:
    """At most 100 tokens and 0.5 in cost."""
    return await _use(context, 100, 0.5, seconds, part, fails)


@dagrun.tool(effect="read", max_tokens=7, max_cost=0.07)
async def ask(context: ToolContext, seconds: float = 1.0, part: float = 1.0, fails: str = "") -> str:
    """At most 7 tokens and 0.07 in cost."""
    return await _use(context, 7, 0.07, seconds, part, fails)


@dagrun.tool(effect="effectful", max_tokens=40, max_cost=0.1, needs_approval=False)
async def send(context: ToolContext, seconds: float = 1.0, part: float = 1.0, fails: str = "") -> str:
    """At most 40 tokens and 0.1 in cost, and it changes the world."""
    return await _use(context, 40, 0.1, seconds, part, fails)


@dagrun.tool(effect="pure")
async def add(seconds: float = 1.0) -> int:
    """Uses nothing."""
    await anyio.sleep(seconds)
    return 1


@dagrun.tool(effect="pure")
async def give(value: Any) -> Any:
    """Gives what it got, and uses nothing."""
    return value


TOOLS: Final[tuple[AnyTool, ...]] = (think, ask, send, add, give)


def step(id_: str, tool: str = "think", *after: str, **fields: Any) -> Step:
    """A step; what is no field of one is an argument."""
    args: dict[str, Any] = {name: fields.pop(name) for name in ("seconds", "part", "fails") if name in fields}
    return Step(id=id_, tool=tool, args=args, depends_on=after, **fields)


@dataclass
class Book:
    """What has been used, and may yet be, by the events of any number of runs; and where that was too much.

    Attributes:
        limits: Ceilings: ``attempts``, ``tokens``, ``cost``, and names of tools.
    """

    limits: dict[str, float]
    open: dict[tuple[int, str], AnyTool] = field(default_factory=dict)
    spent: dict[str, float] = field(default_factory=dict)
    most: dict[str, float] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def reader(self, run: int = 0, tools: tuple[AnyTool, ...] = TOOLS) -> Callable[[Event], None]:
        """Give what reads the events of one run."""
        by_name = {tool.name: tool for tool in tools}

        def read(event: Event) -> None:
            if isinstance(event, AttemptStarted):
                self.open[run, event.step] = by_name[event.tool]
                self._spend("attempts", 1)
                self._spend(event.tool, 1)
            elif isinstance(event, AttemptEnded) and (run, event.step) in self.open:
                self._end(self.open.pop((run, event.step)), event)
            self._check(event)

        return read

    def _end(self, tool: AnyTool, event: AttemptEnded) -> None:
        outcome = event.outcome
        if outcome.failure is not None and outcome.failure.kind is ErrorKind.BAD_ARGUMENTS:
            return  # nothing was called
        is_reported = outcome.tokens > 0 or outcome.cost is not None
        self._spend("tokens", outcome.tokens if is_reported else tool.max_tokens or 0)
        self._spend("cost", (outcome.cost or 0.0) if is_reported else tool.max_cost or 0.0)

    def _spend(self, what: str, amount: float) -> None:
        self.spent[what] = self.spent.get(what, 0) + amount

    def _check(self, event: Event) -> None:
        reserved = {
            "tokens": sum(tool.max_tokens or 0 for tool in self.open.values()),
            "cost": sum(tool.max_cost or 0.0 for tool in self.open.values()),
        }
        for what, limit in self.limits.items():
            total = self.spent.get(what, 0) + reserved.get(what, 0)
            self.most[what] = max(self.most.get(what, 0), total)
            if total > limit + NEARLY:
                self.faults.append(f"{what}: {total} of {limit} at {type(event).__name__} {event.seq}")


def limits_of(policy: Policy) -> dict[str, float]:
    """The ceilings of a policy, as a book has them."""
    named = {"attempts": policy.max_attempts, "tokens": policy.max_tokens, "cost": policy.max_cost}
    return {name: limit for name, limit in named.items() if limit is not None} | dict(policy.max_calls_by_tool)


def random_plan(rng: Random, size: int) -> Plan:
    """Steps that use something or other, depend on some before them, fail, are tried again, or are lists."""
    steps: list[Step] = []
    for number in range(size):
        tool = rng.choice(("think", "ask", "send", "add"))
        fields: dict[str, Any] = {"seconds": rng.choice((0.0, 0.5, 1.0, 3.0))}
        if tool != "add":
            fields["part"] = rng.choice((0.0, 0.3, 1.0, rng.random(), NOTHING, NONSENSE))
            fields["fails"] = rng.choice(("", "", "", "once", "always", "doubt"))
        if rng.random() < 0.2:
            fields["for_each"] = list(range(rng.randint(0, 4)))
        if rng.random() < 0.2:
            fields["on_failure"] = rng.choice(("skip", "stop"))
        if rng.random() < 0.2:
            fields["timeout"] = rng.choice((0.4, 2.0))
        if tool == "think" and rng.random() < 0.3:
            fields["fallback"] = "ask"
        fields["optional"] = rng.random() < 0.2
        after = rng.sample([s.id for s in steps], k=min(len(steps), rng.choice((0, 0, 1, 2))))
        steps.append(step(f"s{number}", tool, *after, **fields))
    return Plan(steps=steps)


def random_policy(rng: Random) -> Policy:
    """Ceilings that are sometimes reached."""
    chosen: dict[str, Any] = {
        "max_attempts": rng.randint(1, 20),
        "max_tokens": rng.choice((5, 100, 250, 700)),
        "max_cost": rng.choice((0.07, 0.5, 1.3, 4.0)),
        "max_calls_by_tool": {rng.choice(("think", "ask", "send", "add")): rng.randint(1, 4)},
        "max_running": rng.randint(1, 4),
        "max_running_by_tool": {rng.choice(("think", "ask")): 1},
        "warn_at": rng.choice((0.5, 0.9, 1.0)),
        "max_seconds": rng.choice((2.0, 8.0)),
    }
    kept = {name: value for name, value in chosen.items() if rng.random() < 0.5}
    return Policy(retry=RetryRule(max_attempts=2, first_delay=rng.choice((0.0, 1.0))), **kept)
