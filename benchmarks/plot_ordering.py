"""The plot of the ordering benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from plots import save

COLOURS: Final = {"first ready": "#999999", "hops": "#56b4e9", "learned": "#009e73", "estimates": "#d55e00"}
WIDTHS: Final = {"first ready": 6.0, "hops": 4.0, "learned": 2.4, "estimates": 1.0}  # so that equal lines are seen


def draw_ordering(results: dict[str, Any], target: Path) -> None:
    """Draw the results of the ordering benchmark as *target* with the endings ``.png`` and ``.svg``."""
    rows = results["ordering"]
    shapes = list(dict.fromkeys(row["shape"] for row in rows))
    mixes = list(dict.fromkeys(row["mix"] for row in rows))
    figure = Figure(figsize=(3.4 * len(shapes), 2.3 * len(mixes) + 0.8), layout="constrained")
    for line, mix in zip(figure.subplots(len(mixes), len(shapes), squeeze=False, sharey="row"), mixes, strict=True):
        for axes, shape in zip(line, shapes, strict=True):
            _draw(axes, [row for row in rows if (row["shape"], row["mix"]) == (shape, mix)])
            axes.set_title(f"{shape}, {mix}", fontsize=8)
    figure.supxlabel("slots", fontsize=9)
    figure.supylabel("makespan / what no schedule can beat   (mean; dotted: the worst of the seeds)", fontsize=8)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower right", ncols=len(labels), fontsize=8, frameon=False)
    save(figure, "starting the longest remaining path first under a limit", results, target)


def _draw(axes: Axes, rows: list[dict[str, Any]]) -> None:
    slots = [row["slots"] for row in rows]
    for order, colour in COLOURS.items():
        width, means = WIDTHS[order], [row["ratio"][order] for row in rows]
        axes.plot(slots, means, color=colour, linewidth=width, label=order, solid_capstyle="round")
        axes.plot(slots, [row["worst"][order] for row in rows], color=colour, linewidth=0.6, linestyle="dotted")
    axes.axhline(1, color="black", linestyle="dashed", linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.set_xticks(slots, [str(count) for count in slots], fontsize=8)
    axes.tick_params(axis="y", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
