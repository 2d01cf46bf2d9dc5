"""People who answer by script, tools that need them, and the short way to run a plan before their eyes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

import dagrun
from dagrun import ApprovalRule, Event, Plan, Policy, Question, Run, RunResult, Step
from dagrun.kernel.model.tool import AnyTool
from dagrun.testing import StandIn
from small_tools import scripted, toolset

__all__ = ["Person", "given", "pay", "rule", "run", "settle", "start", "step"]


class Person:
    """Says one thing after the other, the last of them for ever; keeps what it was asked.

    Args:
        says: An answer, or what makes one of the question; an exception is raised.
        seconds: What it thinks before each.
    """

    def __init__(self, *says: Any, seconds: float = 0.0) -> None:
        self.asked: list[Question] = []
        self._says = says
        self._seconds = seconds

    async def __call__(self, question: Question) -> Any:
        say = self._says[min(len(self.asked), len(self._says) - 1)]
        self.asked.append(question)
        if self._seconds:
            await anyio.sleep(self._seconds)
        if isinstance(say, BaseException):
            raise say
        return say(question) if callable(say) else say


def pay(*acts: Any, **options: Any) -> StandIn:
    """A tool that changes the world and needs approval."""
    return scripted("pay", *(acts or ("paid",)), **{"effect": "effectful", "needs_approval": True, **options})


def step(id_: str = "pay", tool: str = "pay", value: Any = 1, **fields: Any) -> Step:
    """A step that passes *value* to a scripted tool."""
    return Step(id=id_, tool=tool, args={"value": value}, **fields)


def rule(ref: str, op: Any, value: Any, **fields: Any) -> ApprovalRule:
    """A rule about ``pay`` that looks at its arguments."""
    return ApprovalRule.model_validate({"tool": "pay", "when": {"ref": ref, "op": op, "value": value}, **fields})


async def run(
    *steps: Step, tools: tuple[StandIn | AnyTool, ...] = (), approver: Any = None, **options: Any
) -> RunResult:
    """Run *steps*; what is no option of `dagrun.run` belongs to the policy."""
    known = {name: options.pop(name) for name in ("on_event", "planner", "critics", "run_id") if name in options}
    plan = Plan(steps=steps)
    return await dagrun.run(plan, tools=toolset(*tools), policy=Policy(**options), approver=approver, **known)


@asynccontextmanager
async def start(
    *steps: Step, tools: tuple[StandIn | AnyTool, ...] = (), seen: list[Event] | None = None, **options: Any
) -> AsyncIterator[Run]:
    """Start *steps* with somebody who answers through the handle."""
    on_event = None if seen is None else seen.append
    known = {name: options.pop(name) for name in ("planner", "approver", "run_id") if name in options}
    plan, policy = Plan(steps=steps), Policy(**options)
    async with dagrun.start(
        plan, tools=toolset(*tools), policy=policy, attended=True, on_event=on_event, **known
    ) as handle:
        yield handle


async def settle(seconds: float = 0.01) -> None:
    """Let everything happen that happens at once."""
    await anyio.sleep(seconds)


def given(result: RunResult, id_: str = "pay") -> tuple[str, str]:
    """How a step ended, and why."""
    return str(result.steps[id_].state), result.steps[id_].reason
