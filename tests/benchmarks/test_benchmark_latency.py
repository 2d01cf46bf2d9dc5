"""The benchmark of latencies measures what it says. How long anything takes, no test claims."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

import dagrun
import latency
import subject
from graphs import makespan_bounds
from lags import SLOTS, Marks, Prepare, by_dagrun, by_hand, in_slots, timed
from latency import Figure
from list_schedule import first_ready
from shapes import SHAPES
from uneven import Uneven, make_uneven

WAYS: list[Prepare] = [by_dagrun, by_hand]


# What is computed -----------------------------------------------------------------------------------------------------


def test_a_list_schedule_takes_what_was_ready_first() -> None:
    """And not the longest path: of three ready steps in two slots, the long one comes last, by order alone."""
    needs: dict[str, tuple[str, ...]] = {"a": (), "b": (), "long": ()}
    seconds = {"a": 1.0, "b": 1.0, "long": 5.0}

    assert first_ready(needs, seconds, 2) == pytest.approx(6)
    assert first_ready({"long": (), "a": (), "b": ()}, seconds, 2) == pytest.approx(5)


def test_a_list_schedule_puts_what_becomes_ready_behind_what_was_ready() -> None:
    """First ready, first started: `after` has to wait for `b` and `c`, which were ready from the start."""
    needs = {"a": (), "b": (), "c": (), "after": ("a",)}

    assert first_ready(needs, {"a": 1, "b": 2, "c": 3, "after": 4}, 1) == pytest.approx(10)
    assert first_ready(needs, {"a": 1, "b": 2, "c": 3, "after": 4}, 2) == pytest.approx(6)  # a, c; b, then after from 2


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("slots", [1, 3, 100])
def test_a_list_schedule_keeps_no_slot_free_while_a_step_is_ready(seed: int, slots: int) -> None:
    """Else it would be longer than any such schedule can be, and every run beside it would look good."""
    graph = make_uneven("random3", 60, seed)
    least, most = makespan_bounds(graph.work, graph.critical_path, slots)

    assert least - 1e-9 <= first_ready(graph.needs, graph.seconds, slots) <= most + 1e-9


# What is run ----------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("prepare", WAYS, ids=["dagrun", "by hand"])
async def test_on_virtual_time_nothing_lags(prepare: Prepare) -> None:
    """Every step is run, and its lag is counted from the last of its dependencies, not from the first."""
    graph = make_uneven("random3", 40, 1)

    found = await timed(graph, prepare)

    assert len(found.lags) == sum(bool(before) for before in graph.needs.values())
    assert found.lags == pytest.approx([0.0] * len(found.lags))
    assert found.makespan == pytest.approx(graph.critical_path)
    assert found.ratio == found.asked == pytest.approx(1)


@pytest.mark.anyio
async def test_lags_are_seen() -> None:
    """A step that starts late lags by that much, and so does the makespan."""
    graph = Uneven({"a": (), "b": (), "c": ("a", "b")}, {"a": 1.0, "b": 2.0, "c": 1.0})

    def late(graph: Uneven, marks: Marks) -> Any:
        async def run() -> None:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(marks.take, "a", 1.0)
                tasks.start_soon(marks.take, "b", 2.0)
            await anyio.sleep(0.5)
            await marks.take("c", 1.0)

        return run

    found = await timed(graph, late)

    assert found.lags == pytest.approx([0.5])
    assert found.ratio == pytest.approx(3.5 / 3)


@pytest.mark.anyio
async def test_four_slots_are_four() -> None:
    """More would beat every schedule that it is compared with."""
    graph = Uneven({f"s{i}": () for i in range(9)}, {f"s{i}": 1.0 for i in range(9)})

    found = await timed(graph, in_slots)

    assert SLOTS == 4
    assert found.makespan == pytest.approx(3)
    assert found.listed == pytest.approx(found.makespan / first_ready(graph.needs, graph.seconds, SLOTS))


@pytest.mark.anyio
async def test_a_run_with_steps_left_out_is_no_measurement() -> None:
    def nothing(graph: Uneven, marks: Marks) -> Any:
        return partial(anyio.sleep, 1)

    with pytest.raises(AssertionError, match="0 of 10 steps"):
        await timed(make_uneven("random3", 10, 0), nothing)


def test_pydantic_alone_reads_the_same_text() -> None:
    """The figure is a ratio to it, so it must be a whole plan, and one that dagrun takes."""
    for case in ("no-op", "by reference"):
        tool = subject.STEPS[case]
        text = subject.planned(SHAPES["random3"](30), tool).model_dump_json(exclude_unset=True)
        assert len(dagrun.Plan.model_validate_json(text).steps) == 30
        assert {i: set(s.depends_on) for i, s in dagrun.check(text, [tool]).steps.items()} == {
            i: set(before) for i, before in SHAPES["random3"](30).items()
        }
        assert len(latency.checking(case, 10, 2).ours) == 2


@pytest.mark.real_time
def test_starts_and_cancellations_are_measured_in_pairs() -> None:
    """They raise if a run is not what it should be: succeeded with all its events, or cancelled in every step."""
    inside, alone = latency.starting(2, starts=2)
    assert len(inside.ours) == len(inside.base) == len(alone.ours) == 2
    pairs = latency.cancelling(2, waiting=20)
    assert len(pairs.ours) == len(pairs.base) == 2


@pytest.mark.anyio
async def test_steps_are_cancelled_only_when_all_of_them_wait() -> None:
    """A step that never began is cheap to cancel."""
    waiting = latency.Waiting(3)
    async with anyio.create_task_group() as tasks:
        for number in range(3):
            assert not waiting.all_wait.is_set(), number
            tasks.start_soon(waiting.forever)
            await anyio.wait_all_tasks_blocked()
        assert waiting.all_wait.is_set()
        tasks.cancel_scope.cancel()


# What is made of it ---------------------------------------------------------------------------------------------------


def test_a_must_is_missed_above_it_only() -> None:
    """And milliseconds have none: they depend on the machine."""
    assert Figure("a", "x", 1.5, must=1.5).passed
    assert not Figure("a", "x", 1.51, must=1.5).passed
    assert Figure("a", "ms", 900.0, aim=20.0).passed
    assert latency.line_of(Figure("a", "x", 1.51, must=1.5)).endswith("MISSED")
    assert latency.line_of(Figure("a", "ms", 5.0, 4.0, aim=20.0)).split() == ["a", "ms", "5.000", "4.000", "20", "-"]


@pytest.mark.real_time
@pytest.mark.rigs
def test_only_ratios_gate_and_every_aim_of_the_issue_is_shown() -> None:
    """The names are what `check.py` looks figures up by."""
    found = [
        *latency.measure_lags([0], steps=10),
        *latency.measure_check(1, steps=10),
        *latency.measure_start(1, starts=1),
        *latency.measure_cancel(1, waiting=10),
    ]

    assert {figure.name: figure.must for figure in found if figure.must is not None} == {
        "makespan / path": 1.03,
        "4 slots / listed": 1.03,
        "check, named / pydantic": 5.0,
        "check, referred / pydantic": 5.0,
        "start-up / bare": 1.5,
    }
    assert all(figure.unit == "x" for figure in found if figure.must is not None)
    aims = {figure.name: figure.aim for figure in found if figure.aim is not None}
    assert (aims["lag p50"], aims["lag p99"], aims["cancel"], aims["check, named"]) == (0.08, 0.4, 20.0, 9.0)
    assert len({figure.name for figure in found}) == len(found)


def test_results_are_kept_with_their_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the gate says by the exit code whether a must was missed."""
    figures = [Figure("a", "x", 1.6, must=1.5), Figure("b", "ms", 3.0)]
    monkeypatch.setattr(latency, "measure", lambda quick: iter(figures))

    assert latency.main(["--out", str(tmp_path), "--gate"]) == 1
    assert latency.main(["--out", str(tmp_path)]) == 0

    kept = json.loads((tmp_path / "latency.json").read_text())
    assert [row["passed"] for row in kept["latency"]] == [False, True]
    assert kept["python"].startswith("CPython")
