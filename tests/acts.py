"""Tools that do as their arguments say: succeed, fail in many ways, hang, or cling on; and a log of their calls."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
from typing_extensions import TypedDict

from dagrun.errors import ToolError
from dagrun.model.context import ToolContext
from dagrun.model.tool import tool
from dagrun.model.toolbox import Toolbox

GRACE: Final = 1.0
LAST_WORDS: Final = 0.25  # seconds that a clinging tool needs when it is told to stop; less than the grace period


class Act(TypedDict):
    """What one attempt does after some seconds, and what it gives if it succeeds."""

    does: str
    seconds: float
    gives: int


class Given(TypedDict):
    """What every act gives."""

    value: int
    rows: list[int]


@dataclass
class Stage:
    """The log of all calls, written by the tools themselves."""

    entered: list[tuple[str, int]] = field(default_factory=list)
    returned: dict[tuple[str, int], Given] = field(default_factory=dict)


STAGE: ContextVar[Stage] = ContextVar("STAGE")


def given(act: Act) -> Given:
    """What *act* gives: its number, and a list of up to three."""
    return {"value": act["gives"], "rows": list(range(act["gives"] % 4))}


def act_of(acts: list[Act], attempt: int, item: int) -> Act:
    """The act of an attempt; every element of a for_each begins at another one."""
    return acts[(attempt - 1 + item) % len(acts)]


async def _play(acts: list[Act], context: ToolContext, item: int) -> Given:
    call = (context.step, context.attempt)
    stage = STAGE.get()
    stage.entered.append(call)
    act = act_of(acts, context.attempt, item)
    await _spend(act)
    _fail(act["does"])
    stage.returned[call] = given(act)
    return given(act)


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


@tool(effect="pure", fallback="spare_act")
async def pure_act(acts: list[Act], context: ToolContext, item: int = 0, feed: Any = None) -> Given:
    """An act that changes nothing."""
    return await _play(acts, context, item)


@tool(effect="read")
async def spare_act(acts: list[Act], context: ToolContext, item: int = 0, feed: Any = None) -> Given:
    """Stands in when the first tool has failed."""
    return await _play(acts, context, item)


@tool(effect="idempotent")
async def safe_act(acts: list[Act], context: ToolContext, item: int = 0, feed: Any = None) -> Given:
    """An act that changes the world once, however often it is called with the same key."""
    return await _play(acts, context, item)


@tool(effect="effectful", needs_approval=False)
async def deed(acts: list[Act], context: ToolContext, item: int = 0, feed: Any = None) -> Given:
    """An act that changes the world each time."""
    return await _play(acts, context, item)


TOOLS: Final = Toolbox(pure_act, spare_act, safe_act, deed)
