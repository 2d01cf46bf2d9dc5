"""The plot of the benchmark of planning."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from matplotlib.figure import Figure

from plots import save

COLOURS: Final = {"plan, then run": "#56b4e9", "streamed": "#009e73", "route": "#0072b2"}


def draw_planning(results: dict[str, Any], target: Path) -> None:
    """Draw the results of planning as *target* with the endings ``.png`` and ``.svg``."""
    rows = results["planning"]
    names = list(dict.fromkeys(row["data_set"] for row in rows))
    figure = Figure(figsize=(7.5, 3.8), layout="constrained")
    axes = figure.subplots()
    for place, (way, colour) in enumerate(COLOURS.items()):
        ups = [row["speed_up"] for name in names for row in rows if (row["data_set"], row["way"]) == (name, way)]
        bars = axes.bar([at + 0.26 * (place - 1) for at in range(len(names))], ups, 0.25, color=colour, label=way)
        axes.bar_label(bars, fmt="%.2f", fontsize=8)
    published = [next(row["published"] for row in rows if row["data_set"] == name) for name in names]
    for at, value in enumerate(published):
        label = "published for LLMCompiler" if at == 0 else "_"  # the legend names it once
        axes.hlines(value, at - 0.42, at + 0.42, colors="black", linestyles="dashed", linewidth=1, label=label)
    axes.set_xticks(range(len(names)), names, fontsize=9)
    axes.set_ylabel("times as fast as a step-by-step loop", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    save(figure, "from the goal to the answer, planner and answer included", results, target)
