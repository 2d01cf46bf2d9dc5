"""The expected value of each day or month: the level around it, and the season if there is one."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Annotated, Final

from pydantic import Field

from dagrun_tools.analysis.robust_statistics import running_median, scores, slope

# "monthly", or a number of units: "3months", "14 days"
Window = Annotated[str, Field(pattern=r"^(weekly|monthly|quarterly|yearly|[1-9][0-9]{0,2} ?(day|week|month|year)s?)$")]
_NAMED: Final = {"weekly": (1, "week"), "monthly": (1, "month"), "quarterly": (3, "month"), "yearly": (1, "year")}

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
    """Return a name for the window in which *period* lies: equal for all days or months of one window.

    Windows of months begin in January of the first year, those of weeks on a Monday. Months are not cut: of a series of
    months, a window of days is a month.
    """
    count, unit = length_of(window)
    year, month = int(period[:4]), int(period[5:7])
    if unit == "year":
        return f"{year // count}y"
    if unit == "month" or len(period) < 10:
        return f"{(12 * year + month - 1) // (count if unit == 'month' else 1)}m"
    day = datetime.date.fromisoformat(period[:10]).toordinal() - 1  # the first day of the calendar is a Monday
    return f"{day // (7 * count if unit == 'week' else count)}d"


def length_of(window: Window) -> tuple[int, str]:
    """Return the number and the unit of a window: ``(3, "month")`` for ``3months``."""
    if window in _NAMED:
        return _NAMED[window]
    digits = window.rstrip(" adehkmnorstwy")
    return int(digits), window[len(digits) :].strip().removesuffix("s")


def in_words(window: Window) -> str:
    """Return a window as an adjective: ``monthly``, ``3-month``."""
    return window if window in _NAMED else "{}-{}".format(*length_of(window))


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
