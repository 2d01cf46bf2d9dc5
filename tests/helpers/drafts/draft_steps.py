"""Steps and runs for tests of drafts, in as few words as possible."""

from __future__ import annotations

from typing import Any

import dagrun
from dagrun import Event, Step
from dagrun.events import DraftEnded
from drafts import GOAL
from small_tools import scripted, toolset

NO_TOOL = Step(id="wrong", tool="fly")


def nap(id_: str, seconds: float = 1.0, *after: str, **fields: Any) -> Step:
    """A step that sleeps, and gives its id."""
    return Step(id=id_, tool="nap", args={"seconds": seconds, "gives": id_}, depends_on=after, **fields)


def send(id_: str = "send", *after: str) -> Step:
    """A step that changes the world."""
    return Step(id=id_, tool="send", depends_on=after)


def sender(**options: Any) -> Any:
    """The tool for that; nobody needs to agree to its calls."""
    return scripted("send", "sent", effect="effectful", needs_approval=False, **options)


def drafts(events: list[Event]) -> list[str]:
    """How the draft ended."""
    return [event.result for event in events if isinstance(event, DraftEnded)]


def start(planner: Any, *tools: Any, **options: Any) -> Any:
    """Start what *planner* makes of the goal."""
    return dagrun.start(goal=GOAL, planner=planner, tools=toolset(*tools), **options)
