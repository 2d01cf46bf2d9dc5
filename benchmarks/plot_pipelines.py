"""The plots of the benchmarks of pipelines and of providers' limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from plots import save

COLOURS: Final = {
    "dagrun": "#009e73",
    "dagrun, told": "#56b4e9",
    "asyncio, by element": "#0072b2",
    "asyncio, told": "#0072b2",
    "asyncio, in waves": "#999999",
    "asyncio, back-off": "#e69f00",
    "asyncio, two tries": "#999999",
    "dagrun, a stream": "#009e73",
    "dagrun, the list": "#56b4e9",
    "asyncio, in order": "#0072b2",
    "Hamilton": "#cc79a7",
    "LangGraph": "#d55e00",
    "LangGraph, back-off": "#d55e00",
    "LangGraph, told": "#f0a070",
    "Hamilton, told": "#cc79a7",
}
REDUCES: Final = ("dagrun, a stream", "dagrun, the list", "asyncio, in order")
WIDTHS: Final = {"dagrun": 7.0, "dagrun, told": 4.0}  # so that equal lines are seen


def draw_pipelines(results: dict[str, Any], target: Path) -> None:
    """Draw the results of pipelines as *target* with the endings ``.png`` and ``.svg``."""
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    maps, reduces = figure.subplots(1, 2, sharey=True, width_ratios=(5, 3))
    rows = results["pipelines"]
    _draw_ratios(maps, [row for row in rows if row["way"] not in REDUCES], "two maps")
    _draw_ratios(reduces, [row for row in rows if row["way"] in REDUCES], "two maps, and a reduce with work on each")
    maps.set_ylabel("makespan over the longest chain of one element", fontsize=8)
    figure.legend(loc="outside lower center", ncols=8, fontsize=7, frameon=False)
    save(figure, "goes through two maps and a reduce element by element", results, target)


def _draw_ratios(axes: Axes, rows: list[dict[str, Any]], title: str) -> None:
    sizes, ways = (list(dict.fromkeys(row[field] for row in rows)) for field in ("elements", "way"))
    for place, way in enumerate(ways):
        mine = {row["elements"]: row["ratio"] for row in rows if row["way"] == way}
        at = [size + 0.16 * (place - (len(ways) - 1) / 2) for size in range(len(sizes))]
        bars = axes.bar(at, [mine.get(size, 0) for size in sizes], 0.15, color=COLOURS[way], label=way)
        axes.bar_label(bars, fmt="%.2f", fontsize=7)
    axes.axhline(1, color="black", linestyle="dashed", linewidth=0.8)
    axes.set_xticks(range(len(sizes)), [f"{size} elements" for size in sizes], fontsize=9)
    axes.set_title(title, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)


def draw_limits(results: dict[str, Any], target: Path) -> None:
    """Draw the results of limits as *target* with the endings ``.png`` and ``.svg``."""
    rows, calls = results["limits"], results["calls"]
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    times, done = figure.subplots(1, 2)
    limits = list(dict.fromkeys(row["limit"] for row in rows))
    for way in dict.fromkeys(row["way"] for row in rows):
        mine = [row for row in rows if row["way"] == way]
        whole = [row["ratio"] if row["done"] == calls else None for row in mine]  # what failed took no time
        times.plot(limits, whole, color=COLOURS[way], linewidth=WIDTHS.get(way, 1.6), label=way)
        done.plot(limits, [row["done"] for row in mine], color=COLOURS[way], linewidth=WIDTHS.get(way, 1.6))
    for axes, text in ((times, "makespan over the ideal, if all succeed"), (done, f"calls that succeed, of {calls}")):
        axes.set_xscale("log", base=2)
        axes.set_xticks(limits, [str(limit) for limit in limits])
        axes.set_xlabel("calls that the provider takes at once", fontsize=8)
        axes.set_ylabel(text, fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    save(figure, "finds out how many calls a provider takes", results, target)
