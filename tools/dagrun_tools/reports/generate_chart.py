"""`generate_chart`: statistics, trends and other series as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from dagrun import ToolContext, ToolError, tool
from dagrun_tools.analysis.detect_trends import typed
from dagrun_tools.analysis.time_series import TOTAL, observe
from dagrun_tools.facts import Anomaly, Chart, Parts, Period, Series, Share, Statistics, Trends
from dagrun_tools.files.data_files import checked_name, write_bytes
from dagrun_tools.numerals import amount, as_date, labelled, percent, period
from dagrun_tools.reports.drawing import Bars, Content, LineMark, Panel, PanelLine, draw
from dagrun_tools.reports.file_names import announced, slug
from dagrun_tools.reports.pie import Slices, slices_of
from dagrun_tools.reports.scatter import Points, points_of

ChartType = Literal["line", "bar", "pie", "scatter"]
Show = Literal["auto", "total", "groups"]

_MEDIA: Final = {".png": "image/png", ".svg": "image/svg+xml"}
_FEW: Final = 6  # lines in one panel that a reader can tell apart
_LABELLED: Final = 4  # marks that get a label; the others are only circled


@tool(effect="idempotent", timeout=120)
def generate_chart(
    context: ToolContext,
    data: dict[str, Any] | list[Any],
    *,
    chart_type: Annotated[ChartType, Field(alias="chartType")] = "line",
    title: Annotated[str, Field(max_length=200)] = "",
    output: Annotated[str, Field(max_length=1000)] = "",
    show: Show = "auto",
    top: Annotated[int, Field(ge=1, le=30)] = 6,
    x: Annotated[str, Field(max_length=200)] = "",
    y: Annotated[str, Field(max_length=200)] = "",
) -> Chart:
    """Draw statistics, with anomalies marked and other series beside them if there are any, as a PNG or SVG file.

    Args:
        context: Of the call.
        data: What `calculate_stats` gives; or an object or a list with that, with what `detect_trends` gives, and with
            series from elsewhere.
        chart_type: ``line`` over time; ``bar`` or ``pie`` by group (over time, with *show* ``total``); or ``scatter``,
            a point for each row.
        title: Above the chart; made up of the column's name if left out.
        output: The file to write, ending in ``.png`` or ``.svg``; if left out, the file that the step announces as its
            expected output, or one made of the title.
        show: The total, the largest groups, or both where that is still legible.
        top: The most groups to draw.
        x: For ``scatter``: the column across; the dates if left out, else the first other column of numbers.
        y: For ``scatter``: the column upwards; the one that was added up if left out.

    Returns:
        The chart; also as an SVG artifact, which reports put in.

    Raises:
        ToolError: There is nothing to draw, or the file cannot be written.
    """
    parts = Parts(data)
    if not parts.statistics and not parts.series:
        raise ToolError("there are no statistics to draw in data; pass what calculate_stats gives")
    stats = parts.statistics[0] if parts.statistics else None
    heading = title or _title(stats, parts.series)
    file = output or announced(context, _MEDIA) or f"{slug(heading)}.png"
    media = _MEDIA.get(checked_name(file).suffix.lower())
    if media is None:
        raise ToolError(f"{file} should end in .png or .svg")
    content = _content(context, chart_type, parts, Choice(stats, show, top, x, y))
    png, svg = draw(heading, content, _footer(stats, parts.series, content))
    image = png if media == "image/png" else svg
    context.check_cancelled()  # a step that was told to stop writes nothing
    return Chart(
        title=heading,
        file=write_bytes(file, image),
        image=context.artifacts.save(image, media_type=media, name=checked_name(file).name),
        svg=context.artifacts.save(svg, media_type="image/svg+xml", name=f"{checked_name(file).stem}.svg"),
        alt=_alt(heading, content),
    )


@dataclass(frozen=True, slots=True)
class Choice:
    """The statistic and the kind of a chart; see `generate_chart`."""

    stats: Statistics | None
    show: Show
    top: int
    x: str
    y: str


def _content(context: ToolContext, chart_type: ChartType, parts: Parts, choice: Choice) -> Content:
    match chart_type:
        case "bar":
            return _bars(choice.stats, choice.show, choice.top)
        case "pie":
            return slices_of(choice.stats, choice.show, choice.top)
        case "scatter":
            return points_of(context, choice.stats, choice.x, choice.y)
        case "line":
            return _panels(context, choice.stats, parts, choice.show, choice.top)


def _title(stats: Statistics | None, series: Sequence[Series]) -> str:
    return f"{stats.roles.value.capitalize()}" if stats else series[0].name


def _footer(stats: Statistics | None, series: Sequence[Series], content: Content) -> str:
    sources = [stats.source if stats else "", *(s.source for s in series)]
    known = list(dict.fromkeys(s for s in sources if s))
    has_part = isinstance(content, Bars) and any(name.endswith("*") for name in content.names)
    notes = [f"Source: {'; '.join(known)}"] * bool(known) + ["* part of the year only"] * has_part
    if isinstance(content, Points) and content.every > 1:
        notes.append(f"1 in {content.every} of {content.rows:,} rows is drawn")
    return " · ".join(notes)


def _alt(title: str, content: Content) -> str:
    if isinstance(content, Points):
        names = ", ".join(name for name in content.groups if name)
        return f"{title}: {content.y_label} against {content.x_label}, {content.rows:,} rows{names and f' of {names}'}"
    if isinstance(content, Bars | Slices):
        pairs = zip(content.names, content.values, strict=True)
        return f"{title}: " + ", ".join(f"{name} {amount(value, content.unit)}" for name, value in list(pairs)[:10])
    lines = [line for panel in content for line in panel.lines]
    dates = [date for line in lines for date in line.dates]
    names = ", ".join(line.name for line in lines[:10])
    return f"{title}: {names}, from {min(dates):%B %Y} to {max(dates):%B %Y}"


# Bars ----------------------------------------------------------------------------------------------------------------


def _bars(stats: Statistics | None, show: Show, top: int) -> Bars:
    if stats is None:
        raise ToolError("bars need statistics; pass what calculate_stats gives")
    shares = next(iter(stats.breakdowns.values()), [])
    label = labelled(stats.roles.value, stats.unit)
    if shares and show != "total":
        return _bars_of(shares, stats, label, top)
    periods = stats.years or stats.months
    if not periods:
        raise ToolError("there are neither groups nor months to draw as bars")
    return Bars(label, stats.unit, [_short(p) for p in periods], [p.total for p in periods], _notes(periods), True)


def _short(row: Period) -> str:
    text = period(row.period)
    words = text.split()
    name = f"{words[0][:3]} {words[1]}" if len(words) == 2 else text
    return name if row.months in (1, 12) else f"{name}*"


def _notes(periods: Sequence[Period]) -> list[str]:
    return [amount(p.total) if p.growth is None else f"{amount(p.total)} ({percent(p.growth)})" for p in periods]


def _bars_of(shares: Sequence[Share], stats: Statistics, label: str, top: int) -> Bars:
    shown, rest = list(shares[:top]), shares[top:]
    names, values = [share.name for share in shown], [share.total for share in shown]
    notes = [f"{amount(share.total)}  ({percent(share.percent, signed=False)})" for share in shown]
    if rest and stats.aggregate == "sum":
        names.append(f"{len(rest)} others")
        values.append(sum(share.total for share in rest))
        notes.append(f"{amount(values[-1])}  ({percent(sum(s.percent for s in rest), signed=False)})")
    return Bars(label, stats.unit, names, values, notes)


# Lines ---------------------------------------------------------------------------------------------------------------


def _panels(context: ToolContext, stats: Statistics | None, parts: Parts, show: Show, top: int) -> list[Panel]:
    panels: list[Panel] = []
    if stats is not None:
        trends = parts.trends[0] if parts.trends else None
        lines = _lines(context, stats, trends, show, top)
        if not lines:
            raise ToolError("there are no months to draw a line through")
        fine = " a day" if trends is not None and stats.step == "day" else ""
        label = labelled(f"{stats.roles.value}{fine or ' a month'}", stats.unit)
        panels.append(Panel(label, stats.unit, lines))
    for series in parts.series:
        line = PanelLine(series.name, [as_date(p.period) for p in series.points], [p.value for p in series.points])
        known = next((panel for panel in panels if panel.unit == series.unit), None)
        if not series.points:
            continue
        if known is None:
            panels.append(Panel(labelled(series.name, series.unit), series.unit, [line]))
        else:
            known.lines.append(line)
    return panels


def _lines(context: ToolContext, stats: Statistics, trends: Trends | None, show: Show, top: int) -> list[PanelLine]:
    """Return a line of months for each series; or of days, if there are days, and trends to mark on them."""
    group = next(iter(stats.breakdowns), None)
    shares = stats.breakdowns.get(group or "", [])
    if trends is not None and stats.step is not None:
        observed = observe(typed(context, stats), stats.roles, stats.step, group, stats.aggregate)
        periods, total, groups = observed.periods, observed.total, observed.groups
    else:
        periods = [month.period for month in stats.months]
        total, groups = [month.total for month in stats.months], {share.name: share.months for share in shares}
    if not periods:
        return []
    dates = [as_date(text) for text in periods]
    names = [share.name for share in shares if share.name in groups][:top]
    chosen = {TOTAL: total} if show != "groups" or not names else {}
    if show == "groups" or (show == "auto" and len(shares) <= _FEW):
        chosen |= {name: groups[name] for name in names}
        if trends is not None and show == "auto" and names:
            del chosen[TOTAL]  # the days of the total would only cover those of the groups
    marks = _marks(trends, list(chosen))
    alone = "Total" if len(chosen) > 1 else labelled(stats.roles.value, "")
    return [
        PanelLine(alone if name == TOTAL else name, dates, values, marks.get(name, ()))
        for name, values in chosen.items()
    ]


def _marks(trends: Trends | None, names: Sequence[str]) -> dict[str, list[LineMark]]:
    """Return the anomalies of each line that is drawn. An anomaly of another group is not one of the total."""
    marks: dict[str, list[LineMark]] = {}
    shown = [a for a in (trends.anomalies if trends else ()) if a.series in names]
    for number, anomaly in enumerate(shown):
        label = _mark_label(anomaly) if number < _LABELLED else ""
        mark = LineMark(as_date(anomaly.start), as_date(anomaly.end), anomaly.direction == "peak", label)
        marks.setdefault(anomaly.series, []).append(mark)
    return marks


def _mark_label(anomaly: Anomaly) -> str:
    who = "" if anomaly.series == TOTAL else f"{anomaly.series}: "
    change = percent(100 * (anomaly.actual - anomaly.expected) / anomaly.expected) if anomaly.expected else ""
    return f"{who}{anomaly.direction}, {change}" if change else f"{who}{anomaly.direction}"
