"""The plots of the comparison."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from plots import save

OURS: Final = "#009e73"
COLOURS: Final = {
    "dagrun": OURS,
    "10 ms polling": "#999999",
    "LangGraph graph": "#d55e00",
    "LangGraph @task": "#e69f00",
    "Dask threaded": "#0072b2",
    "Dask distributed": "#56b4e9",
    "Hamilton": "#cc79a7",
    "pydantic-graph": "#882255",
    "Haystack": "#332288",
    "LlamaIndex": "#999933",
    "Prefect": "#000000",
}
Rows = Sequence[dict[str, Any]]


def draw_cost(results: dict[str, Any], target: Path) -> None:
    """Draw CPU per step over the number of steps, a panel for each shape, with the endings ``.png`` and ``.svg``."""
    rows = [row for row in results["cost"] if "ratio" in row]
    shapes = list(dict.fromkeys(row["shape"] for row in rows))
    figure = Figure(figsize=(3.9 * max(len(shapes), 1) + 1.6, 4.4), layout="constrained")
    panels = figure.subplots(1, max(len(shapes), 1), sharey=True, squeeze=False)[0]
    for axes, shape in zip(panels, shapes, strict=False):
        _draw_shape(axes, shape, [row for row in rows if row["shape"] == shape])
    panels[0].set_ylabel("CPU μs per step, building and running (log)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", fontsize=8, frameon=False)
    save(figure, "and its peers: the cost of a step that does nothing", results, target)


def _draw_shape(axes: Axes, shape: str, rows: Rows) -> None:
    """A line for each peer, and one for x as dagrun's own process had it."""
    for peer in dict.fromkeys(row["peer"] for row in rows):
        mine = [row for row in rows if row["peer"] == peer]
        is_ours = peer == "dagrun"
        cost = [row["build"] + row["run"] for row in mine]
        axes.plot(
            [row["steps"] for row in mine],
            cost,
            "o-",
            color=COLOURS[peer],
            linewidth=2.6 if is_ours else 1.2,
            markersize=5 if is_ours else 3,
            zorder=3 if is_ours else 2,
            label=peer,
        )
        if is_ours:
            sizes = [row["steps"] for row in mine]
            axes.plot(
                sizes, [row["run"] for row in mine], "o--", color=OURS, markersize=3, label="dagrun, running only"
            )
            axes.plot(sizes, [row["base"] for row in mine], "x:", color="grey", label="x: a bare task per step")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    sizes = sorted({row["steps"] for row in rows})
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes], fontsize=8)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("steps", fontsize=8)
    axes.set_title(shape, fontsize=9)
    axes.grid(axis="y", color="#dddddd", linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)


def draw_makespan(results: dict[str, Any], target: Path) -> None:
    """Draw makespans over critical paths, a panel for each kind of graph, with the endings ``.png`` and ``.svg``."""
    rows = [row for row in results["makespan"] if "ratio" in row]
    graphs = list(dict.fromkeys(row["graph"] for row in rows))
    peers = list(dict.fromkeys(row["peer"] for row in rows))
    figure = Figure(figsize=(5 * max(len(graphs), 1), 0.3 * len(peers) + 1.6), layout="constrained")
    panels = figure.subplots(1, max(len(graphs), 1), sharey=True, squeeze=False)[0]
    for axes, graph in zip(panels, graphs, strict=False):
        _draw_graph(axes, graph, peers, {row["peer"]: row for row in rows if row["graph"] == graph})
    panels[0].invert_yaxis()  # once: the panels share it
    figure.supxlabel("makespan / critical path that the steps asked for   (black mark: bare tasks)", fontsize=8)
    save(figure, "and its peers: 100 uneven steps of 5 to 50 ms", results, target)


def _draw_graph(axes: Axes, graph: str, peers: Sequence[str], rows: dict[str, dict[str, Any]]) -> None:
    """One bar for each peer, cut off where one would dwarf the rest."""
    limit = min(2.2, 1.35 * max((row["asked"] for row in rows.values()), default=1.0))
    for at, peer in enumerate(peers):
        row = rows.get(peer)
        if row is None:
            continue
        is_cut = row["asked"] > 0.85 * limit
        axes.barh(at, min(row["asked"], limit), color=COLOURS[peer], height=0.7, alpha=1 if peer == "dagrun" else 0.75)
        axes.vlines(row["bare"], at - 0.35, at + 0.35, colors="black", linewidth=1.5)
        axes.text(
            min(row["asked"], limit) - 0.01 * limit if is_cut else max(row["asked"], row["bare"]) + 0.01 * limit,
            at,
            f"{row['asked']:.3f}{' →' if row['asked'] > limit else ''}",
            ha="right" if is_cut else "left",
            va="center",
            fontsize=8,
            color="white" if is_cut else "black",
        )
    axes.axvline(1, color="black", linestyle="dashed", linewidth=1)
    axes.set_xlim(0, limit)
    axes.tick_params(axis="x", labelsize=8)
    axes.set_yticks(range(len(peers)), peers, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(graph, fontsize=9)
