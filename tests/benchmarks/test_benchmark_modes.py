"""The figures of the modes benchmark are right: on virtual time, theory says what each of them must be."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import command
import dagrun
import modes
from dagrun import RunResult
from dagrun.kernel.checks.waves import generations
from dagrun_tools.demo import server
from demo_plan import demo
from graphs import makespan_bounds
from modes import BARE, BLIND, FOUR, READY, SEQUENTIAL, WAVES, Mode, Row, Times, row_of, run_once
from uneven import LONGEST, SHAPES, SHORTEST, Uneven, longest_chain, make_uneven

GRAPHS = [(shape, seed) for shape in SHAPES for seed in range(4)]
every_graph = pytest.mark.parametrize(
    "graph", [make_uneven(shape, 60, seed) for shape, seed in GRAPHS], ids=[f"{shape}-{seed}" for shape, seed in GRAPHS]
)


def _row(ratio: float, must: float | None = 1.03) -> Row:
    return Row("layered 100", "ready-driven", 3, 0.4, ratio, ideal=1.0, asked=1.05, worst=1.2, must=must)


# What is run ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_graphs_are_drawn_from_their_seed_alone(shape: str) -> None:
    """Results of different days are compared; and equal graphs for all seeds would be one measurement, not several."""
    assert make_uneven(shape, 100, 3) == make_uneven(shape, 100, 3)
    assert make_uneven(shape, 100, 3).needs != make_uneven(shape, 100, 4).needs


@pytest.mark.parametrize("shape", SHAPES)
def test_graphs_are_as_big_and_as_uneven_as_the_target_says(shape: str) -> None:
    """The target is for 100 steps of 5 to 50 ms."""
    graph = make_uneven(shape, modes.STEPS, 0)

    assert len(graph.needs) == len(graph.seconds) == 100
    assert (SHORTEST, LONGEST) == (0.005, 0.05)
    assert all(SHORTEST <= seconds <= LONGEST for seconds in graph.seconds.values())
    assert max(graph.seconds.values()) > 5 * min(graph.seconds.values())


def test_longest_chain_is_the_longest() -> None:
    """Not the one with the most steps, and not the sum of all."""
    needs = {"a": (), "b": ("a",), "c": ("b",), "d": ("a",)}

    assert longest_chain(needs, {"a": 1, "b": 1, "c": 1, "d": 5}) == 6


# How long it takes ----------------------------------------------------------------------------------------------------


@every_graph
@pytest.mark.anyio
async def test_ready_driven_takes_the_critical_path(graph: Uneven) -> None:
    """Nothing waits for more than it needs; so do bare tasks, or the comparison with them would be none."""
    for mode in (READY, BARE):
        times = await run_once(graph, mode)

        assert times.makespan == pytest.approx(graph.critical_path), mode.name
        assert times.critical_path == pytest.approx(graph.critical_path), mode.name
        assert times.work == pytest.approx(graph.work), mode.name
        assert times.ratio(mode) == pytest.approx(1), mode.name


@every_graph
@pytest.mark.anyio
async def test_sequential_takes_all_the_work(graph: Uneven) -> None:
    """And is compared to the critical path, like what has no limit: the ratio is the speed-up that was possible."""
    times = await run_once(graph, SEQUENTIAL)

    assert times.makespan == pytest.approx(graph.work)
    assert times.ratio(SEQUENTIAL) == pytest.approx(graph.work / graph.critical_path)


@every_graph
@pytest.mark.anyio
async def test_waves_take_the_longest_step_of_each_generation(graph: Uneven) -> None:
    """So they are never faster than the critical path, against which they are shown."""
    times = await run_once(graph, WAVES)

    waves = generations(graph.plan(with_estimates=False))
    assert times.makespan == pytest.approx(sum(max(graph.seconds[id_] for id_ in wave) for wave in waves))
    assert times.makespan >= graph.critical_path
    assert times.critical_path == pytest.approx(graph.critical_path)


@every_graph
@pytest.mark.parametrize("mode", [FOUR, BLIND], ids=lambda mode: mode.name)
@pytest.mark.anyio
async def test_slots_are_compared_to_what_no_schedule_can_beat(graph: Uneven, mode: Mode) -> None:
    """The bound is the critical path or the work of each slot; no ready step may wait for a free slot beyond it."""
    times = await run_once(graph, mode)

    least, most = makespan_bounds(graph.work, graph.critical_path, 4)
    assert times.bound(mode) == pytest.approx(least)
    assert least - 1e-9 <= times.makespan <= most + 1e-9
    assert times.ratio(mode) == pytest.approx(times.makespan / least)


@pytest.mark.anyio
async def test_a_run_that_fails_is_no_measurement() -> None:
    """A run that ends early is fast; its time must not be taken for a good one."""

    @dagrun.tool(effect="pure")
    async def fail() -> None:
        raise dagrun.ToolError("no")

    result = await dagrun.run(dagrun.Plan(steps=[dagrun.Step(id="a", tool="fail")]), tools=[fail])

    with pytest.raises(dagrun.RunFailed):
        Times.of(result)


@pytest.fixture(scope="module")
def demo_runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[RunResult]]:
    """Two runs of the demo's plan, and the folder that was current; the fonts of charts stay open for good."""
    folder = tmp_path_factory.mktemp("current")
    with pytest.MonkeyPatch.context() as patch, demo() as run:
        patch.setattr(server, "LATENCY", 0.02)
        patch.chdir(folder)
        return folder, [run(READY.apply), run(WAVES.apply)]


@pytest.mark.rigs
@pytest.mark.real_time
def test_the_plan_of_the_demo_runs_in_each_mode(demo_runs: tuple[Path, list[RunResult]]) -> None:
    """As often as one likes, with sources that fail anew each time, and without leaving anything behind."""
    folder, results = demo_runs

    for result in results:
        assert len(result.steps["prices[2]"].attempts) == 2
        assert Times.of(result).ratio(READY) >= 1
    assert not list(folder.iterdir())


# What is made of it ---------------------------------------------------------------------------------------------------


def test_a_row_is_the_median_of_its_runs() -> None:
    """One run that something disturbed must not move the figure, but must be seen."""
    runs = [Times(1.0, 1.0, 4.0), Times(2.2, 2.0, 8.0), Times(9.0, 1.0, 4.0)]

    row = row_of("some", READY, runs)

    assert (row.runs, row.worst, row.makespan) == (3, 9.0, 2.2)
    assert row.ratio == pytest.approx(1.1)


def test_modes_of_the_demo_are_compared_to_the_ready_driven_run() -> None:
    """Under one slot the elements of a for_each run one by one, and make the critical path as long as they please."""
    alone, ready = Times(13.0, 9.0, 13.0), Times(4.2, 4.0, 13.0)

    assert [times.ratio(READY) for times in modes.beside_ready([alone, ready])] == [13.0 / 4.0, 4.2 / 4.0]
    assert modes.DEMO_MODES[-1] is READY


def test_a_must_is_a_factor_of_the_ideal() -> None:
    """What the shape of a plan costs under a limit is no fault of the engine."""
    runs = [Times(1.2, 1.0, 4.0)]

    assert row_of("some", READY, runs).must == pytest.approx(1.03)
    assert row_of("some", FOUR, runs, ideal=1.2).must == pytest.approx(1.05 * 1.2)
    assert row_of("some", WAVES, runs, ideal=1.2).must is None


def test_a_must_is_missed_above_it_only() -> None:
    """The verdicts decide what the gate says."""
    assert _row(1.03).passed
    assert not _row(1.031).passed
    assert _row(9.0, must=None).passed


def test_the_table_shows_what_was_missed() -> None:
    """Who reads a red pipeline looks for the row."""
    assert modes.line_of(_row(1.04)).endswith("MISSED")
    assert modes.line_of(_row(1.0)).endswith("ok")
    assert modes.line_of(_row(9.0, must=None)).endswith("-")


@pytest.mark.parametrize(("ratio", "gate", "code"), [(1.0, True, 0), (1.2, True, 1), (1.2, False, 0)])
def test_the_gate_is_shut_by_a_missed_must(
    monkeypatch: pytest.MonkeyPatch, ratio: float, gate: bool, code: int
) -> None:
    """And only if it was asked for: figures of a busy machine are still worth a look."""
    monkeypatch.setattr(modes, "measure_uneven", lambda shape, seeds: iter([_row(ratio)]))

    assert modes.main(["--quick", *(["--gate"] if gate else [])]) == code


def test_the_demo_is_left_out_without_its_tools(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rest can be measured with dagrun alone."""
    monkeypatch.setitem(sys.modules, "dagrun_tools", None)

    assert not list(modes.measure_demo(1))
    assert "the extra 'tools' is not installed" in capsys.readouterr().err


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """A tiny measurement, as it is kept."""
    rows: Iterator[Row] = modes.measure_uneven("layered", range(2), steps=8)
    kept: dict[str, Any] = json.loads(json.dumps(modes.as_json(list(rows))))
    return kept


@pytest.mark.real_time
def test_results_have_their_schema(results: dict[str, Any]) -> None:
    """Results are kept in the repository and compared later, so their form is a promise."""
    keys = {field.name for field in fields(Row)} | {"passed"}

    assert [row["mode"] for row in results["modes"]] == [mode.name for mode in (*modes.MODES, BARE)]
    assert all(row.keys() == keys for row in results["modes"])
    assert {"date", "python", "versions", "machine"} < results.keys()


def test_kept_results_are_complete() -> None:
    """The file in the repository is one that the present code would write, the demo included."""
    kept = json.loads((command.RESULTS / "modes.json").read_text())
    keys = {field.name for field in fields(Row)} | {"passed"}

    assert all(row.keys() == keys for row in kept["modes"])
    assert {row["plan"] for row in kept["modes"]} == {"demo", *(f"{shape} 100" for shape in SHAPES)}


@pytest.fixture(scope="module")
def written(results: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the results were written to, twice; the fonts of plots stay open for good."""
    folder = tmp_path_factory.mktemp("written")
    for name in ("one", "two"):
        modes.write(results, folder / name)
    return folder


@pytest.mark.real_time
@pytest.mark.rigs
def test_results_are_written_with_the_same_plot_every_time(results: dict[str, Any], written: Path) -> None:
    """Else every look at the figures would be a change in the repository."""
    assert json.loads((written / "one/modes.json").read_text()) == results
    for ending in (".png", ".svg"):
        one, two = ((written / name / f"modes{ending}").read_bytes() for name in ("one", "two"))
        assert one == two
    assert (written / "one/modes.png").read_bytes().startswith(b"\x89PNG")
