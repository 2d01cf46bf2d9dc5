"""A world whose lines get lost: tools with effects, and a log of what was called and how it ended.

The oracle of the rig looks at this log alone, at what people and tools have said about calls, and at how runs ended.
"""

from __future__ import annotations

import json
import random
from collections.abc import AsyncGenerator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
from typing_extensions import TypedDict

from dagrun import Applied, Toolbox, ToolContext, ToolError, agent_tool, tool
from dagrun.extend import Reply, Request, Usage

FATES: Final = ("returns", "lost", "refused", "hangs", "exits", "slow")
WEIGHTS: Final = (46, 26, 10, 6, 4, 8)
EFFECTS: Final = ("pay", "put", "mend")
ONCE: Final = ("pay", "mend")  # may never be repeated in doubt


@dataclass(slots=True)
class Call:
    """A call that has reached a tool with an effect.

    Attributes:
        seq: When, on the clock of the log.
        step: The id of the step.
        tool: The tool.
        key: The idempotency key.
        end: How it ended: ``returned``, ``refused`` (nothing has happened), or empty for nobody knows.
        ended: When it returned.
        is_applied: Whether the world was changed.
    """

    seq: int
    step: str
    tool: str
    key: str
    end: str = ""
    ended: int = 0
    is_applied: bool = False


@dataclass(slots=True)
class World:
    """The log.

    Attributes:
        rng: Decides how calls end.
        calls: Every call with an effect.
        told: What was said about effects: when, and of which step (by a person) or key (by a tool).
        met: What was met.
    """

    rng: random.Random
    calls: list[Call] = field(default_factory=list)
    told: list[tuple[int, str, str]] = field(default_factory=list)
    met: list[str] = field(default_factory=list)
    _now: int = 0

    def tick(self) -> int:
        """The next instant."""
        self._now += 1
        return self._now

    def fate(self) -> str:
        """How the next call ends."""
        return self.rng.choices(FATES, WEIGHTS)[0]


WORLD: ContextVar[World] = ContextVar("WORLD")


class Given(TypedDict):
    """What every tool gives."""

    text: str


async def _act(name: str, to: str, context: ToolContext) -> Given:
    world = WORLD.get()
    call = Call(world.tick(), context.step, name, context.idempotency_key)
    world.calls.append(call)
    fate = world.fate()
    await anyio.sleep(0.3)
    if fate == "refused":
        call.end = "refused"
        raise ToolError("not today", retryable=world.rng.random() < 0.5)
    call.is_applied = True
    await anyio.sleep({"hangs": 50.0, "slow": 3.0}.get(fate, 0.1))
    if fate == "lost":
        raise ConnectionError("the line is lost")
    if fate == "exits":
        raise SystemExit(3)
    call.end, call.ended = "returned", world.tick()
    return {"text": f"{name} {to}"}


async def reconcile(key: str) -> Any:
    """Find out whether a call took effect; one time in three nobody can say."""
    world = WORLD.get()
    await anyio.sleep(0.2)
    if world.rng.random() < 0.33:
        return None
    world.told.append((world.tick(), "", key))
    return Applied({"text": "found out"}) if any(c.is_applied for c in world.calls if c.key == key) else False


@tool(effect="effectful", needs_approval=False)
async def pay(to: str, context: ToolContext) -> Given:
    """Pay; nobody but people can find out."""
    return await _act("pay", to, context)


@tool(effect="idempotent", needs_approval=False)
async def put(to: str, context: ToolContext) -> Given:
    """Pay in a way that the same key pays once."""
    return await _act("put", to, context)


@tool(effect="effectful", needs_approval=False, reconcile=reconcile)
async def mend(to: str, context: ToolContext) -> Given:
    """Pay in a way that can be found out."""
    return await _act("mend", to, context)


@tool(effect="read")
async def look(to: str) -> Given:
    """Look whether it was paid; sometimes nobody knows."""
    await anyio.sleep(0.2)
    if WORLD.get().rng.random() < 0.7:
        raise ToolError(f"nobody knows of {to}")
    return {"text": "paid"}


@tool(effect="pure")
async def const(text: str) -> Given:
    """Give a text."""
    return {"text": text}


class Obedient:
    """The model of an agent: it makes the one call that its task names, and then says that all is well."""

    name = "obedient"

    async def stream(self, request: Request) -> AsyncGenerator[str | Reply, None]:
        """Say the next turn."""
        turn: dict[str, Any] = {"thought": "next", "call": None, "answer": None, "cannot": None}
        if len(request.messages) > 1:
            turn["answer"] = {"text": "done"}
        else:
            name, to = request.messages[0].text.removeprefix("Task: ").split()[:2]
            turn["call"] = {"tool": name, "args": {"to": to}}
        yield Reply(text=json.dumps(turn), stop="end", usage=Usage(), cost=None, model=self.name)


agent = agent_tool(
    Obedient(),
    Toolbox(pay, put),
    name="agent",
    output=Given,
    allow_effects=True,
    max_tokens=None,
    needs_approval=False,
)
TOOLS: Final = Toolbox(pay, put, mend, look, const, agent)
