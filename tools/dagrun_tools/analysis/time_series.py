"""Rows as series: the value of each group in each day or month."""

from __future__ import annotations

import datetime
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from dagrun_tools.facts import Roles, TimeStep
from dagrun_tools.numerals import next_month, tidy
from dagrun_tools.tables.rows import Row

TOTAL = "total"
Aggregate = Literal["sum", "mean"]


@dataclass(frozen=True, slots=True)
class Observations:
    """Series on one axis of time that has no gaps.

    Attributes:
        periods: All days or months, in order.
        total: The value of each period; `None` where nothing was observed.
        groups: The values of each group, the largest group first.
    """

    periods: list[str]
    total: list[float | None]
    groups: dict[str, list[float | None]]


def period_of(row: Row, roles: Roles, length: int) -> str | None:
    """Return the month (*length* 7) or the day (*length* 10) of a row; `None` if it is missing."""
    if roles.date is not None:
        date = row[roles.date]
        return date[:length] if isinstance(date, str) else None
    if roles.year is None or roles.month is None:
        return None
    year, month = row[roles.year], row[roles.month]
    if not isinstance(year, int) or not isinstance(month, int) or not 1 <= month <= 12:
        return None
    return f"{year:04d}-{month:02d}"


def step_of(rows: Sequence[Row], roles: Roles) -> TimeStep | None:
    """Return whether the rows are about days or months; `None` without time.

    Dates stand for months if no month has two of them: the first or the last day of each, for example.
    """
    if not roles.has_time:
        return None
    if roles.date is None:
        return "month"
    dates = {date for row in rows if (date := period_of(row, roles, 10)) is not None}
    if all(len(date) == 7 for date in dates) or len({date[:7] for date in dates}) == len(dates) > 2:
        return "month"
    return "day"


def value_of(row: Row, roles: Roles) -> float | None:
    """Return the value of a row; `None` if it is missing."""
    value = row[roles.value]
    return value if isinstance(value, int | float) else None


def combine(values: Sequence[float], aggregate: Aggregate) -> float:
    """Return the sum or the mean of *values*, exact to the last digit that has a meaning."""
    total = math.fsum(values)
    return tidy(total if aggregate == "sum" else total / len(values))


def observe(rows: Sequence[Row], roles: Roles, step: TimeStep, group: str | None, aggregate: Aggregate) -> Observations:
    """Turn rows into series.

    Where rows are single events, of which a period may have several, a period without a row counts as zero. In a table
    with one row for each group and month, it is missing.

    Args:
        rows: The rows, with cells turned into numbers and dates.
        roles: The roles of the columns.
        step: Days or months.
        group: The column that makes a series of each of its values; `None` for none.
        aggregate: Whether the value of a period is the sum or the mean of its rows.
    """
    cells: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    total: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        period, value = period_of(row, roles, 10 if step == "day" else 7), value_of(row, roles)
        if period is None or value is None:
            continue
        total[period].append(value)
        if group is not None:
            cells[str(row[group])][period].append(value)
    periods = _axis(sorted(total), step)
    are_events = aggregate == "sum" and any(
        len(v) > 1 for by in (cells or {TOTAL: total}).values() for v in by.values()
    )
    gap = 0.0 if are_events else None

    def line(by_period: Mapping[str, list[float]]) -> list[float | None]:
        return [combine(by_period[p], aggregate) if p in by_period else gap for p in periods]

    order = sorted(cells, key=lambda name: -math.fsum(v for values in cells[name].values() for v in values))
    return Observations(periods, line(total), {name: line(cells[name]) for name in order})


def _axis(observed: Sequence[str], step: TimeStep) -> list[str]:
    """Return all periods from the first one observed to the last."""
    if not observed:
        return []
    if step == "day":
        first, last = datetime.date.fromisoformat(observed[0]), datetime.date.fromisoformat(observed[-1])
        return [(first + datetime.timedelta(days)).isoformat() for days in range((last - first).days + 1)]
    axis = [observed[0]]
    while axis[-1] < observed[-1]:
        axis.append(next_month(axis[-1]))
    return axis


def growth(values: Sequence[float | None]) -> list[float | None]:
    """Return the change in percent from each value to the next; `None` for the first, and after a gap or a zero."""
    changes: list[float | None] = [None] * bool(values)
    for before, after in pairwise(values):
        changes.append(None if not before or after is None else tidy(100 * (after - before) / abs(before)))
    return changes
