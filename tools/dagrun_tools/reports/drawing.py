"""Charts drawn with matplotlib, as PNG and SVG.

It uses matplotlib's `Figure` and never pyplot, which keeps state for the whole process. One lock guards all of it.
"""

from __future__ import annotations

import datetime
import io
import math
import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from dagrun import ToolError
from dagrun.errors import MissingExtra
from dagrun_tools.reports.chart_axes import COLOURS, MARKERS, clean, label_dates, label_values
from dagrun_tools.reports.pie import Slices, draw_pie
from dagrun_tools.reports.scatter import Points, draw_points

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class NoChartLibrary(ToolError, MissingExtra):
    """matplotlib is not installed; nothing was drawn or written."""


_DASHES: Final = ("-", "--", "-.", ":")
_PEAK, _DIP, _GREY = "#B30000", "#5B2A86", "#555555"
_STYLE: Final[dict[Any, Any]] = {
    "font.family": ["DejaVu Sans"],  # it comes with matplotlib, so the picture is the same on every machine
    "font.size": 11,
    "text.parse_math": False,  # a "$" is a dollar sign, and not the start of a formula
    "svg.hashsalt": "dagrun",  # without it, every drawing has other ids
    "svg.fonttype": "path",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.labelcolor": "#222222",
    "axes.unicode_minus": True,
    "xtick.color": "#333333",
    "ytick.color": "#333333",
    "legend.frameon": False,
}
_DPI: Final = 150
_DENSE: Final = 120  # points of a line; on a line with more, a label would hide other points
_MANY: Final = 20  # points of a line; a line with more has no markers
# The settings of matplotlib belong to the process, and its caches are not safe in threads.
_LOCK: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class LineMark:
    """A stretch of a line that stands out.

    Attributes:
        start: Its first date.
        end: Its last date.
        is_peak: Whether it lies above the expected values.
        label: The text beside it; empty for none.
    """

    start: datetime.date
    end: datetime.date
    is_peak: bool
    label: str = ""


@dataclass(frozen=True, slots=True)
class PanelLine:
    """One line of a panel; a value of `None` breaks it."""

    name: str
    dates: Sequence[datetime.date]
    values: Sequence[float | None]
    marks: Sequence[LineMark] = ()


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes with lines.

    Attributes:
        label: The label of the vertical axis, with the unit.
        unit: The unit of the values.
        lines: The lines that share the axis.
    """

    label: str
    unit: str
    lines: list[PanelLine] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars: horizontal with the longest first, or upright in order of time.

    Attributes:
        label: The label of the axis of values, with the unit.
        unit: The unit of the values.
        names: One for each bar.
        values: One for each bar.
        notes: Text at the end of each bar.
        are_upright: Whether the bars are upright.
    """

    label: str
    unit: str
    names: Sequence[str]
    values: Sequence[float]
    notes: Sequence[str]
    are_upright: bool = False


Content: TypeAlias = Sequence[Panel] | Bars | Slices | Points


def draw(title: str, content: Content, footer: str = "") -> tuple[bytes, bytes]:
    """Draw a chart, and return it as PNG and as SVG; equal arguments give equal bytes.

    Args:
        title: The line above the chart.
        content: Panels, one below the other, bars, a pie or points.
        footer: The line below the chart, in small print.

    Raises:
        NoChartLibrary: matplotlib is not installed.
        ToolError: There is nothing to draw.
    """
    _require()
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    if not content or (isinstance(content, Bars) and not content.names):
        raise ToolError("there is nothing to draw")
    with _LOCK, mpl.rc_context(_STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a letter that the font lacks becomes a box
        height = _height(content)
        figure = Figure(figsize=(10, height), facecolor="white")
        match content:
            case Bars():
                _draw_bars(figure, content)
            case Slices():
                draw_pie(figure, content)
            case Points():
                draw_points(figure, content)
            case _:
                _draw_panels(figure, content)
        figure.suptitle(clean(title, 90), fontsize=15, fontweight="bold", x=0.012, ha="left")
        if footer:
            figure.supxlabel(clean(footer, 160), fontsize=8.5, color=_GREY, x=0.012, ha="left")
        # The layout is computed once. As an engine of the figure it would run four times: twice for each format.
        ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.12).execute(figure)
        return _as_bytes(figure, "png"), _as_bytes(figure, "svg")


def prepare() -> None:
    """Load matplotlib and find its fonts, so that the first drawing of the process need not wait for that.

    Raises:
        NoChartLibrary: matplotlib is not installed.
    """
    _require()
    with _LOCK:
        from matplotlib.backends import backend_agg, backend_svg  # noqa: F401
        from matplotlib.font_manager import fontManager  # noqa: F401


def _require() -> None:
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise NoChartLibrary('charts need matplotlib: pip install "dagrun-engine[tools]"') from error


def _height(content: Content) -> float:
    if isinstance(content, Slices | Points):
        return 5.4
    if isinstance(content, Bars):
        return 5.4 if content.are_upright else 1.6 + 0.36 * len(content.names)
    return 5.4 if len(content) == 1 else 1.2 + 3.0 * len(content)


def _as_bytes(figure: Figure, form: str) -> bytes:
    target = io.BytesIO()
    if form == "png":
        figure.savefig(target, format=form, dpi=_DPI, metadata={"Software": None}, pil_kwargs={"compress_level": 4})
    else:
        figure.savefig(target, format=form, metadata={"Date": None, "Creator": None})
    return target.getvalue()


def _draw_panels(figure: Figure, panels: Sequence[Panel]) -> None:
    rows = figure.subplots(len(panels), 1, sharex=True, squeeze=False)
    for first, (axes, panel) in enumerate(zip(rows[:, 0], panels, strict=True)):
        for number, line in enumerate(panel.lines, first):
            _draw_line(axes, line, number)
        label_values(axes.yaxis, panel.unit)
        axes.set_ylabel(clean(panel.label, 60))
        axes.grid(axis="y", color="#DDDDDD", linewidth=0.8)
        axes.set_axisbelow(True)
        values = [value for line in panel.lines for value in line.values if value is not None]
        # The axis starts at zero, because readers judge changes by height; unless all lines would then lie at the top.
        if values and 0 <= min(values) < 0.7 * max(values):
            axes.set_ylim(0, max(values) * 1.12)
        _draw_legend(axes, panel)
    dates = [date for panel in panels for line in panel.lines for date in line.dates]
    label_dates(rows[-1, 0], min(dates), max(dates))


def _draw_legend(axes: Axes, panel: Panel) -> None:
    kinds = {mark.is_peak for line in panel.lines for mark in line.marks}
    for is_peak in sorted(kinds, reverse=True):
        axes.plot([], [], **_ring(is_peak), label="unusually high" if is_peak else "unusually low")
    entries = len(panel.lines) + len(kinds)
    if entries > 1:
        letters = sum(len(clean(line.name)) + 6 for line in panel.lines) + 18 * len(kinds)
        columns = math.ceil(entries / math.ceil(letters / 88))  # entries in one row
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=columns, borderaxespad=0.2)


def _ring(is_peak: bool) -> dict[str, Any]:
    colour = _PEAK if is_peak else _DIP
    ring = {"linestyle": "", "marker": "o", "markersize": 8, "markerfacecolor": "none", "markeredgewidth": 1.6}
    return ring | {"markeredgecolor": colour}


def _draw_line(axes: Axes, line: PanelLine, number: int) -> None:
    colour = COLOURS[number % len(COLOURS)]
    has_markers = len(line.values) <= _MANY
    axes.plot(
        list(line.dates),  # type: ignore[arg-type]  # dates are fine for matplotlib
        [float("nan") if value is None else value for value in line.values],
        label=clean(line.name),
        color=colour,
        linestyle="-" if has_markers else _DASHES[(number // len(COLOURS)) % len(_DASHES)],
        linewidth=2.2 if has_markers else 1.6,
        marker=MARKERS[number % len(MARKERS)] if has_markers else "",
        markersize=6,
    )
    for mark in line.marks:
        _draw_mark(axes, line, mark)


def _draw_mark(axes: Axes, line: PanelLine, mark: LineMark) -> None:
    inside = [
        (date, value)
        for date, value in zip(line.dates, line.values, strict=True)
        if value is not None and mark.start <= date <= mark.end
    ]
    if not inside:
        return
    colour = _PEAK if mark.is_peak else _DIP
    dates, values = [date for date, _ in inside], [value for _, value in inside]
    axes.plot(dates, values, **_ring(mark.is_peak))  # type: ignore[arg-type]
    if mark.label and len(line.values) <= _DENSE:
        at = max(range(len(values)), key=lambda i: values[i] if mark.is_peak else -values[i])
        is_late = dates[at] > line.dates[len(line.dates) * 2 // 3]
        axes.annotate(
            clean(mark.label, 60),
            (dates[at], values[at]),
            xytext=(-12 if is_late else 12, 12 if mark.is_peak else -2),
            textcoords="offset points",
            ha="right" if is_late else "left",
            va="center",
            fontsize=9.5,
            color=colour,
            bbox={"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "none", "alpha": 0.8},
        )


def _draw_bars(figure: Figure, bars: Bars) -> None:
    axes = figure.subplots()
    places = list(range(len(bars.names)))
    names = [clean(name, 28) for name in bars.names]
    if bars.are_upright:
        drawn = axes.bar(places, bars.values, color=COLOURS[0], width=0.72)
        axes.set_xticks(places, names, rotation=0 if sum(map(len, names)) <= 90 else 60)
        label_values(axes.yaxis, bars.unit)
        axes.set_ylabel(clean(bars.label, 60))
        axes.margins(y=0.12)
    else:
        drawn = axes.barh(places, bars.values, color=COLOURS[0], height=0.72)
        axes.set_yticks(places, names)
        axes.invert_yaxis()
        label_values(axes.xaxis, bars.unit)
        axes.set_xlabel(clean(bars.label, 60))
        axes.margins(x=0.22, y=0.01)
    if not bars.are_upright or len(names) <= 12:
        axes.bar_label(drawn, labels=[clean(note) for note in bars.notes], padding=4, fontsize=9.5, color="#333333")
    axes.grid(axis="y" if bars.are_upright else "x", color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
