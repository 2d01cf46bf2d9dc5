"""Charts: their content, equal bytes for equal data, and labels that break nothing."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dagrun
from dagrun import Artifact, Plan, State, Step, ToolError
from dagrun.errors import MissingExtra
from dagrun_tools.analysis.calculate_stats import calculate_stats
from dagrun_tools.analysis.detect_trends import detect_trends
from dagrun_tools.facts import Chart, Roles, Share, Statistics
from dagrun_tools.reports.file_names import announced
from dagrun_tools.reports.generate_chart import generate_chart
from dagrun_tools.reports.pie import slices_of
from dagrun_tools.reports.scatter import points_of
from data_steps import Steps, plain, steps_in, warm_up


@pytest.fixture(scope="module", autouse=True)
def _fonts() -> None:
    warm_up()


@pytest.fixture
def steps(tmp_path: Path) -> Iterator[Steps]:
    with steps_in(tmp_path) as made:
        yield made


def draw(steps: Steps, data: Any, **options: Any) -> tuple[Chart, str]:
    """Return a chart and its SVG."""
    chart = generate_chart(steps.context, data, **options)
    return chart, steps.store.path(chart.svg).read_text("utf-8")


def test_the_same_data_gives_the_same_bytes(steps: Steps) -> None:
    """There are no dates and no random ids: a step that runs again makes the same artifact."""
    data = plain(steps.sales())
    first, _ = draw(steps, data, title="Sales", output="a.png")
    second, _ = draw(steps, data, title="Sales", output="b.png")
    assert (first.image.sha256, first.svg.sha256) == (second.image.sha256, second.svg.sha256)
    assert (steps.root / "a.png").read_bytes() == (steps.root / "b.png").read_bytes()


def test_the_ending_of_the_file_decides_its_format(steps: Steps) -> None:
    """There is an SVG for reports in both cases."""
    data = plain(steps.sales())
    chart, svg = draw(steps, data, output="charts/a.svg")
    assert chart.file == "charts/a.svg"
    assert (steps.root / "charts" / "a.svg").read_text("utf-8") == svg
    assert chart.image.media_type == "image/svg+xml"
    with pytest.raises(ToolError, match=r"\.png or \.svg"):
        draw(steps, data, output="a.gif")


def test_a_chart_without_a_file_name_takes_its_title(steps: Steps) -> None:
    """Slashes and dots of a title do not become a path."""
    chart, _ = draw(steps, plain(steps.sales()), title="../Q4: Revenue / Trends")
    assert chart.file == "q4_revenue_trends.png"


@pytest.mark.parametrize(
    "options",
    [
        {"chart_type": "line"},
        {"chart_type": "bar"},
        pytest.param({"chart_type": "bar", "show": "total"}, marks=pytest.mark.rigs),
        {"chart_type": "pie"},
        pytest.param({"chart_type": "pie", "show": "total"}, marks=pytest.mark.rigs),
        {"chart_type": "scatter"},
        pytest.param({"chart_type": "scatter", "x": "quantity"}, marks=pytest.mark.rigs),
    ],
)
def test_every_kind_draws_the_sales(steps: Steps, options: dict[str, Any]) -> None:
    """Each group has a line or a bar, and the text for blind readers names it."""
    chart, svg = draw(steps, plain(steps.sales()), **options)
    assert svg.startswith("<?xml")
    assert draw(steps, plain(steps.sales()), **options)[0].svg == chart.svg
    months = ("October 2025", "December 2025") if options["chart_type"] == "pie" else ("Oct 2025", "Dec 2025")
    names = months if options.get("show") else ("Widget A", "Widget B", "Widget C")
    assert all(name in chart.alt for name in names)


def test_a_pie_shows_the_largest_groups_and_the_rest() -> None:
    """The rest is one slice, and the parts add up to the whole."""
    shares = [Share(name=f"g{n}", total=100.0 - n, rows=1, percent=1.0) for n in range(10)]
    pie = slices_of(_made(shares), "auto", 4)

    assert list(pie.names) == ["g0", "g1", "g2", "g3", "6 others"]
    assert (sum(pie.values), pie.has_rest) == (sum(share.total for share in shares), True)


@pytest.mark.parametrize(
    ("totals", "facts", "said"),
    [
        ([5.0, -1.0], {}, "g1 is negative"),
        ([0.0, 0.0], {}, "nothing to divide"),
        ([5.0], {"aggregate": "mean"}, "these are means"),
        ([], {}, "neither groups nor months"),
    ],
)
def test_what_no_pie_can_show_is_refused(totals: list[float], facts: dict[str, Any], said: str) -> None:
    """A slice has no sign, and means have no whole."""
    shares = [Share(name=f"g{n}", total=total, rows=1, percent=1.0) for n, total in enumerate(totals)]
    with pytest.raises(ToolError, match=said):
        slices_of(_made(shares, **facts), "auto", 6)


def _made(shares: list[Share], **facts: Any) -> Statistics:
    table = Artifact(sha256="0" * 64)
    roles = Roles(value="revenue", groups=["g"])
    return Statistics(table=table, roles=roles, rows=1, total=1.0, breakdowns={"g": shares} if shares else {}, **facts)


def test_a_scatter_has_a_point_for_each_row(steps: Steps) -> None:
    """By group, with dates across if no column is named; and a column that is not there is named."""
    stats = steps.sales()
    by_day = points_of(steps.context, stats, "", "")
    assert (by_day.is_time, by_day.rows, by_day.every) == (True, 1423, 1)
    assert {name: len(pairs) for name, pairs in by_day.groups.items()}.keys() == {"Widget A", "Widget B", "Widget C"}
    assert sum(map(len, by_day.groups.values())) == 1423
    by_quantity = points_of(steps.context, stats, "quantity", "")
    assert not by_quantity.is_time
    assert sum(up for pairs in by_quantity.groups.values() for _, up in pairs) == pytest.approx(505_000)
    with pytest.raises(ToolError, match=r"no column 'weight'; there is .*quantity"):
        points_of(steps.context, stats, "weight", "")
    with pytest.raises(ToolError, match="no row has a number or date in region"):
        points_of(steps.context, stats, "region", "")


def test_of_very_many_rows_some_are_drawn(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    """Evenly, and the chart says so; many points are a picture inside the SVG."""
    monkeypatch.setattr("dagrun_tools.reports.scatter.MAX_POINTS", 500)
    monkeypatch.setattr("dagrun_tools.reports.scatter._RASTER", 100)
    assert points_of(steps.context, steps.sales(), "", "").every == 3
    _, svg = draw(steps, plain(steps.sales()), chart_type="scatter")
    assert "data:image/png;base64" in svg
    assert len(svg) < 200_000


@pytest.mark.parametrize(
    ("expected", "file"),
    [
        ("revenue.png", "revenue.png"),
        ("A chart, saved as out/q4-sales.svg.", "out/q4-sales.svg"),
        ("revenue.png, the same as revenue.png", "revenue.png"),
        ("a.png and b.png", ""),
        ("A chart like ../secret.png", ""),
        ("figures in data.csv", ""),
        ("a.pngs", ""),
        ("", ""),
    ],
)
def test_the_step_announces_the_file(steps: Steps, expected: str, file: str) -> None:
    """A plan that passes no name may say in words what comes out."""
    assert announced(dataclasses.replace(steps.context, expected_output=expected), (".png", ".svg")) == file


def test_a_chart_is_written_to_the_announced_file_unless_another_is_named(steps: Steps) -> None:
    """What is announced goes before the title."""
    context = dataclasses.replace(steps.context, expected_output="revenue.png")
    assert generate_chart(context, plain(steps.sales()), title="Sales").file == "revenue.png"
    assert generate_chart(context, plain(steps.sales()), output="mine.png").file == "mine.png"


@pytest.mark.rigs
def test_anomalies_are_marked_on_the_days(steps: Steps) -> None:
    """With trends beside the figures, the days are drawn, and eleven of them are ringed."""
    stats = steps.sales()
    data = {"stats": plain(stats), "trends": plain(detect_trends(steps.context, stats))}
    _, marked = draw(steps, data, output="a.svg")
    _, bare = draw(steps, plain(stats), output="b.svg")
    peak = "stroke: #b30000"
    assert marked.count(peak) > 0
    assert peak not in bare


@pytest.mark.rigs
def test_dollars_and_markup_in_names_are_only_text(steps: Steps) -> None:
    """`$x^$` is not a formula, and a letter that the font lacks breaks nothing."""
    names = ("$\\frac{1}{$", "<script>alert(1)</script>", "数据\x07\u202e", "x" * 500)
    rows = "".join(f"2025-{month:02d}-01,{name},5\n" for month in (1, 2) for name in names)
    data = plain(calculate_stats(steps.context, steps.clean(f"date,product,revenue\n{rows}")))
    for kind in ("line", "bar"):
        _, svg = draw(steps, data, chart_type=kind, title="$\\x$ <b>")
        assert "<script" not in svg


@pytest.mark.rigs
def test_series_from_elsewhere_share_an_axis_by_their_unit(steps: Steps) -> None:
    """Dollars share an axis with dollars; percent has its own."""
    points = [{"period": "2025-10", "value": 1}, {"period": "2025-12", "value": 3}]
    data = [
        plain(steps.sales()),
        {"kind": "series", "name": "plan", "unit": "$", "points": points},
        {"kind": "series", "name": "rate", "unit": "%", "points": points},
    ]
    chart, svg = draw(steps, data, show="total")
    assert "plan" in chart.alt
    assert "rate" in chart.alt
    assert 'id="axes_2"' in svg
    assert 'id="axes_3"' not in svg


def test_one_month_and_one_point_can_be_drawn(steps: Steps) -> None:
    """Users try the smallest data set first."""
    data = plain(calculate_stats(steps.context, steps.clean("date,product,revenue\n2025-01-01,a,5\n2025-01-02,b,6\n")))
    assert draw(steps, data)[0].image.size > 1000


def test_data_without_figures_is_refused_in_a_sentence(steps: Steps) -> None:
    """The sentence names the step that the plan has forgotten."""
    with pytest.raises(ToolError, match="calculate_stats"):
        draw(steps, {"a": 1})


def test_without_matplotlib_one_line_names_the_extra(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    """The base install has no chart library; the error says what to install."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match=r'pip install "dagrun-engine\[tools\]"') as caught:
        draw(steps, plain(steps.sales()))
    assert "\n" not in str(caught.value)


@pytest.mark.real_time
def test_a_missing_library_is_a_failure_without_effect(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was written, so the step fails, and its outcome is not in doubt."""
    data = plain(steps.sales())
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    plan = Plan(steps=[Step(id="chart", tool="generate_chart", args={"data": data})])
    result = dagrun.run_sync(plan, tools=[generate_chart], artifacts=steps.store.folder)
    assert result.steps["chart"].state is State.FAILED
    assert "dagrun-engine[tools]" in result.steps["chart"].reason
