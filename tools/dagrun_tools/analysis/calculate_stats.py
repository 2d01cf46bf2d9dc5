"""`calculate_stats`: totals by month, by year and by group, with growth."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Final

from pydantic import Field

from dagrun import ToolContext, ToolError, tool
from dagrun_tools.analysis.column_roles import find_roles
from dagrun_tools.analysis.robust_statistics import slope
from dagrun_tools.analysis.time_series import (
    Aggregate,
    Observations,
    combine,
    growth,
    observe,
    period_of,
    step_of,
    value_of,
)
from dagrun_tools.facts import Period, Roles, Share, Statistics, Summary, Table, TimeStep
from dagrun_tools.numerals import tidy
from dagrun_tools.tables.rows import Row, typed_rows

BREAKDOWN: Final = "_breakdown"
MAX_SHARES: Final = 100
_YEARS_FROM: Final = 25  # months; with fewer, months alone are enough

_FIGURES: Final = ("sum", "mean", "median", "trends")
_OVER_TIME: Final = frozenset(("monthly_totals", "growth_rate", "trends"))
_NAMES: Final = "monthly_totals|growth_rate|summary|sum|mean|median|trends"

Metric = Annotated[str, Field(pattern=rf"^({_NAMES}|[^\x00-\x1f]{{1,200}}{BREAKDOWN})$")]


@tool(effect="pure", timeout=120)
def calculate_stats(
    context: ToolContext,
    data: Table,
    *,
    metrics: list[Metric] | None = None,
    value: str | None = None,
    date: str | None = None,
    group_by: Annotated[list[str] | None, Field(alias="groupBy")] = None,
    unit: Annotated[str | None, Field(max_length=40)] = None,
    aggregate: Aggregate = "sum",
) -> Statistics:
    """Add up a column by month and by group, with growth from month to month.

    Args:
        context: Of the call.
        data: A table, cleaned or not.
        metrics: Of ``sum``, ``mean``, ``median``, ``trends``, ``monthly_totals``, ``growth_rate``, ``summary`` and
            ``<column>_breakdown``; all if left out.
        value: The column to add up; found by its type and name (revenue, sales, …) if left out.
        date: The column of dates; found if left out, and so are a year and a month in two columns.
        group_by: The columns to break down by; found if left out.
        unit: Of the value: a currency sign or a noun; found if the cells show a currency sign.
        aggregate: Whether months are sums or means of their rows.

    Returns:
        The statistics; the parts that *metrics* leaves out are empty.
    """
    wanted = set(metrics or ())
    breakdowns = [name.removesuffix(BREAKDOWN) for name in metrics or () if name.endswith(BREAKDOWN)]
    rows, readers = typed_rows(context, data)
    named = list(dict.fromkeys([*(group_by or ()), *breakdowns]))
    roles = find_roles(data.columns, rows, readers, date, value, named)
    values = [v for row in rows if (v := value_of(row, roles)) is not None]
    if not values:
        raise ToolError(f"there is no number in the column {roles.value}")
    step = step_of(rows, roles)
    if step is None and wanted & _OVER_TIME:
        raise ToolError(f"there is no column of dates in {', '.join(data.columns)}, so there are no months")
    by_month = (
        observe(rows, roles, "month", next(iter(roles.groups), None), aggregate) if step else Observations([], [], {})
    )
    months = _months(rows, roles, by_month, with_growth=not wanted or bool(wanted & {"growth_rate", "trends"}))
    return Statistics(
        table=data.table,
        source=data.source,
        roles=roles,
        types={name: reader.type for name, reader in readers.items()},
        columns=data.columns,
        unit=readers[roles.value].unit if unit is None else unit,
        aggregate=aggregate,
        step=step,
        rows=len(values),
        total=combine(values, aggregate),
        months=months if not wanted or wanted & _OVER_TIME else [],
        years=_years(months, aggregate) if len(months) >= _YEARS_FROM else [],
        breakdowns={name: _shares(rows, roles, step, name, aggregate) for name in (named if wanted else roles.groups)},
        summary=_summary(values) if not wanted or wanted & {"summary", "mean", "median"} else None,
        figures=_figures(values, months, wanted),
        cleaning=data.cleaning,
        notes=[*data.notes, *_coverage(rows, roles)],
    )


def _months(rows: Sequence[Row], roles: Roles, observed: Observations, *, with_growth: bool) -> list[Period]:
    counts = Counter(period_of(row, roles, 7) for row in rows if value_of(row, roles) is not None)
    changes = growth(observed.total) if with_growth else [None] * len(observed.periods)
    return [
        Period(period=period, total=total, rows=counts[period], growth=change)
        for period, total, change in zip(observed.periods, observed.total, changes, strict=True)
        if total is not None
    ]


def _years(months: Sequence[Period], aggregate: Aggregate) -> list[Period]:
    """Add months up to years. A year of fewer than twelve months has no growth, and nor has the year after it."""
    by_year: dict[str, list[Period]] = {}
    for month in months:
        by_year.setdefault(month.period[:4], []).append(month)
    totals = {year: combine([m.total for m in parts], aggregate) for year, parts in by_year.items()}
    changes = growth([totals[year] if len(parts) == 12 else None for year, parts in by_year.items()])
    return [
        Period(period=year, total=totals[year], rows=sum(m.rows for m in parts), growth=change, months=len(parts))
        for (year, parts), change in zip(by_year.items(), changes, strict=True)
    ]


def _shares(rows: Sequence[Row], roles: Roles, step: TimeStep | None, group: str, aggregate: Aggregate) -> list[Share]:
    by_name: dict[str, list[float]] = {}
    for row in rows:
        if (value := value_of(row, roles)) is not None:
            by_name.setdefault(str(row[group]), []).append(value)
    observed = observe(rows, roles, "month", group, aggregate) if step else Observations([], [], {})
    totals = {name: combine(values, aggregate) for name, values in by_name.items()}
    whole = sum(totals.values())
    order = sorted(totals, key=lambda name: (-totals[name], name))
    return [
        Share(
            name=name,
            total=totals[name],
            rows=len(by_name[name]),
            percent=tidy(100 * totals[name] / whole) if whole else 0.0,
            months=[v for v, t in zip(observed.groups.get(name, ()), observed.total, strict=False) if t is not None],
        )
        for name in order[:MAX_SHARES]
    ]


def _summary(values: Sequence[float]) -> Summary:
    return Summary(
        count=len(values),
        mean=tidy(statistics.fmean(values)),
        median=tidy(statistics.median(values)),
        minimum=min(values),
        maximum=max(values),
        deviation=tidy(statistics.stdev(values)) if len(values) > 1 else 0.0,
    )


def _figures(values: Sequence[float], months: Sequence[Period], wanted: set[str]) -> dict[str, float]:
    """Return the figures that are asked for by name; all that there are if none is named."""
    named = wanted & set(_FIGURES) or (set() if wanted else set(_FIGURES))
    figures: dict[str, float] = {}
    if "sum" in named:
        figures["sum"] = combine(values, "sum")
    if "mean" in named:
        figures["mean"] = tidy(statistics.fmean(values))
    if "median" in named:
        figures["median"] = tidy(statistics.median(values))
    if "trends" in named and len(months) > 1:
        figures["trends"] = tidy(slope([month.total for month in months]))
    return figures


def _coverage(rows: Sequence[Row], roles: Roles) -> list[str]:
    """Note rows without a value, and months that cover different numbers of groups.

    Growth may then come from better reporting alone.
    """
    empty = sum(value_of(row, roles) is None for row in rows)
    notes = [f"{empty:,} rows have no {roles.value} and were not counted."] if empty else []
    if not roles.has_time or not roles.groups:
        return notes
    group = roles.groups[0]
    present: dict[str | None, set[str]] = {}
    for row in rows:
        if value_of(row, roles) is not None:
            present.setdefault(period_of(row, roles, 7), set()).add(str(row[group]))
    sizes = [len(names) for names in present.values()]
    if len(sizes) > 1 and min(sizes) < max(sizes):
        notes.append(
            f"Not every {group} is there in every month: from {min(sizes)} to {max(sizes)} of them are, so part of a "
            "change from month to month may be that."
        )
    return notes
