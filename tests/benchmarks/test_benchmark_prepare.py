"""The benchmark of prepared plans: it does what it says, and its musts can be missed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dagrun
import environment
import prepare
from dagrun.api import checking
from plot_prepare import COLOURS, draw_prepare
from prepare import Row

pytestmark = pytest.mark.anyio

PEER = {"peer": "Hamilton", "steps": 10, "new": 9.0, "again": 2.0}


@pytest.mark.parametrize("case", prepare.CASES)
@pytest.mark.parametrize(("way", "checks"), [("new text", 3), ("same text", 1), ("checked", 0), ("text", 3)])
async def test_each_way_checks_as_often_as_it_says(
    case: str, way: str, checks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with dagrun.Engine() as engine:
        work = prepare.ways_of(engine, case, 10)[way]
        if way == "checked":
            await work()  # with the first inputs
        count, real = 0, vars(checking)["check_plan"]

        def counted(*arguments: object, **options: object) -> object:
            nonlocal count
            count += 1
            return real(*arguments, **options)

        monkeypatch.setattr(checking, "check_plan", counted)
        for _ in range(3):
            await work()
    assert count == checks


async def test_every_run_has_inputs_of_its_own() -> None:
    inputs = prepare.inputs_of("by reference")
    assert next(inputs) != next(inputs)


def test_a_row_over_its_must_is_missed() -> None:
    assert Row("named", 100, "check", 1.0, 1.0).passed
    assert not Row("named", 100, "check", 1.01, 1.0).passed
    assert "MISSED" in prepare.line_of(Row("named", 100, "check", 1.01, 1.0))
    assert Row("named", 100, "text", 9.0, None).passed


@pytest.fixture(scope="module")
def _fonts(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The fonts that the first drawing opens stay open."""
    rows = [{"case": "named", "steps": 10, "way": way, "ratio": 1.0} for way in COLOURS]
    results = environment.describe() | {"prepare": rows, "peers": [PEER]}
    draw_prepare(results, tmp_path_factory.mktemp("first") / "prepare")


@pytest.mark.usefixtures("_fonts")
@pytest.mark.parametrize(("ratio", "micro", "code"), [(0.7, 70.0, 0), (0.9, 70.0, 1), (0.7, 170.0, 1)])
@pytest.mark.rigs
def test_a_missed_must_is_the_exit_code_and_the_results_are_kept(
    ratio: float, micro: float, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def measured(case: str, steps: int, pairs: int) -> list[Row]:
        return [Row(prepare.CASES[case], steps, way, ratio, 0.8) for way in COLOURS]

    monkeypatch.setattr(prepare, "measure_case", measured)
    monkeypatch.setattr(prepare, "one_step", lambda rounds: micro)
    monkeypatch.setattr(prepare, "measure_peers", lambda: iter([PEER]))

    assert prepare.main(["--out", str(tmp_path), "--gate"]) == code
    assert prepare.main(["--quick"]) == 0

    results = json.loads((tmp_path / "prepare.json").read_text())
    assert {row["ratio"] for row in results["prepare"]} == {ratio}
    assert results["one_step"] == micro
    assert results["peers"] == [PEER]
    assert (tmp_path / "prepare.svg").exists()
