"""The demo, with a real server, real data and two real runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dagrun_tools.demo import server
from dagrun_tools.demo.demo import demo

pytestmark = [pytest.mark.real_time, pytest.mark.rigs]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "out"


@pytest.fixture(scope="module")
def facts(folder: Path) -> dict[str, Any]:
    """Run the demo once for all tests, with faster sources."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "LATENCY", 0.2)
        result = CliRunner().invoke(demo, ["--json", "-o", str(folder)], standalone_mode=False)
    assert result.exception is None, result.stderr
    assert result.return_value == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_one_source_is_retried_and_the_other_replaced(facts: dict[str, Any]) -> None:
    """The page that fails once causes one retry, the missing source one fallback, and the run succeeds."""
    assert facts["status"] == "succeeded"
    assert (facts["retries"], facts["fallbacks"]) == (1, 1)


def test_the_comparison_is_of_two_real_runs(facts: dict[str, Any]) -> None:
    """The speed-up is sequential over parallel time, and no run is faster than its longest chain."""
    assert facts["speedup"] == pytest.approx(facts["sequential"] / facts["makespan"], abs=0.02)
    assert facts["makespan"] >= facts["critical_path"]


def test_it_leaves_what_it_lists(facts: dict[str, Any], folder: Path) -> None:
    """It leaves both reports, the charts and the record, none of them empty."""
    assert {"report.md", "report.html", "run.html", "run.json"} <= set(facts["files"])
    assert len([name for name in facts["files"] if name.endswith(".png")]) >= 3
    assert all((folder / name).stat().st_size > 1000 for name in facts["files"])


def test_the_record_is_the_result_as_json(facts: dict[str, Any], folder: Path) -> None:
    """It also says what was retried, and which tool answered in the end."""
    record = json.loads((folder / "run.json").read_text("utf-8"))
    assert record["status"] == "succeeded"
    assert [a["tool"] for a in record["steps"]["rates"]["attempts"]] == ["fetch_json", "mortgage_rates_on_file"]
    assert len(record["steps"]["prices[2]"]["attempts"]) == 2


def test_the_report_holds_figures_of_the_real_data(facts: dict[str, Any], folder: Path) -> None:
    """The expected sums were computed by other means from the same file."""
    text = (folder / "report.md").read_text("utf-8")
    for figure in ("8,034 of 8,602 rows", "| Houston | 1,043,999 homes |", "| 2006 | 347,733 homes | +10.0 % |"):
        assert figure in text
