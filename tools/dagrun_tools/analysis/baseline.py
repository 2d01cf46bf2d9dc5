"""The expected value of each day or month: the level around it, and the season if there is one."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, Literal

from dagrun_tools.analysis.robust_statistics import running_median, scores, slope

Window = Literal["weekly", "monthly", "quarterly", "yearly"]

_LEAST: Final = 5  # observations of a window; the median of fewer says little
_SEASONAL: Final = 36  # months that show a season: three of each calendar month
_YEAR: Final = 13  # months: one in the middle, and six on each side

METHODS: Final = {
    "window": "median of the {window} window",
    "seasonal": "running median of 13 months times the median ratio of the calendar month",
    "line": "Theil-Sen line",
}


@dataclass(frozen=True, slots=True)
class Baseline:
    """The expected values of a series.

    Attributes:
        method: A key of `METHODS`.
        expected: The expected value of each observation.
        season: The factor of each observation's calendar month; all 1 without a season.
        scores: Robust z-scores of the observations against *expected*.
    """

    method: str
    expected: list[float]
    season: list[float]
    scores: list[float]


def baseline_of(periods: Sequence[str], values: Sequence[float], window: Window) -> Baseline:
    """Find the expected value of each of *values*.

    Args:
        periods: Days or months in ISO form, in order.
        values: One value for each period.
        window: How long one level is assumed to hold.
    """
    if len(periods[0]) == 7 and len(periods) >= _SEASONAL:
        return _seasonal(periods, values)
    windows = [window_of(period, window) for period in periods]
    if len(values) / len(set(windows)) >= _LEAST:
        expected = _window_medians(windows, values)
        method = "window"
    else:
        expected, method = _line(values), "line"
    apart = scores([value - e for value, e in zip(values, expected, strict=True)])
    return Baseline(method, expected, [1.0] * len(values), apart)


def window_of(period: str, window: Window) -> str:
    """Return the week, month, quarter or year of *period*."""
    if window == "yearly":
        return period[:4]
    if window == "quarterly":
        return f"{period[:4]}-Q{(int(period[5:7]) + 2) // 3}"
    if window == "weekly" and len(period) >= 10:
        year, week, _ = datetime.date.fromisoformat(period[:10]).isocalendar()
        return f"{year}-W{week:02d}"
    return period[:7]


def _window_medians(windows: Sequence[str], values: Sequence[float]) -> list[float]:
    by_window: dict[str, list[float]] = {}
    for name, value in zip(windows, values, strict=True):
        by_window.setdefault(name, []).append(value)
    medians = {name: median(members) for name, members in by_window.items()}
    overall = median(values)
    return [medians[name] if len(by_window[name]) >= _LEAST else overall for name in windows]


def _line(values: Sequence[float]) -> list[float]:
    if len(values) < 2:
        return list(values)
    rise = slope(values)
    start = median(value - rise * at for at, value in enumerate(values))
    return [start + rise * at for at in range(len(values))]


def _seasonal(periods: Sequence[str], values: Sequence[float]) -> Baseline:
    """Score ratios, not differences: a summer moves a city of a thousand sales by more than a town of ten."""
    level = [max(value, 1e-12) for value in running_median(values, _YEAR)]
    ratios = [value / around for value, around in zip(values, level, strict=True)]
    by_month: dict[str, list[float]] = {}
    for period, ratio in zip(periods, ratios, strict=True):
        by_month.setdefault(period[5:7], []).append(ratio)
    factors = {month: max(median(members), 1e-12) for month, members in by_month.items()}
    season = [factors[period[5:7]] for period in periods]
    expected = [around * factor for around, factor in zip(level, season, strict=True)]
    apart = scores([value / e - 1 for value, e in zip(values, expected, strict=True)])
    return Baseline("seasonal", expected, season, apart)
