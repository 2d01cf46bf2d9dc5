"""Tools whose calls can be shared, that count them, and the short ways to run them."""

from __future__ import annotations

from typing import Any

import anyio

import dagrun
from dagrun import Batch, Plan, Policy, RunResult, Step, ToolContext
from dagrun.kernel.model.outcome import SharedCall
from dagrun.kernel.model.tool import AnyTool, make_tool
from small_tools import SMALL_TOOLS


class Counted:
    """A tool ``look`` that takes *seconds*, and returns what it was asked about with the number of its call.

    Args:
        seconds: How long a call takes.
        tokens: What each call reports; `None` for no report.
        acts: By number of the call: an exception to raise, or another value to return.
        options: Of the tool, such as its cache.

    Attributes:
        calls: What each call was asked about.
        ends: How each ended, in the order of the ends.
    """

    def __init__(
        self, seconds: float = 1.0, *, tokens: int | None = None, acts: dict[int, Any] | None = None, **options: Any
    ) -> None:
        self.calls: list[Any] = []
        self.ends: list[str] = []
        self.seconds = seconds

        async def look(about: Any, context: ToolContext) -> Any:
            self.calls.append(about)
            number = len(self.calls)
            if tokens is not None:
                context.report_usage(tokens=tokens)
            try:
                await anyio.sleep(self.seconds)
            except BaseException:
                self.ends.append("cancelled")
                raise
            act = (acts or {}).get(number, f"{about} {number}")
            self.ends.append("failed" if isinstance(act, Exception) else "returned")
            if isinstance(act, Exception):
                raise act
            return act(context) if callable(act) else act

        self.tool: AnyTool = make_tool(look, **{"effect": "read", "cache": "run", **options})

    @property
    def tools(self) -> list[AnyTool]:
        """The tool, and the small ones."""
        return [*SMALL_TOOLS, self.tool]


def look(id_: str, *after: str, about: Any = "x", **fields: Any) -> Step:
    """A step that calls the tool."""
    return Step(id=id_, tool="look", args={"about": about}, depends_on=after, **fields)


def nap(id_: str, seconds: float, *after: str) -> Step:
    """A step that only takes time."""
    return Step(id=id_, tool="nap", args={"seconds": seconds}, depends_on=after)


async def play(counted: Counted, *steps: Step, engine: dagrun.Engine | None = None, **options: Any) -> RunResult:
    """Run *steps*; options are those of the run, and of its policy."""
    policy = Policy(**{name: options.pop(name) for name in list(options) if name in Policy.model_fields})
    start = dagrun.run if engine is None else engine.run
    return await start(Plan(steps=steps), tools=counted.tools, policy=policy, **options)


def shared_of(result: RunResult, step: str, attempt: int = -1) -> SharedCall | None:
    """Whose call a step has shared."""
    outcome = result.steps[step].attempts[attempt].outcome
    assert outcome is not None
    return outcome.shared


class Prices:
    """A tool ``price`` whose batch form takes a second, whatever the number of calls.

    Args:
        options: Of the batch.
        tool_options: Of the tool.
        act: Takes the calls, and returns what the batch form returns; an exception is raised.

    Attributes:
        batches: The items of each batch.
        alone: The items of calls that were made alone.
    """

    def __init__(self, act: Any = None, tool_options: dict[str, Any] | None = None, **options: Any) -> None:
        self.batches: list[list[str]] = []
        self.alone: list[str] = []
        self.ends: list[str] = []

        async def price(item: str, currency: str = "EUR") -> Any:
            self.alone.append(item)
            return 0

        async def prices(calls: list[dict[str, Any]], context: ToolContext) -> Any:
            self.batches.append([call["item"] for call in calls])
            try:
                await anyio.sleep(1.0)
            except BaseException:
                self.ends.append("cancelled")
                raise
            self.ends.append("returned")
            context.report_usage(tokens=30 * len(calls) + 1, cost=0.5)
            made = [len(call["item"]) for call in calls] if act is None else act(calls)
            if isinstance(made, Exception):
                raise made
            return made

        batch = Batch(prices, **{"max_calls": 4, "within": 0.1, **options})
        self.tool: AnyTool = make_tool(price, effect="read", batch=batch, **(tool_options or {}))

    async def play(self, *steps: Step, **policy: Any) -> dagrun.RunResult:
        """Run *steps*."""
        return await dagrun.run(Plan(steps=steps), tools=[*SMALL_TOOLS, self.tool], policy=Policy(**policy))


def price(id_: str, item: str, *after: str, **args: Any) -> Step:
    """A step that asks for a price."""
    return Step(id=id_, tool="price", args={"item": item, **args}, depends_on=after)
