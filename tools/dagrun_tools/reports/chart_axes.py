"""What all kinds of charts share: colours and markers, labels, and the labels of their axes."""

from __future__ import annotations

import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from dagrun_tools.numerals import MINUS, amount

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The colours of Okabe and Ito, which people with any colour vision can tell apart. Their yellow is left out: it is too
# pale for a line.
COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#404040")
MARKERS: Final = "osD^vPX"


def clean(text: str, limit: int = 40) -> str:
    """Return *text* as a label: one line of at most *limit* characters, without control characters."""
    shown = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return shown if len(shown) <= limit else f"{shown[: limit - 1].rstrip()}…"


def label_dates(axes: Axes, first: datetime.date, last: datetime.date) -> None:
    """Label the axis of time with as many months or years as are legible."""
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
    """Label an axis of values: thousands with separators, large numbers in words, money with its sign."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=7, min_n_ticks=4))
    sign = unit if unit in ("$", "US$", "€", "£", "¥") else ""
    axis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value, sign)))


def _tick(value: float, sign: str) -> str:
    if abs(value) >= 1e7:
        return amount(value, sign, compact=True)
    return f"{MINUS if value < 0 else ''}{sign}{abs(value):,.10g}"
