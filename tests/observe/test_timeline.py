"""The timeline shows when steps ran, and which of them ran through a change of the plan."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagrun.model.event import AttemptEnded, AttemptStarted, Event, ReplanEnded, ReplanStarted, RunEnded, Spliced
from dagrun.model.outcome import Decision, Outcome, Recovery, State, Status
from dagrun.model.patch import Consequence
from dagrun.observe.timeline import PLANNER, draw_timeline, read_timeline

LONG = "x" * 48


def began(step: str, at: float, attempt: int = 1) -> Event:
    return AttemptStarted(0, at, step, attempt, "tool")


def ended(step: str, at: float, state: State = State.SUCCEEDED, attempt: int = 1) -> Event:
    return AttemptEnded(0, at, step, attempt, state, Outcome(state), Decision(Recovery.PROCEED))


def spliced(at: float, origin: str = "planner") -> Event:
    consequence = Consequence(added=("map",), replaced={"clean": "clean_2"})
    return Spliced(0, at, 1, origin, "a column was renamed", (), consequence)


REPLANNED: list[Event] = [
    began("load", 0),
    began("far", 0),
    ended("load", 1),
    began("clean", 1),
    ended("clean", 3, State.BLOCKED),
    ReplanStarted(0, 3, 1, ("clean",)),
    began("late", 4),
    ended("late", 5),
    began("goes", 4),
    spliced(6),
    ReplanEnded(0, 6, 1, "applied", "", ("clean",), 1),
    began("map", 6),
    ended("map", 8),
    began("clean_2", 8),
    ended("far", 9),
    ended("clean_2", 10),
    ended("goes", 10),
    RunEnded(0, 10, Status.SUCCEEDED, ""),
]


def test_change_says_who_ran_through_it() -> None:
    """From before the request until after the splice, in one attempt; other steps are listed apart."""
    (change,) = read_timeline(REPLANNED).changes

    assert (change.asked_at, change.at) == (3, 6)
    assert change.ran_on == ("far",)
    assert change.started == ("late", "goes")
    assert change.ended == ("late",)
    assert change.text == "adds map; replaces clean by clean_2"


@pytest.mark.parametrize("state", [State.CANCELLED, State.SUPERSEDED, State.ABANDONED])
def test_step_that_was_stopped_did_not_run_through(state: State) -> None:
    """It was stopped later, so it did not run on."""
    events = [ended("far", 9, state) if event.at == 9 else event for event in REPLANNED]
    (change,) = read_timeline(events).changes
    assert change.ran_on == ()


def test_step_that_fails_by_itself_later_did_run_through() -> None:
    """The failure of its source has nothing to do with the change."""
    events = [ended("far", 9, State.FAILED) if event.at == 9 else event for event in REPLANNED]
    (change,) = read_timeline(events).changes
    assert change.ran_on == ("far",)


def test_step_that_was_tried_again_meanwhile_did_not_run_through() -> None:
    events = [began("far", 0), ended("far", 4, State.READY), ReplanStarted(0, 3, 1, ("x",)), began("far", 5, 2)]
    (change,) = read_timeline([*events, spliced(6), ended("far", 9, attempt=2)]).changes
    assert change.ran_on == ()
    assert change.started == ("far",)


def test_change_of_the_host_has_no_time_of_thinking() -> None:
    (change,) = read_timeline(
        [began("far", 0), ReplanStarted(0, 1, 1, ()), spliced(6, "host"), ended("far", 9)]
    ).changes
    assert (change.asked_at, change.ran_on) == (6, ("far",))


def test_drawing() -> None:
    """There is a row for each step and one for the planner; the line of the change crosses all of them."""
    assert draw_timeline(read_timeline(REPLANNED), 54) == [
        "              0 s     2       4       6       8",
        "plan changed                          ▼",
        "load          ━━━━                    ┊",
        "far           ━━━━━━━━━━━━━━━━━━━━━━━━╋━━━━━━━━━━━",
        "clean             ━━━━━━━✗            ┊",
        "(planner)                 ┄┄┄┄┄┄┄┄┄┄┄┄┊",
        "late                          ━━━━    ┊",
        "goes                          ━━━━━━━━╋━━━━━━━━━━━━━━━",
        "map                                   ┣━━━━━━━",
        "clean_2                               ┊       ━━━━━━━━",
    ]


def test_drawing_without_box_drawing_characters() -> None:
    lines = draw_timeline(read_timeline(REPLANNED), 54, is_ascii=True)
    assert "\n".join(lines).isascii()
    assert lines[3] == "far           ========================+==========="


def test_fallback_that_takes_no_time_is_seen_beside_the_failure() -> None:
    events = [began("a", 0), ended("a", 5, State.READY), began("a", 5, 2), ended("a", 5, attempt=2), began("b", 5)]
    lines = draw_timeline(read_timeline([*events, ended("b", 10)]), 54)
    assert lines[1].endswith("━✗━")


def test_very_many_steps_are_cut_with_a_mark() -> None:
    events = [event for n in range(1_000) for event in (began(f"s{n}", n), ended(f"s{n}", n + 1))]
    lines = draw_timeline(read_timeline(events))
    assert len(lines) == 42
    assert lines[-1] == "and 960 more"


def test_of_very_many_steps_those_that_failed_are_drawn_and_then_the_longest() -> None:
    """They are what one looks for; the first forty say nothing. The order stays that of their beginnings."""
    bad = State.FAILED
    events = [event for n in range(98) for event in (began(f"s{n}", n), ended(f"s{n}", n + 1))]
    events += [began("long", 98), ended("long", 150), began("bad", 151), ended("bad", 151.5, bad)]
    lines = draw_timeline(read_timeline(events), max_rows=3)

    assert [line.split()[0] for line in lines[1:]] == ["s0", "long", "bad", "and"]
    assert lines[-1] == "and 97 more"


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", LONG, "e[12]"]), st.floats(0, 1e6), st.floats(0, 1e6)), max_size=8),
    st.floats(0, 1e6),
    st.integers(40, 120),
    st.booleans(),
)
def test_no_line_is_wider_than_asked(
    bars: list[tuple[str, float, float]], at: float, width: int, is_ascii: bool
) -> None:
    """Whatever the times are; and a run without events is not an error."""
    events: list[Event] = [spliced(at)] if bars else []
    for step, one, other in bars:
        events += [began(step, min(one, other)), ended(step, max(one, other))]
    lines = draw_timeline(read_timeline(events), width, is_ascii=is_ascii)
    assert all(len(line) <= width for line in lines)
    assert len(lines) == len({step for step, _, _ in bars}) + 1 + bool(bars)


def test_planner_is_no_step() -> None:
    """Its row cannot be taken for a step, because no id has parentheses."""
    assert PLANNER.startswith("(")
