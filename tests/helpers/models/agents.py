"""Turns of scripted agents, and the short way to run one."""

from __future__ import annotations

from typing import Any

import dagrun
from dagrun import (
    Plan,
    Policy,
    RunResult,
    Step,
)
from dagrun.kernel.model.outcome import Failure
from dagrun.kernel.model.tool import AnyTool
from small_tools import ONCE, toolset


def call(tool: str, **args: Any) -> dict[str, Any]:
    """A turn with a call, as a strict output mode writes it: every field is there."""
    return {"thought": "next", "call": {"tool": tool, "args": args}, "answer": None, "cannot": None}


def answer(value: Any = "done") -> dict[str, Any]:
    """A turn with the answer."""
    return {"thought": "done", "call": None, "answer": value, "cannot": None}


async def run(agent: AnyTool, task: str = "Find it.", approver: Any = None, seen: Any = None, **args: Any) -> RunResult:
    """Run *agent* as the one step ``work``, once."""
    plan = Plan(steps=[Step(id="work", tool=agent.name, args={"task": task, **args})])
    options: Any = {"policy": Policy(retry=ONCE), "approver": approver, "on_event": seen}
    return await dagrun.run(plan, tools=toolset(agent), **options)


def failure_of(result: RunResult) -> Failure:
    """Why it has failed."""
    failure = result.steps["work"].failure
    assert failure is not None
    return failure


def tokens_of(result: RunResult) -> int:
    """What it has used."""
    outcome = result.steps["work"].attempts[-1].outcome
    assert outcome is not None
    return outcome.tokens
