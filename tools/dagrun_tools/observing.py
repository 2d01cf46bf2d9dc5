"""From rows to series: the value of each group in each day or month."""

from __future__ import annotations

import datetime
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from dagrun_tools.facts import Roles, Step
from dagrun_tools.numerals import next_month, tidy
from dagrun_tools.tables import Row

TOTAL = "total"
Aggregate = Literal["sum", "mean"]


@dataclass(frozen=True, slots=True)
class Observations:
    """Series on one axis of time without gaps.

    Attributes:
        periods: All days or months, in order.
        total: The value of each; `None` where nothing was observed.
        groups: The same by group, largest first.
    """

    periods: list[str]
    total: list[float | None]
    groups: dict[str, list[float | None]]


def period_of(row: Row, roles: Roles, length: int) -> str | None:
    """The month (*length* 7) or the day (10) of a row; `None` if that is missing."""
    if roles.date is not None:
        date = row[roles.date]
        return date[:length] if isinstance(date, str) else None
    if roles.year is None or roles.month is None:
        return None
    year, month = row[roles.year], row[roles.month]
    if not isinstance(year, int) or not isinstance(month, int) or not 1 <= month <= 12:
        return None
    return f"{year:04d}-{month:02d}"


def step_of(rows: Sequence[Row], roles: Roles) -> Step | None:
    """How fine the time in the rows is.

    Dates that all fall on the first, or on the last, of a month stand for months.
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
    """What a row adds; `None` if that is missing."""
    value = row[roles.value]
    return value if isinstance(value, int | float) else None


def combine(values: Sequence[float], aggregate: Aggregate) -> float:
    """The sum or the mean of *values*, exact to the last digit that means something."""
    total = math.fsum(values)
    return tidy(total if aggregate == "sum" else total / len(values))


def observe(rows: Sequence[Row], roles: Roles, step: Step, group: str | None, aggregate: Aggregate) -> Observations:
    """Turn rows into series.

    A day without a row counts as zero where rows are single events, of which there may be several in a day; in a
    table with one row for each group and month it is missing.

    Args:
        rows: With numbers and dates in place.
        roles: Which column plays which part.
        step: How fine.
        group: The column whose values make a series each; or none.
        aggregate: How the value of a period comes from its rows.
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

    def line(found: Mapping[str, list[float]]) -> list[float | None]:
        return [combine(found[p], aggregate) if p in found else gap for p in periods]

    order = sorted(cells, key=lambda name: -math.fsum(v for values in cells[name].values() for v in values))
    return Observations(periods, line(total), {name: line(cells[name]) for name in order})


def _axis(found: Sequence[str], step: Step) -> list[str]:
    """All periods from the first to the last one."""
    if not found:
        return []
    if step == "day":
        first, last = datetime.date.fromisoformat(found[0]), datetime.date.fromisoformat(found[-1])
        return [(first + datetime.timedelta(days)).isoformat() for days in range((last - first).days + 1)]
    axis = [found[0]]
    while axis[-1] < found[-1]:
        axis.append(next_month(axis[-1]))
    return axis


def growth(values: Sequence[float | None]) -> list[float | None]:
    """Percent of change from each value to the next; the first has none, nor has what follows a gap or a zero."""
    changes: list[float | None] = [None] * bool(values)
    for before, after in pairwise(values):
        changes.append(None if not before or after is None else tidy(100 * (after - before) / abs(before)))
    return changes
