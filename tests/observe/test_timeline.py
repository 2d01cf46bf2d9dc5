"""The timeline shows when steps ran, and which of them ran through a change of the plan."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dagrun
from dagrun import Brief, Plan, State, Step
from dagrun.kernel.model.outcome import Attempt, Outcome
from dagrun.observe.timeline import PLANNER, draw_timeline, read_timeline
from dagrun.observe.view.document import view_of
from dagrun.observe.view.revisions import RevisionsMeanwhile
from small_tools import toolset

LONG = "x" * 48


def call(began: float, ended: float | None, state: str | None = "succeeded", recovery: str = "") -> dict[str, Any]:
    return {"started": began, "ended": ended, "state": state, "recovery": recovery}


def viewed(
    steps: dict[str, list[dict[str, Any]]],
    *revisions: dict[str, Any],
    planner: list[dict[str, Any]] | None = None,
    at: float = 0.0,
) -> dict[str, Any]:
    """A view with what a timeline reads of it."""
    ends = [one["ended"] or one["started"] for attempts in steps.values() for one in attempts]
    return {
        "steps": [{"id": id_, "attempts": attempts} for id_, attempts in steps.items()],
        "planner": planner or [],
        "revisions": list(revisions),
        "at": max([at, *ends]),
    }


def changed(at: float, asked_at: float | None = None, **steps: list[int]) -> dict[str, Any]:
    return {
        "at": at,
        "asked_at": at if asked_at is None else asked_at,
        "did": "adds map; replaces clean by clean_2",
        "reason": "a column was renamed",
        "is_draft": False,
        "diff": ["+ a line"],
        "added": [],
        "gone": [],
        "ran_on": [],
        "started_meanwhile": [],
        "ended_meanwhile": [],
        **steps,
    }


REPLANNED = viewed(
    {
        "load": [call(0, 1)],
        "far": [call(0, 9)],
        "clean": [call(1, 3, "failed")],
        "late": [call(4, 5)],
        "goes": [call(4, 10)],
        "map": [call(6, 8)],
        "clean_2": [call(8, 10)],
    },
    changed(6, 3, ran_on=[1], started_meanwhile=[3, 4], ended_meanwhile=[3]),
    planner=[{"started": 3, "ended": 6, "result": "applied"}],
)


def test_change_says_who_ran_through_it() -> None:
    """In the words of the view, by the names of the steps."""
    (change,) = read_timeline(REPLANNED).changes

    assert (change.asked_at, change.at) == (3, 6)
    assert change.ran_on == ("far",)
    assert change.started == ("late", "goes")
    assert change.ended == ("late",)
    assert change.text == "adds map; replaces clean by clean_2"


def test_a_step_of_the_first_plan_and_another_goal_are_no_changes_of_the_plan() -> None:
    draft = changed(1, added=[0], diff=[]) | {"is_draft": True}
    goal = changed(2, diff=[])
    assert read_timeline(viewed({"a": [call(0, 3)]}, draft, goal)).changes == ()


def calls(**steps: list[tuple[float, float | None, State | None]]) -> Any:
    """A graph of which only the calls are looked at."""
    nodes = {
        id_: SimpleNamespace(
            id=id_,
            attempts=[
                Attempt(number, "tool", began, ended, None if state is None else Outcome(state))
                for number, (began, ended, state) in enumerate(attempts, 1)
            ],
        )
        for id_, attempts in steps.items()
    }
    return SimpleNamespace(nodes=nodes)


GOOD = State.SUCCEEDED


def ran_on(graph: Any) -> list[str]:
    return [node.id for node in RevisionsMeanwhile(graph).ran_on(3, 6)]


@pytest.mark.parametrize("state", [State.CANCELLED, State.SUPERSEDED, State.ABANDONED])
def test_step_that_was_stopped_did_not_run_through(state: State) -> None:
    """It was stopped later, so it did not run on."""
    assert ran_on(calls(far=[(0, 9, state)])) == []


@pytest.mark.parametrize("state", [GOOD, State.FAILED, None])
def test_step_that_fails_by_itself_later_did_run_through(state: State | None) -> None:
    """The failure of its source has nothing to do with the change."""
    assert ran_on(calls(far=[(0, None if state is None else 9, state)], late=[(4, 9, GOOD)])) == ["far"]


def test_step_that_was_tried_again_meanwhile_did_not_run_through() -> None:
    graph = calls(far=[(0, 4, State.FAILED), (5, 9, GOOD)], late=[(4, 5, GOOD)])
    assert ran_on(graph) == []
    assert [node.id for node in RevisionsMeanwhile(graph).started(3, 6)] == ["late", "far"]
    assert [node.id for node in RevisionsMeanwhile(graph).ended(3, 6)] == ["late"]


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
    view = viewed({"a": [call(0, 5, "failed", "fall_back"), call(5, 5)], "b": [call(5, 10)]})
    lines = draw_timeline(read_timeline(view), 54)
    assert lines[1].endswith("━✗━")


def test_very_many_steps_are_cut_with_a_mark() -> None:
    lines = draw_timeline(read_timeline(viewed({f"s{n}": [call(n, n + 1)] for n in range(1_000)})))
    assert len(lines) == 42
    assert lines[-1] == "and 960 more"


def test_of_very_many_steps_those_that_failed_are_drawn_and_then_the_longest() -> None:
    """They are what one looks for; the first forty say nothing. The order stays that of their beginnings."""
    steps = {f"s{n}": [call(n, n + 1)] for n in range(98)}
    view = viewed({**steps, "long": [call(98, 150)], "bad": [call(151, 151.5, "failed")]})
    lines = draw_timeline(read_timeline(view), max_rows=3)

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
    steps: dict[str, list[dict[str, Any]]] = {}
    for step, one, other in bars:
        steps.setdefault(step, []).append(call(min(one, other), max(one, other)))
    view = viewed(steps, *([changed(at)] if bars else []), at=at)
    lines = draw_timeline(read_timeline(view), width, is_ascii=is_ascii)
    assert all(len(line) <= width for line in lines)
    assert len(lines) == len({step for step, _, _ in bars}) + 1 + bool(bars)


def test_planner_is_no_step() -> None:
    """Its row cannot be taken for a step, because no id has parentheses."""
    assert PLANNER.startswith("(")


def test_what_lasts_goes_on_to_the_end_and_a_default_is_no_failure() -> None:
    """Nor has a plan failed that the planner is still writing."""
    writes: list[dict[str, Any]] = [
        {"started": 0, "ended": None, "result": ""},
        {"started": 1, "ended": 2, "result": "refused"},
    ]
    view = viewed({"a": [call(1, None, None)], "b": [call(1, 3, "failed", "default")]}, planner=writes, at=4)
    bars = read_timeline(view).bars
    assert [(bar.row, bar.ended, bar.is_good) for bar in bars] == [
        (PLANNER, 4, True),
        ("a", 4, True),
        ("b", 3, True),
        (PLANNER, 2, False),
    ]


class Writer:
    """A planner that thinks for two seconds, and whose first plans are as given."""

    def __init__(self, *plans: Plan) -> None:
        self._plans = list(plans)

    async def revise(self, brief: Brief) -> Plan:
        await anyio.sleep(2)
        return self._plans.pop(0)


@pytest.mark.anyio
async def test_a_first_plan_is_no_change_also_if_one_was_refused_before() -> None:
    """The planner has a bar while it writes."""
    good, bad = Plan(steps=[Step(id="a", tool="nap", args={"seconds": 3})]), Plan(steps=[Step(id="a", tool="nobody")])
    first = await dagrun.run(goal="sleep", tools=toolset(), planner=Writer(good))
    second = await dagrun.run(goal="sleep", tools=toolset(), planner=Writer(bad, good))
    one, other = [read_timeline(view_of(result)) for result in (first, second)]

    assert [(bar.row, bar.started, bar.ended, bar.is_good) for bar in one.bars] == [
        (PLANNER, 0, 2, True),
        ("a", 2, 5, True),
    ]
    assert one.changes == ()
    assert [(bar.row, bar.started, bar.ended, bar.is_good) for bar in other.bars] == [
        (PLANNER, 0, 2, False),
        ("a", 4, 7, True),
    ]
    assert other.changes == ()
