"""Records are played again: the state at the end is that of the record, or a miss says what was not recorded."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

import dagrun
from dagrun import Cassette, Event
from dagrun.api.replaying import replayed
from dagrun.codec import events_of
from dagrun.kernel.graph.fold import state_of
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.model.journal import Line
from dagrun.testing import run_virtual

MOST_MISSES = 0.08  # of all records, without those that lack a value
ENOUGH = 300  # records, before a share says anything
LACKING = "lacks a value"  # kept out by the policy, sealed, or an object in memory
causes: Counter[str] = Counter()  # by cause; "" for those that came to the same


def play(run_id: str, lines: Sequence[Line]) -> None:
    """Play a record, and count what came of it."""
    causes[why_not(run_id, lines)] += 1


def must_be_few() -> None:
    """Refuse a share of misses that is over the limit.

    Raises:
        AssertionError: It is; the causes are in the text.
    """
    total = causes.total() - causes[LACKING]
    missed = total - causes[""]
    assert total < ENOUGH or missed <= MOST_MISSES * total, f"{missed} of {total}: {causes.most_common(30)}"


def why_not(run_id: str, lines: Sequence[Line]) -> str:
    """Return why a run does not come to the same when it is played; an empty text if it does."""
    logging.disable(logging.CRITICAL)  # the messages of the run are not those of the test
    try:
        return run_virtual(_played, run_id, lines)
    except (dagrun.errors.CannotResume, dagrun.PlanRefused):  # what it goes on from, or begins with, was redacted
        return LACKING
    finally:
        logging.disable(logging.NOTSET)


async def _played(run_id: str, lines: Sequence[Line]) -> str:
    cassette = Cassette(run_id, lines)
    await cassette.run()
    events = events_of(run_id, await cassette.journal.read(run_id))
    whole, found = timeless(run_id, events_of(run_id, lines)), timeless(run_id, events)
    if found == whole or timeless(run_id, [event for event in events if event.seq <= (cassette.last or 1)]) == whole:
        return ""
    if any("gave was not recorded" in str(miss) for miss in cassette.misses):
        return LACKING
    if cassette.misses:
        return "missed: " + " ".join(str(cassette.misses[0]).split(" ")[-6:])
    if cassette.difference:
        return "left its record"
    return "came to other words"


def timeless(run_id: str, events: Sequence[Event]) -> dict[str, Any]:
    """Return the state after some events, without times and random delays: all that a state has a hash of."""
    graph: LiveGraph = replayed(run_id, events).graph
    state = state_of(graph)
    for step in state["steps"].values():
        step["attempts"] = [_without_times(attempt) for attempt in step["attempts"]]
        step.get("extra", {})["held"] = None
    for question in state["questions"]:
        question["asked_at"] = question["deadline"] = None
    return state


def _without_times(attempt: list[Any]) -> list[Any]:
    """Leave out when an attempt began and ended, after how long it is made again, and the times of its hedge."""
    number, tool, _, _, *outcome = attempt
    told, decided = outcome[:6], outcome[6:8]
    return [number, tool, *told, *decided, *([] if len(outcome) < 10 else [outcome[9][2:]])]
