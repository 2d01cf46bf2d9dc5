"""The figures in sentences: the main points of a report, and its recommendations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dagrun_tools.analysis.time_series import TOTAL
from dagrun_tools.facts import Anomaly, Cleaning, Period, Statistics, Trend, Trends
from dagrun_tools.numerals import amount, confidence, percent, period, span

_MANY = 12  # months that a sentence can list one by one


def summary(stats: Statistics, trends: Trends | None) -> list[str]:
    """Return the main points: the total, how it moved, the largest shares, and the largest anomalies."""
    points = [_whole(stats)]
    points += [text for text in (_cleaned(stats.cleaning), _movement(stats), _shares(stats)) if text]
    if trends is not None:
        points += [describe(anomaly, trends) for anomaly in weightiest(trends.anomalies)[:3]]
    return points


def word_of(stats: Statistics) -> str:
    """Return the name of the value, as a word that begins a sentence."""
    words = stats.roles.value.replace("_", " ")
    return words[:1].upper() + words[1:]


def _whole(stats: Statistics) -> str:
    when = f" from {period(stats.months[0].period)} to {period(stats.months[-1].period)}" if stats.months else ""
    kind = "in all" if stats.aggregate == "sum" else "on average"
    figure = amount(stats.total, stats.unit, compact=abs(stats.total) >= 1e9)
    return f"{word_of(stats)}{when}: {figure} {kind}, in {stats.rows:,} rows."


def weightiest(anomalies: Sequence[Anomaly]) -> list[Anomaly]:
    """Sort anomalies by the amount they moved: a village may stand out most and still matter least."""
    return sorted(anomalies, key=lambda anomaly: -abs(anomaly.actual - anomaly.expected))


def _cleaned(cleaning: Cleaning | None) -> str:
    if cleaning is None:
        return ""
    parts = []
    if cleaning.removed_nulls:
        parts.append(f"{cleaning.removed_nulls:,} with missing values")
    if cleaning.removed_duplicates:
        parts.append(f"{cleaning.removed_duplicates:,} repeats")
    gone = f": {' and '.join(parts)} were removed" if parts else ""
    fixed = sum(cleaning.fixed.values())
    read = f"; {fixed:,} cells were turned into numbers or dates" if fixed else ""
    return f"Cleaning kept {cleaning.rows_after:,} of {cleaning.rows_before:,} rows{gone}{read}."


def _movement(stats: Statistics) -> str:
    if stats.years:
        return _years(stats)
    known = [month for month in stats.months if month.growth is not None]
    if not known or len(known) > _MANY:
        return ""
    first = stats.months[0]
    if known[0].period == first.period:
        return ""
    steps = [f"to {amount(m.total, stats.unit)} in {period(m.period)} ({percent(m.growth)})" for m in known]
    return f"From {amount(first.total, stats.unit)} in {period(first.period)} it moved {', then '.join(steps)}."


def _years(stats: Statistics) -> str:
    full = [year for year in stats.years if year.months == 12]
    if len(full) < 2:
        return ""
    best, worst = max(full, key=lambda y: y.total), min(full, key=lambda y: y.total)
    grown = [year for year in full if year.growth is not None]
    text = (
        f"The best full year was {best.period} with {amount(best.total, stats.unit)}, the weakest {worst.period} with "
        f"{amount(worst.total, stats.unit)}"
    )
    if not grown:
        return f"{text}."
    drop, rise = min(grown, key=_growth), max(grown, key=_growth)
    changes = f"{percent(rise.growth)} in {rise.period} and {percent(drop.growth)} in {drop.period}"
    return f"{text}; the largest changes were {changes}."


def _growth(year: Period) -> float:
    return year.growth or 0.0


def _shares(stats: Statistics) -> str:
    for group, shares in stats.breakdowns.items():
        if len(shares) < 2:
            continue
        parts = [f"{s.name} {amount(s.total, stats.unit)} ({percent(s.percent, signed=False)})" for s in shares[:3]]
        more = f", and {len(shares) - 3} more" if len(shares) > 3 else ""
        return f"By {group.replace('_', ' ')}: {', '.join(parts)}{more}."
    return ""


def describe(anomaly: Anomaly, trends: Trends) -> str:
    """Return one anomaly as a sentence."""
    verb = "peaks" if anomaly.direction == "peak" else "dips"
    figures = f"{amount(anomaly.actual, trends.unit)} against {amount(anomaly.expected, trends.unit)} expected"
    who = "The total" if anomaly.series == TOTAL else anomaly.series
    return f"{who} {verb} {_when(anomaly)}: {figures}{_relative(anomaly)}."


def _when(anomaly: Anomaly) -> str:
    when = span(anomaly.start, anomaly.end)
    if anomaly.start != anomaly.end:
        return f"from {when}"
    return f"on {when}" if len(anomaly.start) == 10 else f"in {when}"


def _relative(anomaly: Anomaly) -> str:
    if not anomaly.expected:
        return ""
    return f" ({percent(100 * (anomaly.actual - anomaly.expected) / abs(anomaly.expected))})"


def recommendations(stats: Statistics | None, trends: Trends | None) -> list[str]:
    """Return the recommended next checks; each follows from a figure in the report."""
    points: list[str] = []
    if trends is not None:
        points += _about_anomalies(weightiest(trends.anomalies))
        points += _about_trends(trends)
    if stats is not None:
        points += _about_shares(stats)
        points += _about_quality(stats.cleaning)
    return points or ["Nothing in the figures calls for action."]


def _about_anomalies(anomalies: Sequence[Anomaly]) -> Iterator[str]:
    for anomaly in [a for a in anomalies if a.direction == "peak"][:2]:
        yield f"Find out what drove {_name(anomaly.series)} {_when(anomaly)}, and be ready if it may return."
    for anomaly in [a for a in anomalies if a.direction == "dip"][:2]:
        yield (
            f"Find out what happened to {_name(anomaly.series)} {_when(anomaly)}: an outage, missing stock, or records "
            "that never arrived."
        )


def _name(series: str) -> str:
    return "the total" if series == TOTAL else series


def _about_trends(trends: Trends) -> Iterator[str]:
    groups = [trend for trend in trends.trends if trend.series != TOTAL and trend.percent is not None]
    rising = max((t for t in groups if t.direction == "rising"), key=lambda t: t.slope, default=None)
    falling = min((t for t in groups if t.direction == "falling"), key=lambda t: t.slope, default=None)
    if rising is not None:
        yield (
            f"Back {rising.series}, which grows most: {_rate(rising, trends)} "
            f"(confidence {confidence(rising.confidence)})."
        )
    if falling is not None:
        yield (
            f"Review {falling.series}, which loses most: {_rate(falling, trends)} "
            f"(confidence {confidence(falling.confidence)})."
        )


def _rate(trend: Trend, trends: Trends) -> str:
    share = f"{abs(trend.percent or 0):.2g} %"
    return f"{signed(trend.slope, trends.unit)} a month, which is {share} of its usual month"


def signed(value: float, unit: str) -> str:
    """Write a value with its sign, also if the sign is a plus."""
    return f"{'+' if value > 0 else ''}{amount(value, unit)}"


def _about_shares(stats: Statistics) -> Iterator[str]:
    for group, shares in stats.breakdowns.items():
        if len(shares) > 1 and shares[0].percent >= 40:
            yield (
                f"Watch how much hangs on one {group.replace('_', ' ')}: {shares[0].name} makes "
                f"{percent(shares[0].percent, signed=False)} of the whole."
            )


def _about_quality(cleaning: Cleaning | None) -> Iterator[str]:
    if cleaning is None or not cleaning.rows_before:
        return
    lost = cleaning.rows_before - cleaning.rows_after
    if lost / cleaning.rows_before >= 0.02:
        yield (
            f"Mend the records at their source: {lost:,} of {cleaning.rows_before:,} rows "
            f"({percent(100 * lost / cleaning.rows_before, signed=False)}) were of no use."
        )
