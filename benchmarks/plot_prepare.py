"""The plot of the benchmark of prepared plans."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from plots import save

COLOURS: Final = {
    "check": "#56b4e9",
    "text": "#0072b2",
    "new text": "#d55e00",
    "same text": "#e69f00",
    "checked": "#009e73",
}


def draw_prepare(results: dict[str, Any], target: Path) -> None:
    """Draw the results as *target* with the endings ``.png`` and ``.svg``."""
    rows, peers = results["prepare"], results["peers"]
    cases = list(dict.fromkeys(row["case"] for row in rows))
    figure = Figure(figsize=(4.2 * (len(cases) + bool(peers)), 3.6), layout="constrained")
    axes = figure.subplots(1, len(cases) + bool(peers), squeeze=False)[0]
    for one, case in zip(axes, cases, strict=False):
        _draw_ways(one, [row for row in rows if row["case"] == case])
        one.set_title(f"each step {'names' if case == 'named' else 'refers to'} up to three others", fontsize=9)
    if peers:
        _draw_peers(axes[-1], peers)
    axes[0].set_ylabel("CPU time over the same steps as bare tasks (x)", fontsize=8)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8, frameon=False)
    save(figure, "checks a plan once and runs it many times", results, target)


def _draw_ways(axes: Axes, rows: list[dict[str, Any]]) -> None:
    sizes = list(dict.fromkeys(row["steps"] for row in rows))
    for place, (way, colour) in enumerate(COLOURS.items()):
        mine = [row["ratio"] for row in rows if row["way"] == way]
        bars = axes.bar([at + 0.17 * (place - 2) for at in range(len(sizes))], mine, 0.16, color=colour, label=way)
        axes.bar_label(bars, fmt="%.1f", fontsize=6)
    _finish(axes, sizes)


def _draw_peers(axes: Axes, rows: list[dict[str, Any]]) -> None:
    sizes = list(dict.fromkeys(row["steps"] for row in rows))
    names = list(dict.fromkeys(row["peer"] for row in rows))
    width = 0.8 / len(names)
    for place, name in enumerate(names):
        places = [at + width * (place - (len(names) - 1) / 2) for at in range(len(sizes))]
        mine = {row["steps"]: row for row in rows if row["peer"] == name}
        for field, colour in (("new", "#d55e00"), ("again", "#009e73")):
            bars = axes.bar(
                places, [mine[size][field] if size in mine else 0 for size in sizes], width * 0.9, color=colour
            )
            if field == "new":
                axes.bar_label(bars, [name] * len(sizes), fontsize=7, rotation=90, padding=2)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("")
    axes.set_ylim(0.7, 12 * max(row["new"] for row in rows))  # room for the names
    axes.set_title("peers: built anew (red), run again (green)", fontsize=9)
    _finish(axes, sizes)


def _finish(axes: Axes, sizes: list[int]) -> None:
    axes.axhline(1, color="black", linestyle="dashed", linewidth=0.8)
    axes.set_xticks(range(len(sizes)), [f"{size:,} steps" for size in sizes], fontsize=8)
    axes.tick_params(axis="y", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
