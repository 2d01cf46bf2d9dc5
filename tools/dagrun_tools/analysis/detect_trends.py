"""`detect_trends`: the trend of each series, and the days or months that stand out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from dagrun import ToolContext, ToolError, tool
from dagrun_tools.analysis.baseline import METHODS, Baseline, Window, baseline_of, in_words
from dagrun_tools.analysis.robust_statistics import chance_of, slope, trend_confidence
from dagrun_tools.analysis.time_series import TOTAL, observe
from dagrun_tools.facts import Anomaly, Statistics, Table, Trend, Trends
from dagrun_tools.numerals import tidy
from dagrun_tools.tables.columns import reader_of
from dagrun_tools.tables.rows import Row, read_rows

Sensitivity = Literal["low", "medium", "high"]

# The least robust z-score of an anomaly. Of normally distributed values, one in 1.7 million, 16,000 and 370 reaches it.
THRESHOLDS: Final[dict[Sensitivity, float]] = {"low": 5.0, "medium": 4.0, "high": 3.0}
_SURE: Final = 0.95  # confidence of a trend that is called rising or falling; below it, the series is flat
_LEAST: Final = 8  # observations of a series; with fewer, none can stand out
_DAYS: Final = 365.2425 / 12  # of a month, on average
MAX_ANOMALIES: Final = 100


class TrendConfig(BaseModel):
    """How `detect_trends` looks."""

    model_config = ConfigDict(extra="forbid", strict=True)

    window: Window = Field(
        default="monthly", description="How long a level holds that days are compared with: monthly, 3months, 14 days."
    )
    sensitivity: Sensitivity = Field(
        default="medium", description="Robust z-scores of 5 (low), 4 (medium) or 3 (high) and more stand out."
    )


@dataclass(frozen=True, slots=True)
class _SeriesLine:
    """A series without the places at which nothing was observed."""

    name: str
    at: list[int]  # the places of the observations on the axis of time
    periods: list[str]
    values: list[float]
    baseline: Baseline


@tool(effect="pure", timeout=120)
def detect_trends(context: ToolContext, data: Statistics, config: TrendConfig | None = None) -> Trends:
    """Find the trend of the total and of each group, and the days or months far from their expected values.

    Args:
        context: Of the call.
        data: What `calculate_stats` gives; the series are made again from its table, at their finest.
        config: The window of the levels, and how far out an anomaly must be.

    Returns:
        Trends with their confidence (Theil-Sen, Mann-Kendall) and anomalies with theirs (robust z-scores by the median
        absolute deviation).
    """
    chosen = config or TrendConfig()
    if data.step is None:
        raise ToolError("there is no time in the data, so there are no trends")
    lines = _lines(context, data, chosen.window)
    if not lines:
        raise ToolError(f"there are fewer than two {data.step}s, so there are no trends")
    threshold = THRESHOLDS[chosen.sensitivity]
    everything = [anomaly for line in lines for anomaly in _anomalies(line, threshold)]
    own = (anomaly for anomaly in everything if not _is_explained(anomaly, everything))
    anomalies = sorted(own, key=lambda a: (-abs(a.score), a.series, a.start))
    methods = list(dict.fromkeys(line.baseline.method for line in lines))
    return Trends(
        unit=data.unit,
        step=data.step,
        window=chosen.window,
        sensitivity=chosen.sensitivity,
        threshold=threshold,
        trends=[_trend(line, data) for line in lines],
        anomalies=anomalies[:MAX_ANOMALIES],
        more_anomalies=max(0, len(anomalies) - MAX_ANOMALIES),
        methods={
            "slope": f"Theil-Sen slope over the {data.step}s",
            "confidence": "Mann-Kendall test, two-sided",
            "expected": " or ".join(METHODS[method].format(window=in_words(chosen.window)) for method in methods),
            "anomalies": f"robust z-score by the median absolute deviation, at least {threshold:g}",
        },
    )


def _lines(context: ToolContext, data: Statistics, window: Window) -> list[_SeriesLine]:
    rows = typed(context, data)
    group = data.roles.groups[0] if data.roles.groups else None
    assert data.step is not None
    observed = observe(rows, data.roles, data.step, group, data.aggregate)
    lines = []
    shares = data.breakdowns.get(group or "", [])
    wanted = [share.name for share in shares] or list(observed.groups)
    for name, values in [(TOTAL, observed.total), *((name, observed.groups[name]) for name in wanted)]:
        context.check_cancelled()
        at = [place for place, value in enumerate(values) if value is not None]
        if len(at) >= 2:
            periods, known = [observed.periods[place] for place in at], [v for v in values if v is not None]
            lines.append(_SeriesLine(name, at, periods, known, baseline_of(periods, known, window)))
    return lines


def typed(context: ToolContext, data: Statistics) -> list[Row]:
    """Read the rows behind *data*, with cells turned into numbers and dates."""
    rows = read_rows(context, Table(table=data.table, rows=data.rows, columns=data.columns))
    needed = [n for n in (data.roles.value, data.roles.date, data.roles.year, data.roles.month) if n is not None]
    if data.cleaning is not None:
        return rows
    readers = {name: reader_of(name, (row.get(name) for row in rows)) for name in needed}
    return [row | {name: reader.read(row[name]) for name, reader in readers.items()} for row in rows]


def _trend(line: _SeriesLine, data: Statistics) -> Trend:
    """Return the trend of a series: the change from month to month in the value of a month."""
    days = _DAYS if data.step == "day" else 1.0
    size = days if data.aggregate == "sum" else 1.0
    steady = [value / factor for value, factor in zip(line.values, line.baseline.season, strict=True)]
    sure = trend_confidence(steady)
    change = slope(steady, line.at) * days * size
    usual = abs(median(steady)) * size
    direction: Literal["rising", "falling"] = "rising" if change > 0 else "falling"
    return Trend(
        series=line.name,
        direction=direction if sure >= _SURE and change else "flat",
        slope=tidy(change),
        percent=tidy(100 * change / usual) if usual else None,
        confidence=tidy(sure),
        observations=len(steady),
    )


def _anomalies(line: _SeriesLine, threshold: float) -> Iterator[Anomaly]:
    """Group neighbouring observations that stand out to the same side, with at most one ordinary one between them."""
    if len(line.values) < _LEAST:
        return
    group: list[int] = []
    for at, score in enumerate(line.baseline.scores):
        if abs(score) < threshold:
            continue
        if group and (line.at[at] - line.at[group[-1]] > 2 or (score > 0) != (line.baseline.scores[group[-1]] > 0)):
            yield _anomaly(line, group)
            group = []
        group.append(at)
    if group:
        yield _anomaly(line, group)


def _anomaly(line: _SeriesLine, group: Sequence[int]) -> Anomaly:
    stretch = slice(group[0], group[-1] + 1)
    top = max((line.baseline.scores[at] for at in group), key=abs)
    return Anomaly(
        series=line.name,
        direction="peak" if top > 0 else "dip",
        start=line.periods[group[0]],
        end=line.periods[group[-1]],
        observations=len(group),
        actual=tidy(math.fsum(line.values[stretch])),
        expected=tidy(math.fsum(line.baseline.expected[stretch])),
        score=tidy(round(top, 2)),
        confidence=tidy(chance_of(top, len(line.values))),
    )


def _is_explained(anomaly: Anomaly, others: Sequence[Anomaly]) -> bool:
    """Whether an anomaly of the total is only an anomaly of one of its groups."""
    return anomaly.series == TOTAL and any(
        other.series != TOTAL
        and other.direction == anomaly.direction
        and other.start <= anomaly.end
        and other.end >= anomaly.start
        for other in others
    )
