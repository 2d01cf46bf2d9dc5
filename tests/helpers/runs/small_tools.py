"""A few tools that do what they are told, and the short way to run them."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import dagrun
from dagrun import Plan, Policy, RetryRule, RunResult, Step
from dagrun.kernel.model.tool import AnyTool, make_tool
from dagrun.testing import StandIn


async def nap(seconds: float, gives: Any = None) -> Any:
    """Sleep, then give."""
    await anyio.sleep(seconds)
    return gives


async def echo(value: Any) -> Any:
    """Give what it got."""
    return value


async def fail(message: str = "no") -> Any:
    """Fail in a way that no retry cures."""
    raise ValueError(message)


SMALL_TOOLS: tuple[AnyTool, ...] = tuple(make_tool(function, effect="read") for function in (nap, echo, fail))
ONCE = RetryRule(max_attempts=1)
AT_ONCE = RetryRule(max_attempts=2, first_delay=0)


async def _takes(value: Any = None) -> Any:
    return value


def scripted(name: str, *acts: Any, effect: str = "read", **options: Any) -> StandIn:
    """A tool with one optional argument *value* that plays *acts*, one for each call."""
    return StandIn(make_tool(_takes, name=name, effect=effect, **options), *acts)


async def run(
    *steps: Step, tools: tuple[StandIn | AnyTool, ...] = (), seed: int | None = None, **policy: Any
) -> RunResult:
    """Run *steps* with the small tools and *tools*; *policy* is that of the run."""
    return await dagrun.run(Plan(steps=steps), tools=toolset(*tools), policy=Policy(**policy), seed=seed)


def toolset(*tools: StandIn | AnyTool) -> list[AnyTool]:
    """The small tools and *tools*."""
    return [*SMALL_TOOLS, *(t.tool if isinstance(t, StandIn) else t for t in tools)]


def states(result: RunResult) -> dict[str, str]:
    """How every step ended."""
    return {id_: str(step.state) for id_, step in result.steps.items()}


def near(expected: Any) -> Any:
    """`pytest.approx`, in a form that may stand inside a tuple."""
    return pytest.approx(expected)
