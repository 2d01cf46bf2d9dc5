"""Pies: the shares of a whole, for a few groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dagrun import ToolError
from dagrun_tools.facts import Period, Share, Statistics
from dagrun_tools.numerals import amount, percent, period
from dagrun_tools.reports.chart_axes import COLOURS, clean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_REST: Final = "#B0B0B0"
_LEAST: Final = 0.02  # of the whole: the text of a smaller slice would lie on that of its neighbour


@dataclass(frozen=True, slots=True)
class Slices:
    """The slices of a pie, the largest first, clockwise from the top.

    Attributes:
        unit: The unit of the values.
        names: One for each slice.
        values: One for each slice; none is negative.
        notes: Text for each slice, in the legend.
        has_rest: Whether the last slice is that of all other groups.
    """

    unit: str
    names: Sequence[str]
    values: Sequence[float]
    notes: Sequence[str]
    has_rest: bool = False


def slices_of(stats: Statistics | None, show: str, top: int) -> Slices:
    """Return a pie of the largest groups, or of the years or months if *show* is ``total`` or there are no groups.

    Raises:
        ToolError: There is nothing to divide, or a part is negative.
    """
    if stats is None:
        raise ToolError("a pie needs statistics; pass what calculate_stats gives")
    if stats.aggregate != "sum":
        raise ToolError("a pie shows the parts of a sum, and these are means; draw bars (chart_type bar)")
    shares: Sequence[Share | Period] = next(iter(stats.breakdowns.values()), [])
    if show == "total" or not shares:
        shares = stats.years or stats.months
    if not shares:
        raise ToolError("there are neither groups nor months to divide a pie by")
    pairs = sorted(((_name(share), share.total) for share in shares), key=lambda pair: -pair[1])
    if pairs[-1][1] < 0:
        raise ToolError(f"{pairs[-1][0]} is negative, which no slice of a pie can show; draw bars (chart_type bar)")
    whole = sum(value for _, value in pairs)
    if not whole:
        raise ToolError("everything is zero, so there is nothing to divide")
    shown, rest = pairs[:top], pairs[top:]
    if rest:
        shown.append((f"{len(rest)} others", sum(value for _, value in rest)))
    notes = [f"{amount(value, stats.unit)} ({percent(100 * value / whole, signed=False)})" for _, value in shown]
    return Slices(stats.unit, [name for name, _ in shown], [value for _, value in shown], notes, bool(rest))


def _name(share: Share | Period) -> str:
    return share.name if isinstance(share, Share) else period(share.period)


def draw_pie(figure: Figure, pie: Slices) -> None:
    """Draw a pie, with its figures in a legend beside it, where they cannot lie on each other."""
    axes = figure.subplots()
    whole = sum(pie.values)
    colours = [COLOURS[number % len(COLOURS)] for number in range(len(pie.names))]
    if pie.has_rest:
        colours[-1] = _REST
    wedges, *_ = axes.pie(
        pie.values,
        labels=[percent(100 * v / whole, signed=False) if v / whole >= _LEAST else "" for v in pie.values],
        labeldistance=1.1,
        startangle=90,
        counterclock=False,
        colors=colours,
        wedgeprops={"edgecolor": "white", "linewidth": 1.5},
        textprops={"fontsize": 10.5, "color": "#222222"},
    )
    for number, wedge in enumerate(wedges[len(COLOURS) : -1 if pie.has_rest else None]):
        wedge.set_hatch("/\\x."[number // len(COLOURS) % 4] * 2)  # the colours begin again
    lines = [f"{clean(name, 30)}: {note}" for name, note in zip(pie.names, pie.notes, strict=True)]
    axes.legend(wedges, lines, loc="center left", bbox_to_anchor=(1.04, 0.5), fontsize=11)
