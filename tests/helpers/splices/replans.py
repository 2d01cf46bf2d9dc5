"""Planners for tests, and the short way to run a plan that one of them may change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio

import dagrun
from dagrun import Add, Brief, Drop, Event, Patch, Plan, Policy, Replace, Rewire, RunResult, Step
from dagrun.events import ReplanEnded
from dagrun.kernel.model.tool import AnyTool
from dagrun.testing import StandIn
from small_tools import toolset


class Thinker:
    """Thinks for *seconds*, then gives its answers one after another, and `None` when it has none left.

    An exception is raised; a function is called with the brief.

    Attributes:
        briefs: What it was told, newest last.
        asked_at: When, on the clock of the loop.
        told_to_stop: How often it was cancelled while it thought.
    """

    def __init__(self, *answers: Any, seconds: float = 0.0) -> None:
        self._answers = answers
        self._seconds = seconds
        self.briefs: list[Brief] = []
        self.asked_at: list[float] = []
        self.told_to_stop = 0

    async def revise(self, brief: Brief) -> Any:
        """Answer *brief*."""
        number = len(self.briefs)
        self.briefs.append(brief)
        self.asked_at.append(anyio.current_time())
        try:
            await anyio.sleep(self._seconds)
        except anyio.get_cancelled_exc_class():
            self.told_to_stop += 1
            raise
        answer = self._answers[number] if number < len(self._answers) else None
        if isinstance(answer, BaseException):
            raise answer
        return answer(brief) if callable(answer) else answer

    @property
    def kinds(self) -> list[list[str]]:
        """The kinds of the triggers, by request."""
        return [[str(trigger.kind) for trigger in brief.triggers] for brief in self.briefs]

    @property
    def steps(self) -> list[list[str]]:
        """The steps that the triggers come from, by request."""
        return [[trigger.step for trigger in brief.triggers] for brief in self.briefs]


def patch(*edits: Add | Drop | Replace | Rewire, **fields: Any) -> Patch:
    """A patch of *edits*."""
    return Patch(edits=edits, **fields)


def instead(old: str, new: Step, **fields: Any) -> Patch:
    """A patch that puts *new* in the place of *old*."""
    return patch(Replace(id=old, step=new, **fields))


def nap(id_: str, seconds: float, *after: str, **fields: Any) -> Step:
    """A step that sleeps, and gives its id."""
    return Step(id=id_, tool="nap", args={"seconds": seconds, "gives": id_}, depends_on=after, **fields)


def fails(id_: str, *after: str, **fields: Any) -> Step:
    """A step that fails in a way that no retry cures."""
    return Step(id=id_, tool="fail", depends_on=after, **fields)


def uses(id_: str, source: str, **fields: Any) -> Step:
    """A step that gives what *source* gave."""
    return Step(id=id_, tool="echo", args={"value": f"${{{source}}}"}, **fields)


def start(steps: Sequence[Step], planner: Any, *tools: StandIn | AnyTool, **options: Any) -> Any:
    """Start *steps* with *planner* and the small tools; what is no option of a run is one of its policy."""
    names = ("critics", "approver", "attended", "on_event", "inputs", "seed", "run_id")
    given = {name: options.pop(name) for name in names if name in options}
    plan = Plan(steps=steps, goal="the first goal", output=options.pop("output", None))
    box = options.pop("toolbox", None) or toolset(*tools)
    return dagrun.start(plan, tools=box, policy=Policy(**options), planner=planner, **given)


async def run(steps: Sequence[Step], planner: Any, *tools: StandIn | AnyTool, **options: Any) -> RunResult:
    """Run *steps* to their end; see `start`."""
    async with start(steps, planner, *tools, **options) as handle:
        result: RunResult = await handle.result()
    return result


def endings(events: Sequence[Event]) -> list[tuple[str, tuple[str, ...]]]:
    """How the requests to the planner ended: the result, and the steps that they were about."""
    return [(event.result, event.steps) for event in events if isinstance(event, ReplanEnded)]
