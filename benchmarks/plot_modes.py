"""The plot of the modes benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from plots import save

COLOURS: Final = {
    "sequential": "#999999",
    "waves": "#56b4e9",
    "ready-driven": "#009e73",
    "4 slots": "#e69f00",
    "4 slots, blind": "#d55e00",
    "bare tasks": "#cccccc",
}


def draw_modes(results: dict[str, Any], target: Path) -> None:
    """Draw the results of the modes benchmark as *target* with the endings ``.png`` and ``.svg``."""
    rows = results["modes"]
    plans = list(dict.fromkeys(row["plan"] for row in rows))
    figure = Figure(figsize=(4 * len(plans), 3.6), layout="constrained")
    for axes, plan in zip(figure.subplots(1, len(plans), squeeze=False)[0], plans, strict=True):
        _draw_plan(axes, plan, [row for row in rows if row["plan"] == plan])
    figure.supxlabel("makespan / what no schedule can beat   (black mark: on a virtual clock)", fontsize=8)
    save(figure, "running the same plans in different schedules", results, target)


def _draw_plan(axes: Axes, plan: str, rows: list[dict[str, Any]]) -> None:
    """One bar for each mode, cut off where sequential runs would dwarf the rest; a tick at its ideal."""
    limit = 1.75 * max([row["ratio"] for row in rows if row["mode"] != "sequential"], default=1.0)
    for at, row in enumerate(rows):
        axes.barh(at, row["ratio"], color=COLOURS[row["mode"]], height=0.7)
        if row["ideal"] is not None and row["ideal"] < limit:
            axes.vlines(row["ideal"], at - 0.35, at + 0.35, colors="black", linewidth=1.5)
        is_cut = row["ratio"] > limit
        label = f"{row['ratio']:.3f} ({row['makespan']:.2f} s)"
        axes.text(
            limit * 0.99 if is_cut else row["ratio"] + limit * 0.01,
            at,
            f"{label} →" if is_cut else label,
            ha="right" if is_cut else "left",
            va="center",
            fontsize=8,
        )
    axes.axvline(1, color="black", linestyle="dashed", linewidth=1)
    axes.set_xlim(0, limit)
    axes.set_yticks(range(len(rows)), [row["mode"] for row in rows], fontsize=8)
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(f"{plan}, median of {rows[0]['runs']}", fontsize=9)
