"""The figures of the ordering benchmark are right: on virtual time, theory says what each of them must be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ordering
from dagrun.kernel.graph import live_graph as limits
from dagrun.kernel.graph.step_order import Frontier
from dagrun.testing import run_virtual
from first_ready import FirstReady, first_ready
from graphs import makespan_bounds
from list_schedule import first_ready as list_schedule
from mixed import MIXES, SHAPES, TOOLS, make_mixed
from ordering import ESTIMATES, FIRST_READY, HOPS, LEARNED, NO_GAIN, ORDERS, Case, Row, makespan, measure
from uneven import LONGEST, SHORTEST

STEPS = 40
CASES = [(shape, mix) for shape in ordering.SHAPES for mix in ordering.MIXES]


def _row(against: float, **facts: object) -> Row:
    figures = dict.fromkeys(ORDERS, 1.0)
    row = Row("virtual", "random3", "uniform", 4, 2, figures, figures, figures | {HOPS: against})
    return row if not facts else Row(**{name: facts.get(name, getattr(row, name)) for name in Row.__slots__})  # type: ignore[arg-type]


def order_in_use() -> object:
    return vars(limits)["Frontier"]


# What is run ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "mix"), CASES)
def test_graphs_are_drawn_from_their_seed_alone(shape: str, mix: str) -> None:
    """Exact figures are only exact if the graphs are the same every day; and each seed is to be another measurement."""
    assert make_mixed(shape, mix, STEPS, 3) == make_mixed(shape, mix, STEPS, 3)
    assert make_mixed(shape, mix, STEPS, 3).seconds != make_mixed(shape, mix, STEPS, 4).seconds


def test_calls_of_one_tool_take_about_as_long() -> None:
    """Else there is nothing to learn; and if it were all the same tool, nothing to tell steps apart by."""
    graph = make_mixed("random3", "uniform, by tool", 100, 0)
    by_tool = [[graph.seconds[id_] for id_, its in graph.tools.items() if its == tool] for tool in range(len(TOOLS))]

    assert all(max(seconds) <= 1.5 * min(seconds) for seconds in by_tool)
    assert max(map(max, by_tool)) > 2 * min(map(min, by_tool))
    assert all(0.8 * SHORTEST <= seconds <= 1.2 * LONGEST for seconds in graph.seconds.values())


# How long it takes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "mix"), CASES)
@pytest.mark.parametrize("slots", [2, 7])
def test_first_ready_is_the_plain_list_schedule(shape: str, mix: str, slots: int) -> None:
    """By another implementation: what dagrun's order is compared to must be what everybody knows."""
    case = Case.of(shape, mix, 1, STEPS)
    wanted = list_schedule(case.graph.needs, case.graph.seconds, slots)

    assert run_virtual(makespan, case, slots, FIRST_READY) == pytest.approx(wanted)


@pytest.mark.parametrize(("shape", "mix"), CASES)
def test_every_order_keeps_to_the_bounds_of_graham(shape: str, mix: str) -> None:
    """No schedule beats the bound, and none that leaves no slot idle exceeds the other one."""
    case = Case.of(shape, mix, 2, STEPS)
    least, most = makespan_bounds(case.graph.work, case.graph.critical_path, 4)

    assert case.bound(4) == pytest.approx(least)
    for order in ORDERS:
        assert least - 1e-9 <= run_virtual(makespan, case, 4, order) <= most + 1e-9, order


def test_the_orders_are_different_orders() -> None:
    """Each has its own figure on a graph on which it can have one; and at the end that of the product is back."""
    (row,) = measure("random3", "heavy tail, by tool", [4], range(2), steps=100)

    assert len({round(figure, 6) for figure in row.ratio.values()}) == 4
    assert row.ratio[LEARNED] < row.ratio[HOPS]
    assert row.against[FIRST_READY] == 1
    assert order_in_use() is Frontier


def test_what_was_learned_is_what_the_tools_take() -> None:
    """By a run of its own, before the orders are compared."""
    case = Case.of("random3", "uniform, by tool", 0, 100)

    assert sum(case.known.count(tool.name) for tool in TOOLS) == 100
    took = sorted(case.graph.seconds[id_] for id_, tool in case.graph.tools.items() if tool == 0)
    assert took[0] * 0.95 <= (case.known.median("tool0") or 0) <= took[-1] * 1.05


@pytest.mark.parametrize("kind", NO_GAIN.values(), ids=NO_GAIN)
def test_where_nothing_can_be_gained_all_orders_are_equal(kind: tuple[str, str, int | None]) -> None:
    """The benchmark says so; theory says why."""
    shape, mix, slots = kind
    (row,) = measure(shape, mix, [slots], range(2), steps=STEPS)

    assert row.against == pytest.approx(dict.fromkeys(ORDERS, 1))


def test_first_ready_leaves_when_it_is_done() -> None:
    """Also after an error: nothing else in the process may ever run in this order."""

    def fail() -> None:
        with first_ready():
            assert order_in_use() is FirstReady
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert order_in_use() is Frontier


def test_everything_that_is_measured_is_there() -> None:
    """The issue wants 2 to 16 slots, in shapes that have a choice."""
    assert ordering.SLOTS == (2, 4, 8, 16)
    assert set(ordering.SHAPES) <= SHAPES.keys()
    assert set(ordering.MIXES) <= MIXES.keys()


# The verdict ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("against", "passed"), [(0.9, True), (1.03, True), (1.031, False)])
def test_a_must_is_a_limit_on_every_order(against: float, passed: bool) -> None:
    """The target of the issue is at most 1.03 of the first ready order."""
    row = _row(against)
    assert (row.must, row.passed) == (1.03, passed)
    assert ("MISSED" in ordering.line_of(row)) is not passed


@pytest.mark.parametrize("facts", [{"slots": 8}, {"clock": "real"}, {"mix": "heavy tail"}])
def test_nothing_else_gates(facts: dict[str, object]) -> None:
    """Times on a real clock say more about the machine."""
    assert _row(9.0, **facts).must is None
    assert _row(9.0, **facts).passed


@pytest.fixture(scope="module")
def _fonts(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The fonts that the first drawing opens stay open."""
    pytest.importorskip("matplotlib")
    rows = {"ordering": list(measure("random3", "uniform", [4], range(1), 10))}
    ordering.write(ordering.as_json(rows), tmp_path_factory.mktemp("first"))


@pytest.mark.rigs
@pytest.mark.usefixtures("_fonts")
def test_the_whole_thing_writes_what_it_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Figures as JSON, and a picture of them."""
    assert ordering.main(["--quick", "--gate", "--out", str(tmp_path)]) == 0

    results = json.loads((tmp_path / "ordering.json").read_text())
    printed = capsys.readouterr().out
    assert {"date", "machine", "ordering", "no_gain"} <= results.keys()
    assert len(results["ordering"]) == len(ordering.SHAPES) * 2 * 2
    assert printed.count("ok") >= len(ordering.SHAPES) * 2
    assert all(row["passed"] and row["against"][ESTIMATES] <= 1.03 for row in results["ordering"])
    assert (tmp_path / "ordering.png").stat().st_size > 10_000
    assert (tmp_path / "ordering.svg").stat().st_size > 10_000
