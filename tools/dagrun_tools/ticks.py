"""What stands at the axes of a chart."""

from __future__ import annotations

import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dagrun_tools.numerals import MINUS, amount

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def label_dates(axes: Axes, first: datetime.date, last: datetime.date) -> None:
    """Label the axis of time with months or years, as many as are legible."""
    dates: Any = import_module("matplotlib.dates")  # its classes have no types
    months = (last.year - first.year) * 12 + last.month - first.month + 1
    if months <= 15:
        axes.xaxis.set_major_locator(dates.MonthLocator())
        axes.xaxis.set_major_formatter(dates.DateFormatter("%b %Y"))
    elif months <= 48:
        axes.xaxis.set_major_locator(dates.MonthLocator(bymonth=(1, 4, 7, 10)))
        axes.xaxis.set_major_formatter(dates.DateFormatter("%b\n%Y"))
    else:
        axes.xaxis.set_major_locator(dates.YearLocator(max(1, months // 240 + 1) * (2 if months > 144 else 1)))
        axes.xaxis.set_major_formatter(dates.DateFormatter("%Y"))


def label_values(axis: Any, unit: str) -> None:
    """Label an axis of values: thousands with separators, millions in words, money with its sign."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=7, min_n_ticks=4))
    sign = unit if unit in ("$", "US$", "€", "£", "¥") else ""
    axis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value, sign)))


def _tick(value: float, sign: str) -> str:
    if abs(value) >= 1e7:
        return amount(value, sign, compact=True)
    return f"{MINUS if value < 0 else ''}{sign}{abs(value):,.10g}"
