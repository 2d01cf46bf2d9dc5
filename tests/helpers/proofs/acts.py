"""Tools that do as their arguments say: succeed, fail in many ways, hang, or cling on; and a log of their calls."""

from __future__ import annotations

import asyncio
import hashlib
import json
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
from typing_extensions import TypedDict

from dagrun import Toolbox, ToolContext, ToolError, tool

GRACE: Final = 1.0
MOST_TOKENS: Final = 10  # of one call
LAST_WORDS: Final = 0.25  # seconds that a clinging tool needs when it is told to stop; less than the grace period


class Act(TypedDict):
    """What one attempt does after some seconds, and what it gives if it succeeds."""

    does: str
    seconds: float
    gives: int


class Given(TypedDict):
    """What every act gives; *trail* is a hash over all that it got, so that no two inputs give the same."""

    value: int
    rows: list[int]
    trail: str


@dataclass
class Stage:
    """The log of all calls, written by the tools themselves."""

    entered: list[tuple[str, int]] = field(default_factory=list)
    got: dict[tuple[str, int], tuple[Any, int]] = field(default_factory=dict)
    keys: dict[tuple[str, int], str] = field(default_factory=dict)
    returned: dict[tuple[str, int], Given] = field(default_factory=dict)


STAGE: ContextVar[Stage] = ContextVar("STAGE")


def given(act: Act, feed: Any, item: int) -> Given:
    """What *act* gives: its number, a list of up to three, and the trail of what it got."""
    got = json.dumps([act["gives"], feed, item], sort_keys=True).encode()
    rows = list(range(act["gives"] % 4))
    return {"value": act["gives"], "rows": rows, "trail": hashlib.sha256(got).hexdigest()[:12]}


def act_of(acts: list[Act], attempt: int, item: int) -> Act:
    """The act of an attempt; every element of a for_each begins at another one."""
    return acts[(attempt - 1 + item) % len(acts)]


async def _play(acts: list[Act], context: ToolContext, item: int, feed: Any) -> Given:
    call = (context.step, context.attempt)
    stage = STAGE.get()
    stage.entered.append(call)
    stage.got[call] = feed, item
    stage.keys[call] = context.idempotency_key
    act = act_of(acts, context.attempt, item)
    await _spend(act)
    if act["gives"] % 2:  # who says nothing is charged the most
        context.report_usage(tokens=act["gives"])
    _fail(act["does"])
    if act["does"] == "surprises":
        context.surprise("nobody expected that")
    stage.returned[call] = given(act, feed, item)
    return stage.returned[call]


async def _spend(act: Act) -> None:
    match act["does"]:
        case "hangs":
            await anyio.sleep_forever()
        case "clings":
            try:
                await anyio.sleep(act["seconds"])
            except BaseException:  # noqa: BLE001  (swallowing everything is its part)
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(LAST_WORDS)
        case "will not stop":
            await _sit_out()
        case _:
            if act["seconds"]:
                await anyio.sleep(act["seconds"])


async def _sit_out() -> None:
    while True:
        try:
            await anyio.sleep_forever()
        except GeneratorExit:
            raise
        except BaseException:  # noqa: BLE001  (the same)
            # On a virtual clock no time would pass if it went straight on.
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.3)


def _fail(does: str) -> None:
    match does:
        case "is busy":
            raise ToolError("busy", retryable=True)
        case "loses the line":
            raise ConnectionResetError("gone")
        case "refuses":
            raise ToolError("no")
        case "breaks":
            raise ValueError("broken")
        case "exits":
            raise SystemExit(3)
        case "cancels itself":
            raise asyncio.CancelledError  # the runtime takes it for what it is on trio too
        case "leaves a scope open":
            anyio.CancelScope().__enter__()


@tool(effect="pure", fallback="spare_act", max_tokens=MOST_TOKENS)
async def pure_act(acts: list[Act], context: ToolContext, item: int = 0, feed: Any = None) -> Given:
    """An act that changes nothing."""
    return await _play(acts, context, item, feed)


@tool(effect="read", max_tokens=MOST_TOKENS)
async def spare_act(acts: list[Act], context: ToolContext, item: int = 0, feed: Any = None) -> Given:
    """Stands in when the first tool has failed."""
    return await _play(acts, context, item, feed)


@tool(effect="idempotent", max_tokens=MOST_TOKENS)
async def safe_act(acts: list[Act], context: ToolContext, item: int = 0, feed: Any = None) -> Given:
    """An act that changes the world once, however often it is called with the same key."""
    return await _play(acts, context, item, feed)


@tool(effect="effectful", needs_approval=False, max_tokens=MOST_TOKENS)
async def deed(acts: list[Act], context: ToolContext, item: int = 0, feed: Any = None) -> Given:
    """An act that changes the world each time."""
    return await _play(acts, context, item, feed)


@tool(effect="pure")
async def banned_act(acts: list[Act], context: ToolContext, item: int = 0, feed: Any = None) -> Given:
    """An act that no run may call."""
    raise NotImplementedError


NAMES: Final = ("pure_act", "spare_act", "safe_act", "deed")
TOOLS: Final = Toolbox(pure_act, spare_act, safe_act, deed, banned_act, allow=NAMES)
