"""The sections of a report, composed from the facts of the other tools."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from dagrun_tools.analysis.time_series import TOTAL
from dagrun_tools.facts import Parts, Period, Share, Statistics, Summary, Trends
from dagrun_tools.numerals import EN_DASH, MINUS, amount, confidence, percent, period, span
from dagrun_tools.reports.document import Block, Bullets, Document, Grid, Paragraph, Picture, Section
from dagrun_tools.reports.findings import recommendations, signed, summary, word_of

SectionName = Literal["summary", "stats", "trends", "charts", "recommendations"]
SECTIONS: Final[tuple[SectionName, ...]] = ("summary", "stats", "trends", "charts", "recommendations")

_TITLES: Final[Mapping[SectionName, str]] = {
    "summary": "Summary",
    "stats": "Figures",
    "trends": "Trends and anomalies",
    "charts": "Charts",
    "recommendations": "Recommendations",
}
_ROWS: Final = 20  # of a table; the rows after them are added up in one
_STEADY: Final = {"rising": "rising", "falling": "falling", "flat": "no clear trend"}


class TextSection(BaseModel):
    """A section of free text. A blank line ends a paragraph, and lines that begin with ``- `` are a list.

    Attributes:
        title: Above the text.
        text: Plain text: no markup of it is obeyed.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    title: Annotated[str, Field(min_length=1, max_length=200)]
    text: Annotated[str, Field(max_length=100_000)]


def compose(parts: Parts, sections: Sequence[SectionName | TextSection], title: str) -> Document:
    """Compose a report.

    Args:
        parts: The facts of the other tools.
        sections: The sections, in order; a section without content says so in a sentence.
        title: The title of the report; if empty, one is made from the statistics.
    """
    makers: Mapping[SectionName, Callable[[Parts], list[Block]]] = {
        "summary": _summary,
        "stats": _stats,
        "trends": _trends,
        "charts": _charts,
        "recommendations": _recommendations,
    }
    made = [
        _free(one)
        if isinstance(one, TextSection)
        else Section(_TITLES[one], makers[one](parts) or [Paragraph("There is nothing to say here.")])
        for one in sections
    ]
    return Document(title or _title(parts), _subtitle(parts), made)


def _free(section: TextSection) -> Section:
    blocks: list[Block] = []
    for part in re.split(r"\n\s*\n", section.text.strip()):
        lines = part.splitlines()
        if all(re.match(r"\s*[-*•] ", line) for line in lines):
            blocks.append(Bullets([re.sub(r"^\s*[-*•] ", "", line) for line in lines]))
        elif part:
            blocks.append(Paragraph(part))
    return Section(section.title, blocks or [Paragraph("There is nothing to say here.")])


def _title(parts: Parts) -> str:
    if not parts.statistics:
        return "Report"
    stats = parts.statistics[0]
    when = f", {span(stats.months[0].period, stats.months[-1].period)}" if stats.months else ""
    return f"{word_of(stats)}{when}"


def _subtitle(parts: Parts) -> str:
    sources = [*(s.source for s in parts.statistics), *(s.source for s in parts.series)]
    return f"Data: {'; '.join(dict.fromkeys(filter(None, sources)))}" if sources else ""


def _summary(parts: Parts) -> list[Block]:
    if not parts.statistics:
        return []
    first, *others = parts.statistics
    points = summary(first, parts.trends[0] if parts.trends else None)
    return [Bullets([*points, *(point for stats in others for point in summary(stats, None)[:1])])]


def _stats(parts: Parts) -> list[Block]:
    blocks: list[Block] = []
    for stats in parts.statistics:
        blocks += _periods(stats)
        blocks += [_breakdown(group, shares, stats) for group, shares in stats.breakdowns.items() if shares]
        if stats.summary is not None:
            blocks.append(_distribution(stats.summary, stats))
    notes = list(dict.fromkeys(note for stats in parts.statistics for note in stats.notes))
    return [*blocks, *([Bullets(notes)] if notes else [])]


def _periods(stats: Statistics) -> list[Block]:
    periods = stats.years or stats.months
    if not periods:
        return []
    what = "year" if stats.years else "month"
    rows = [[_name(p, what), amount(p.total, stats.unit), percent(p.growth), f"{p.rows:,}"] for p in periods]
    headers = [what.capitalize(), word_of(stats), f"Change from the {what} before", "Rows"]
    return [Grid(f"{word_of(stats)} by {what}", headers, rows, frozenset((1, 2, 3)))]


def _name(row: Period, what: str) -> str:
    text = period(row.period)
    return text if what == "month" or row.months == 12 else f"{text} ({row.months} months)"


def _breakdown(group: str, shares: Sequence[Share], stats: Statistics) -> Grid:
    rows = [
        [s.name, amount(s.total, stats.unit), percent(s.percent, signed=False), f"{s.rows:,}"] for s in shares[:_ROWS]
    ]
    if (rest := shares[_ROWS:]) and stats.aggregate == "sum":
        total, part = sum(s.total for s in rest), sum(s.percent for s in rest)
        counted = f"{sum(s.rows for s in rest):,}"
        rows.append([f"{len(rest)} others", amount(total, stats.unit), percent(part, signed=False), counted])
    label = group.replace("_", " ")
    headers = [label.capitalize(), word_of(stats), "Share", "Rows"]
    return Grid(f"{word_of(stats)} by {label}", headers, rows, frozenset((1, 2, 3)))


def _distribution(values: Summary, stats: Statistics) -> Grid:
    cells = {
        "Rows": f"{values.count:,}",
        "Mean": amount(values.mean, stats.unit),
        "Median": amount(values.median, stats.unit),
        "Smallest": amount(values.minimum, stats.unit),
        "Largest": amount(values.maximum, stats.unit),
        "Standard deviation": amount(values.deviation, stats.unit),
    }
    caption = f"{word_of(stats)}: how the rows are distributed"
    return Grid(caption, list(cells), [list(cells.values())], frozenset(range(len(cells))))


def _trends(parts: Parts) -> list[Block]:
    blocks: list[Block] = []
    for trends in parts.trends:
        blocks += [_trend_grid(trends), *_anomaly_blocks(trends), Paragraph(_how(trends))]
    return blocks


def _trend_grid(trends: Trends) -> Grid:
    rows = [
        [
            "Total" if trend.series == TOTAL else trend.series,
            _STEADY[trend.direction],
            signed(trend.slope, trends.unit),
            EN_DASH if trend.percent is None else f"{trend.percent:+.2f} %".replace("-", MINUS),
            confidence(trend.confidence),
        ]
        for trend in trends.trends[: _ROWS + 1]
    ]
    headers = ["Series", "Trend", "Change a month", "In percent", "Confidence"]
    return Grid("Trends", headers, rows, frozenset((2, 3, 4)))


def _anomaly_blocks(trends: Trends) -> list[Block]:
    if not trends.anomalies:
        return [Paragraph(f"No {trends.step} stands out.")]
    rows = [
        [
            "Total" if a.series == TOTAL else a.series,
            span(a.start, a.end),
            a.direction,
            amount(a.actual, trends.unit),
            amount(a.expected, trends.unit),
            f"{a.score:+.1f}".replace("-", MINUS),
            confidence(a.confidence),
        ]
        for a in trends.anomalies[:_ROWS]
    ]
    headers = ["Series", "When", "Kind", "Actual", "Expected", "Robust z-score", "Confidence"]
    grid = Grid("Anomalies, the strongest first", headers, rows, frozenset((3, 4, 5, 6)))
    more = len(trends.anomalies) - len(rows) + trends.more_anomalies
    return [grid, *([Paragraph(f"{more} weaker ones are not listed.")] if more else [])]


def _how(trends: Trends) -> str:
    words = trends.methods
    return (
        f"How it was found: {words.get('slope', '')}; confidence by the {words.get('confidence', '')}. Anomalies: "
        f"{words.get('anomalies', '')} (sensitivity {trends.sensitivity}), against the {words.get('expected', '')}."
    )


def _charts(parts: Parts) -> list[Block]:
    return [Picture(chart) for chart in parts.charts]


def _recommendations(parts: Parts) -> list[Block]:
    if not parts.statistics and not parts.trends:
        return []
    stats = parts.statistics[0] if parts.statistics else None
    return [Bullets(recommendations(stats, parts.trends[0] if parts.trends else None))]
