"""Scatter charts: one column against another, a point for each row."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dagrun import ToolContext, ToolError
from dagrun_tools.facts import Statistics, Table
from dagrun_tools.numerals import as_date, labelled
from dagrun_tools.reports import chart_axes
from dagrun_tools.tables.columns import reader_of
from dagrun_tools.tables.rows import read_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_POINTS: Final = 5_000  # of a chart; of more rows, every second, third, … is drawn
_RASTER: Final = 1_000  # points; more of them would make an SVG of megabytes
_FEW: Final = 6  # groups that a reader can tell apart


@dataclass(frozen=True, slots=True)
class Points:
    """The points of a scatter chart.

    Attributes:
        x_label: The label of the horizontal axis.
        y_label: The label of the vertical axis.
        x_unit: The unit of the horizontal axis.
        y_unit: The unit of the vertical axis.
        groups: By name: the points, as pairs. A horizontal value is a number or a date.
        rows: How many rows there are with both values.
        every: Of these, every such row is drawn; 1 for all.
    """

    x_label: str
    y_label: str
    x_unit: str
    y_unit: str
    groups: dict[str, list[tuple[Any, float]]]
    rows: int
    every: int

    @property
    def is_time(self) -> bool:
        """Whether the horizontal axis is one of time."""
        first = next(iter(self.groups.values()))[0][0]
        return isinstance(first, datetime.date)


def points_of(context: ToolContext, stats: Statistics | None, x: str, y: str) -> Points:
    """Return the points of two columns of the table behind statistics.

    Args:
        context: Of the call.
        stats: What `calculate_stats` gives.
        x: The horizontal column; if empty, that of dates, or else the first other column of numbers.
        y: The vertical column; if empty, the one that was added up.

    Raises:
        ToolError: There are no such columns, or no row has a number in both.
    """
    if stats is None:
        raise ToolError("a scatter chart needs statistics; pass what calculate_stats gives")
    y = y or stats.roles.value
    numbers = [name for name, kind in stats.types.items() if kind == "number" and name != y]
    x = x or stats.roles.date or next(iter(numbers), "")
    for name in (x, y):
        if name not in stats.columns:
            known = ", ".join(stats.columns)
            raise ToolError(f"there is no column {name!r}; there is {known}" if name else f"name x: one of {known}")
    rows = list(read_rows(context, Table(table=stats.table, rows=stats.rows, columns=stats.columns)))
    readers = {name: reader_of(name, (row.get(name) for row in rows)) for name in (x, y)}
    group = next(iter(stats.breakdowns), None)
    names = [share.name for share in stats.breakdowns.get(group or "", ())]
    found: list[tuple[str, Any, float]] = []
    for row in rows:
        across, up = _place(readers[x].read(row.get(x))), readers[y].read(row.get(y))
        if across is not None and isinstance(up, int | float):
            found.append((str(row.get(group)) if group and len(names) <= _FEW else "", across, float(up)))
    if not found:
        raise ToolError(f"no row has a number or date in {x} and a number in {y}")
    kinds = {isinstance(across, datetime.date) for _, across, _ in found}
    if len(kinds) > 1:
        raise ToolError(f"the column {x} holds numbers and dates, which share no axis")
    every = -(-len(found) // MAX_POINTS)
    groups: dict[str, list[tuple[Any, float]]] = {name: [] for name in names if len(names) <= _FEW}
    for name, across, up in found[::every]:
        groups.setdefault(name, []).append((across, up))
    drawn = {name: points for name, points in groups.items() if points}
    return Points(
        x, y, readers[x].unit, stats.unit if y == stats.roles.value else readers[y].unit, drawn, len(found), every
    )


def _place(cell: object) -> float | datetime.date | None:
    if isinstance(cell, bool) or cell is None:
        return None
    if isinstance(cell, int | float):
        return float(cell)
    if isinstance(cell, datetime.date):
        return cell
    try:
        return as_date(str(cell))
    except ValueError:
        return None


def draw_points(figure: Figure, points: Points) -> None:
    """Draw a scatter chart: dense places are darker, and each group has a colour and a marker of its own."""
    axes = figure.subplots()
    count = sum(map(len, points.groups.values()))
    for number, (name, pairs) in enumerate(points.groups.items()):
        axes.scatter(
            [across for across, _ in pairs],
            [up for _, up in pairs],
            s=34 if count <= 200 else 14,
            alpha=0.85 if count <= 200 else 0.45,
            color=chart_axes.COLOURS[number % len(chart_axes.COLOURS)],
            marker=chart_axes.MARKERS[number % len(chart_axes.MARKERS)],
            linewidths=0,
            label=chart_axes.clean(name),
            rasterized=count > _RASTER,
        )
    if points.is_time:
        dates: Sequence[Any] = [across for pairs in points.groups.values() for across, _ in pairs]
        chart_axes.label_dates(axes, min(dates), max(dates))
    else:
        chart_axes.label_values(axes.xaxis, points.x_unit)
    chart_axes.label_values(axes.yaxis, points.y_unit)
    axes.set_xlabel(chart_axes.clean(labelled(points.x_label, points.x_unit), 60))
    axes.set_ylabel(chart_axes.clean(labelled(points.y_label, points.y_unit), 60))
    axes.grid(color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
    if len(points.groups) > 1:
        place: Any = {"loc": "lower left", "bbox_to_anchor": (0, 1.0), "ncols": min(4, len(points.groups))}
        legend = axes.legend(borderaxespad=0.2, markerscale=1.6, **place)
        for handle in legend.legend_handles:
            if handle is not None:
                handle.set_alpha(1)
