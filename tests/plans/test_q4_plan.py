"""The six-step plan of the other dialect runs unchanged, and finds exactly the figures that its data was made with."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import dagrun
from dagrun import RunResult
from folders import DATA

pytestmark = pytest.mark.real_time


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("q4")


@pytest.fixture(scope="module")
def result(folder: Path) -> Iterator[RunResult]:
    """One run for all of these tests, each of which looks at another part of it."""
    for name in ("q4_plan.json", "sales_q4_2025.csv"):
        shutil.copy(DATA / name, folder / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield dagrun.run_sync(Path("q4_plan.json"), tools="dagrun_tools")


@pytest.fixture(scope="module")
def report(result: RunResult, folder: Path) -> str:
    assert result.status is dagrun.Status.SUCCEEDED, result.reason
    return (folder / "q4_report.md").read_text("utf-8")


def test_the_plan_succeeds_and_leaves_its_two_files(result: RunResult, folder: Path) -> None:
    """Only `expected_output` names the files; the reader of the dialect passes the names on."""
    assert result.status is dagrun.Status.SUCCEEDED, result.reason
    assert (folder / "revenue_trends.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "q4_report.md").stat().st_size > 1000


def test_trends_and_chart_run_side_by_side(result: RunResult) -> None:
    """Steps 4 and 5 need only step 3, so neither waits for the other."""
    four, five = result.steps["4"], result.steps["5"]
    assert four.started is not None
    assert four.ended is not None
    assert five.started is not None
    assert five.ended is not None
    assert four.started < five.ended
    assert five.started < four.ended


def test_cleaning_counts_what_it_removes(result: RunResult, report: str) -> None:
    """1,500 rows, of which 52 lack a value and 25 are repeats."""
    cleaning = result.steps["2"].output["cleaning"]
    assert (cleaning["rows_before"], cleaning["rows_after"]) == (1500, 1423)
    assert (cleaning["removed_nulls"], cleaning["removed_duplicates"]) == (52, 25)
    assert cleaning["fixed"] == {"revenue": 222}
    assert "1,423 of 1,500 rows: 52 with missing values and 25 repeats" in report


def test_monthly_totals_and_growth_are_exact(result: RunResult, report: str) -> None:
    """Sums of thousands of cents come out without the noise of binary fractions."""
    months = result.steps["3"].output["months"]
    assert [(m["period"], m["total"]) for m in months] == [
        ("2025-10", 145_000),
        ("2025-11", 162_000),
        ("2025-12", 198_000),
    ]
    assert months[0]["growth"] is None
    assert [round(m["growth"], 1) for m in months[1:]] == [11.7, 22.2]
    for text in ("| October 2025 | $145,000 |", "| $162,000 | +11.7 % |", "| $198,000 | +22.2 % |"):
        assert text in report


def test_products_are_broken_down(result: RunResult, report: str) -> None:
    """The metric asks for the breakdown by the name of the column; shares are of the total."""
    shares = result.steps["3"].output["breakdowns"]["product"]
    assert {s["name"]: s["total"] for s in shares} == {"Widget A": 210_000, "Widget B": 145_000, "Widget C": 150_000}
    assert sum(s["percent"] for s in shares) == pytest.approx(100)
    for text in ("Widget A | $210,000", "Widget B | $145,000", "Widget C | $150,000"):
        assert text in report


def test_the_two_anomalies_and_no_others_are_found(result: RunResult, report: str) -> None:
    """Widget A peaks for ten days in December, and Widget C drops on one day in November; the rest is noise."""
    found = result.steps["4"].output["anomalies"]
    assert [(a["series"], a["direction"], a["start"], a["end"]) for a in found] == [
        ("Widget A", "peak", "2025-12-15", "2025-12-24"),
        ("Widget C", "dip", "2025-11-15", "2025-11-15"),
    ]
    assert all(a["confidence"] > 0.99 for a in found)
    assert "Widget A peaks from 15 to 24 December 2025" in report
    assert "Widget C dips on 15 November 2025" in report


def test_the_report_has_the_sections_in_order_and_none_is_empty(report: str) -> None:
    """Summary, figures, trends, charts, recommendations: in the order of the plan."""
    heads = [line for line in report.splitlines() if line.startswith("## ")]
    assert heads == ["## Summary", "## Figures", "## Trends and anomalies", "## Charts", "## Recommendations"]
    assert "There is nothing to say here" not in report
    assert "](revenue_trends.png)" in report


def test_outputs_name_no_folder_of_the_machine(result: RunResult, folder: Path) -> None:
    """Records are moved to other machines, so they must not say where they were made."""
    assert str(folder) not in json.dumps(result.as_dict())
