"""Planners that write a plan bit by bit, at times that the test says, and the short way to run them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import anyio

import dagrun
from dagrun import Add, Brief, Event, Patch, Policy, RunResult, Step
from dagrun.kernel.model.tool import AnyTool
from dagrun.testing import StandIn
from small_tools import toolset

GOAL = "find it out"


class Writer:
    """Answers each brief with the next of its scripts: seconds to wait, steps, patches, and errors, one by one.

    Args:
        scripts: One for each call; the last one for ever.

    Attributes:
        briefs: What it was told, call by call.
        closed: How many of its answers have come to an end, of themselves or not.
    """

    def __init__(self, *scripts: Sequence[Any]) -> None:
        self.briefs: list[Brief] = []
        self.closed = 0
        self._scripts = scripts

    async def revise(self, brief: Brief) -> AsyncIterator[Any]:
        """Play the script for *brief*."""
        script = self._scripts[min(len(self.briefs), len(self._scripts) - 1)]
        self.briefs.append(brief)
        try:
            for act in script:
                if isinstance(act, int | float):
                    await anyio.sleep(act)
                elif isinstance(act, BaseException):
                    raise act
                else:
                    yield Add(step=act) if isinstance(act, Step) else act
        finally:
            self.closed += 1


class Says:
    """Gives one answer after the other, each at once; the last one for ever."""

    def __init__(self, *answers: Any) -> None:
        self.briefs: list[Brief] = []
        self._answers = answers

    async def revise(self, brief: Brief) -> Any:
        """Give the next answer."""
        answer = self._answers[min(len(self.briefs), len(self._answers) - 1)]
        self.briefs.append(brief)
        if isinstance(answer, BaseException):
            raise answer
        return answer


def whole(**facts: Any) -> Patch:
    """What a stream says of the whole plan."""
    return Patch(edits=(), **facts)


async def run(planner: Any, *tools: StandIn | AnyTool, events: list[Event] | None = None, **options: Any) -> RunResult:
    """Run what *planner* makes of `GOAL`; what is no option of a run is one of its policy."""
    given = {name: options.pop(name) for name in ("approver", "inputs", "critics", "on_event") if name in options}
    if events is not None:
        given["on_event"] = events.append
    return await dagrun.run(goal=GOAL, planner=planner, tools=toolset(*tools), policy=Policy(**options), **given)


def started(result: RunResult) -> dict[str, float | None]:
    """When each step was first called."""
    return {id_: step.started for id_, step in result.steps.items()}
