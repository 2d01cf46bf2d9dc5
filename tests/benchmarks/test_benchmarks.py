"""The benchmarks measure what they say. How fast anything is, no test claims: `make bench` does, on a quiet machine."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest

import baseline
import command
import dagrun
import environment
import memory
import overhead
import subject
from measure import Pairs, growth_exponent, measure_pairs
from overhead import Case, Growth, Memory, Row
from plots import draw_overhead
from shapes import SHAPES, successors

TINY = Case("no-op", ("chain", "fan"), (10, 20), must=100.0, aim=1.0)


def _row(ratio: float, *, shape: str = "chain", steps: int = 1_000, must: float | None = 0.8) -> Row:
    return Row("no-op", shape, steps, 3, ours=10.0 * ratio, base=10.0, ratio=ratio, must=must, aim=0.5)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("count", [2, 3, 50, 300])
def test_shapes_are_as_big_as_asked_and_in_a_valid_order(shape: str, count: int) -> None:
    """A step that waits for a later one would be a cycle, and a missing step would make the figure per step a lie."""
    seen: set[str] = set()
    for step, before in SHAPES[shape](count).items():
        assert seen.issuperset(before)
        assert len(set(before)) == len(before)
        seen.add(step)
    assert len(seen) == count


def test_shapes_are_the_same_every_time() -> None:
    """Results of different days are compared, so the graphs behind them must be equal."""
    assert SHAPES["random3"](500) == SHAPES["random3"](500)


def test_random3_waits_for_three() -> None:
    """Its name says so; fewer edges would flatter the engine."""
    assert {len(before) for before in list(SHAPES["random3"](300).values())[3:]} == {3}


@pytest.mark.anyio
@pytest.mark.parametrize("shape", SHAPES)
async def test_baseline_runs_every_step_once_after_its_dependencies(shape: str) -> None:
    """What x leaves out makes every ratio look worse, what it does twice makes it look better."""
    graph = SHAPES[shape](40)
    count = 0

    async def step(id_: str, values: dict[str, object]) -> str:
        nonlocal count
        count += 1
        assert values == {before: f"out of {before}" for before in graph[id_]}
        await anyio.sleep(0.003)
        return f"out of {id_}"

    started = anyio.current_time()
    given = await baseline.run(graph, successors(graph), step)

    assert count == len(given) == 40
    assert anyio.current_time() - started == pytest.approx(0.003 * _depth(graph))


def _depth(graph: dict[str, tuple[str, ...]]) -> int:
    depth: dict[str, int] = {}
    for step, before in graph.items():
        depth[step] = 1 + max((depth[one] for one in before), default=0)
    return max(depth.values())


@pytest.mark.anyio
@pytest.mark.parametrize("shape", SHAPES)
async def test_dagrun_runs_every_step_of_the_same_graph_once(shape: str) -> None:
    """Both halves of a pair must do the same work."""
    calls: Counter[str] = Counter()

    @dagrun.tool(effect="pure")
    async def count(context: dagrun.ToolContext) -> None:
        calls[context.step] += 1

    graph = SHAPES[shape](40)
    plan = subject.checked_plan(graph, count)
    await subject.run(plan)

    assert calls == dict.fromkeys(graph, 1)
    assert {id_: set(step.depends_on) for id_, step in plan.steps.items()} == {k: set(v) for k, v in graph.items()}


@pytest.mark.anyio
@pytest.mark.parametrize("shape", ["chain", "random3"])
async def test_both_halves_hand_the_same_objects_on(shape: str) -> None:
    """Every step gets one of each that it waits for, and what it gives goes on; else one of the two does less."""
    graph = SHAPES[shape](20)
    seen: dict[str, int] = {}

    async def step(id_: str, values: dict[str, object]) -> object:
        seen[id_] = len(values)
        return await subject.bare_hand_on(id_, values)

    given = await baseline.run(graph, successors(graph), step)
    result = await dagrun.run(subject.checked_plan(graph, subject.hand_on))

    assert {id_: result.steps[id_].output for id_ in graph} == given == dict.fromkeys(graph, subject.PARCEL)
    assert seen == {id_: len(before) for id_, before in graph.items()}
    plan = subject.checked_plan(graph, subject.hand_on)
    assert {id_: len(step.args.holes) for id_, step in plan.steps.items()} == seen


@pytest.mark.anyio
async def test_both_halves_check_what_they_get() -> None:
    """The price of checking is part of the case."""
    with pytest.raises(ValueError, match="validation error"):
        await subject.bare_hand_on("b", {"a": {"id": 1}})

    bad = dagrun.Plan(steps=[dagrun.Step(id="a", tool="hand_on", args={"parcels": "${input.some}"})])
    result = await dagrun.run(bad, tools=[subject.hand_on], inputs={"some": [{"id": "p-1"}]})

    assert result.steps["a"].state == "failed"


@pytest.mark.anyio
async def test_a_run_that_fails_is_no_measurement() -> None:
    """A run that ends early is fast; its time must not be taken for a good one."""

    @dagrun.tool(effect="pure")
    async def fail() -> None:
        raise dagrun.ToolError("no")

    with pytest.raises(AssertionError, match="failed"):
        await subject.run(subject.checked_plan(SHAPES["chain"](3), fail))


@pytest.mark.anyio
@pytest.mark.rigs
async def test_pairs_alternate() -> None:
    """A machine that becomes slower must hit both alike."""
    order: list[str] = []

    async def ours() -> None:
        order.append("ours")

    async def base() -> None:
        order.append("base")

    pairs = await measure_pairs(ours, base, 3)

    assert order == ["base", "ours"] * 3
    assert len(pairs.ours) == len(pairs.base) == 3


def test_ratio_is_the_median_of_the_pairs() -> None:
    """One pair that something disturbed must not move the figure."""
    assert Pairs(ours=(1.0, 2.0, 90.0), base=(2.0, 4.0, 1.0)).ratio == pytest.approx(0.5)


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.1, 2.0])
def test_growth_exponent_is_recovered_from_a_power_law(exponent: float) -> None:
    """Scatter of both signs around the line must not tilt it."""
    sizes = [100, 1_000, 10_000, 100_000]

    assert growth_exponent(sizes, [3e-5 * n**exponent for n in sizes]) == pytest.approx(exponent)
    scattered = [3e-5 * n**exponent * factor for n, factor in zip(sizes, (1.1, 1 / 1.1, 1 / 1.1, 1.1), strict=True)]
    assert growth_exponent(sizes, scattered) == pytest.approx(exponent)


def test_growth_is_fitted_to_totals() -> None:
    """A constant time per step is linear growth of the total: exponent 1, not 0."""
    rows = [_row(0.5, steps=steps) for steps in (100, 1_000, 10_000)]

    (growth,) = overhead.growth_of(rows)

    assert growth.ours == pytest.approx(1)
    assert growth.sizes == (100, 1_000, 10_000)


def test_a_must_is_missed_above_it_only() -> None:
    """The verdicts decide what the gate says."""
    assert _row(0.8).passed
    assert not _row(0.81).passed
    assert _row(9.0, must=None).passed
    assert Growth("no-op", "chain", (1, 2), ours=1.05, base=1.0).passed
    assert not Growth("no-op", "chain", (1, 2), ours=1.051, base=1.0).passed
    assert Memory("chain", 10, "traced", 1024).passed
    assert not Memory("chain", 10, "traced", 1025).passed


def test_the_musts_are_those_of_the_issue() -> None:
    """They are stated for 1,000 steps and more."""
    assert {case.name: (case.must, case.aim) for case in overhead.FULL} == {
        "no-op": (0.7, 0.45),
        "suspending": (0.9, 0.7),
        "burst": (1.3, 1.0),
        "by reference": (1.3, 0.8),
    }
    assert overhead.measure_row(TINY, "chain", 10, 1).must is None
    assert overhead.GATED_FROM == 1_000


def test_a_gate_looks_at_seven_pairs_at_least() -> None:
    """Fewer may all be disturbed."""
    sizes = {size for case in overhead.FULL for size in case.sizes}

    assert sizes == {100, 1_000, 10_000}
    assert min(overhead.pairs_for(size) for size in sizes) == 7


@pytest.mark.real_time
def test_growth_in_turn_compares_equal_numbers_of_steps() -> None:
    """One run of twice the steps against two runs: with nothing that grows faster, the exponent is near 1."""
    growth = overhead.growth_in_turn("chain", 200, 400, 3, of_base=False)

    assert growth.in_turn
    assert growth.sizes == (200, 400)
    assert 0 < growth.ours < 2  # two runs against one would be 1; the big one against one small, 2


def test_the_table_shows_what_was_missed() -> None:
    """Who reads a red pipeline looks for the row."""
    assert overhead.line_of(_row(0.9)).endswith("MISSED")
    assert overhead.line_of(_row(0.7)).split() == [
        "no-op",
        "chain",
        "1,000",
        "7.0",
        "10.0",
        "0.70",
        "0.80",
        "0.50",
        "ok",
    ]
    assert overhead.line_of(_row(0.9, must=None)).split()[-3:] == ["-", "0.50", "-"]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A tiny measurement, as it is kept."""
    rows = [overhead.measure_row(TINY, shape, steps, 2) for shape in TINY.shapes for steps in TINY.sizes]
    taken = [Memory("chain", 10, "traced", 800.0)]
    kept: dict[str, Any] = json.loads(json.dumps(overhead.as_json(rows, list(overhead.growth_of(rows)), taken)))
    draw_overhead(kept, tmp_path_factory.mktemp("first") / "plot")  # the fonts that it opens stay open
    return kept


def _shape_of(value: Any) -> Any:
    """The keys and the kinds of values of plain JSON; a list by its first element."""
    match value:
        case dict():
            return {key: _shape_of(inner) for key, inner in value.items()}
        case list():
            return [_shape_of(value[0])] if value else []
        case bool() | str():
            return type(value)
        case _:
            return float


SCHEMA = {
    "date": str,
    "python": str,
    "versions": {"dagrun": str, "anyio": str, "networkx": str, "pydantic": str},
    "machine": {"system": str, "processor": str, "cores": float, "memory_gib": float},
    "overhead": [
        {
            "case": str,
            "shape": str,
            "steps": float,
            "pairs": float,
            "ours": float,
            "base": float,
            "ratio": float,
            "must": float,
            "aim": float,
            "passed": bool,
        }
    ],
    "growth": [
        {
            "case": str,
            "shape": str,
            "sizes": [float],
            "ours": float,
            "base": float,
            "in_turn": bool,
            "must": float,
            "passed": bool,
        }
    ],
    "memory": [{"shape": str, "steps": float, "how": str, "bytes": float, "must": float, "passed": bool}],
}


@pytest.mark.rigs
def test_results_have_their_schema(results: dict[str, Any]) -> None:
    """Results are kept in the repository and compared later, so their form is a promise."""
    assert _shape_of(results) == SCHEMA
    assert [(row["shape"], row["steps"]) for row in results["overhead"]] == [
        ("chain", 10),
        ("chain", 20),
        ("fan", 10),
        ("fan", 20),
    ]
    assert all(row["ours"] > 0 and row["base"] > 0 for row in results["overhead"])


def test_kept_results_have_their_schema() -> None:
    """The file in the repository is one that the present code would write."""
    assert _shape_of(json.loads((command.RESULTS / "overhead.json").read_text())) == SCHEMA


@pytest.mark.rigs
def test_memory_is_measured_in_a_process_of_its_own() -> None:
    """More than the events alone, and far less than a task would take."""
    assert 300 < memory.bytes_per_step("random3", 300, "traced") < 3_000


def test_results_name_no_host_and_no_path() -> None:
    """They are published."""
    shown = json.dumps(environment.describe())

    assert "/" not in shown.replace("http://", "")
    assert str(Path.home()) not in shown


@pytest.mark.rigs
def test_results_are_written_with_a_plot(results: dict[str, Any], tmp_path: Path) -> None:
    """Both kinds of the plot, beside the figures."""
    overhead.write(results, tmp_path / "new")

    assert json.loads((tmp_path / "new/overhead.json").read_text()) == results
    assert (tmp_path / "new/overhead.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "new/overhead.svg").read_text()


@pytest.mark.rigs
def test_the_same_results_give_the_same_plot(results: dict[str, Any], tmp_path: Path) -> None:
    """Else every look at the figures would be a change in the repository."""
    for name in ("one", "two"):
        draw_overhead(results, tmp_path / name)

    for ending in (".png", ".svg"):
        assert (tmp_path / f"one{ending}").read_bytes() == (tmp_path / f"two{ending}").read_bytes()
