"""Plots of results. Figures are made directly: pyplot would keep global state, and look for a screen."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLOURS: Final = {"chain": "#0072b2", "fan": "#d55e00", "random3": "#009e73", "independent": "#cc79a7"}


def draw_overhead(results: dict[str, Any], target: Path) -> None:
    """Draw the results of the overhead benchmark as *target* with the endings ``.png`` and ``.svg``."""
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    ratios, growth = figure.subplots(1, 2, width_ratios=(3, 2))
    _draw_ratios(ratios, results["overhead"])
    _draw_growth(growth, results["overhead"])
    save(figure, "against one task per step (x)", results, target)


def save(figure: Figure, claim: str, results: dict[str, Any], target: Path) -> None:
    """Write *figure* as *target* with the endings ``.png`` and ``.svg``, headed by what it shows.

    Args:
        figure: What is drawn.
        claim: What it shows of dagrun.
        results: The results that it was drawn from.
        target: Where the files go.
    """
    machine = results["machine"]
    figure.suptitle(
        f"dagrun {results['versions']['dagrun']} {claim}\n"
        f"{results['python']}, anyio {results['versions']['anyio']}, {machine['cores']} cores, {results['date']}",
        fontsize=10,
    )
    # The same results must give the same files: no date and no random ids in them.
    with mpl.rc_context({"svg.hashsalt": "dagrun"}):
        figure.savefig(target.with_suffix(".png"), dpi=120, metadata={"Software": None})
        figure.savefig(target.with_suffix(".svg"), metadata={"Date": None})


def _draw_ratios(axes: Axes, rows: list[dict[str, Any]]) -> None:
    """One bar for each case, shape and size; a line across each case for what it must keep."""
    labels: list[str] = []
    at = 0.0
    ticks: list[float] = []
    for case in dict.fromkeys(row["case"] for row in rows):
        mine = [row for row in rows if row["case"] == case]
        first = at
        for row in mine:
            axes.bar(at, row["ratio"], color=COLOURS[row["shape"]], width=0.8)
            axes.text(at, row["ratio"], f"{row['ratio']:.2f}", ha="center", va="bottom", fontsize=6)
            labels.append(f"{row['shape']} {row['steps']:,}")
            ticks.append(at)
            at += 1
        must = max(row["must"] or 0.0 for row in mine)  # small sizes have none
        axes.hlines(must, first - 0.5, at - 0.5, colors="black", linestyles="dashed", linewidth=1)
        label = f"{case}\nmust: {must:g}"
        axes.text(
            (first + at - 1) / 2, 0.98, label, transform=axes.get_xaxis_transform(), fontsize=7, ha="center", va="top"
        )
        at += 1
    axes.axhline(1, color="grey", linewidth=0.5)
    axes.set_ylim(0, 1.2 * max(max(row["ratio"], row["must"] or 0) for row in rows))
    axes.set_xticks(ticks, labels, rotation=90, fontsize=6)
    axes.set_ylabel("CPU per step / x")
    axes.set_title("Ratio to one start_soon per step", fontsize=9)


def _draw_growth(axes: Axes, rows: list[dict[str, Any]]) -> None:
    """CPU per step over the number of steps, no-op: a flat line is linear growth."""
    for shape in dict.fromkeys(row["shape"] for row in rows if row["case"] == "no-op"):
        mine = [row for row in rows if (row["case"], row["shape"]) == ("no-op", shape)]
        sizes = [row["steps"] for row in mine]
        axes.plot(sizes, [row["ours"] for row in mine], "o-", color=COLOURS[shape], label=f"{shape}, dagrun")
        axes.plot(sizes, [row["base"] for row in mine], "x:", color=COLOURS[shape], label=f"{shape}, x")
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("steps")
    axes.set_ylabel("CPU μs per step")
    axes.set_title("No-op steps: growth", fontsize=9)
    axes.legend(fontsize=7)
