"""The figures of ``dagrun sim``, as JSON, as a table, and as a picture."""

from __future__ import annotations

from collections.abc import Iterator
from math import floor, isfinite, log10
from pathlib import Path
from textwrap import wrap
from typing import Any, Final

from dagrun.cli.terminal.text import SCHEMA_VERSION, columns
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.evaluate.intervals import Interval
from dagrun.evaluate.simulation.simulation import SHOWN_QUANTILES, Simulation, Variant
from dagrun.kernel.model.outcome import Status

_MOST_CRITICAL: Final = 5
_MOST_DRAWN: Final = 10  # lines of a picture that can still be told apart


def as_dict(simulation: Simulation, plan: str) -> dict[str, Any]:
    """Return all figures as plain JSON; times are in seconds."""
    return {"schema_version": SCHEMA_VERSION, "status": "succeeded", "plan": plan, **simulation.as_dict()}


def table(simulation: Simulation, plan: str, width: int) -> str:
    """Return the figures as a text for people."""
    lines = [_title(simulation, plan), "", *_figures(simulation)]
    if len(simulation.variants) > 1:
        lines += ["", *_differences(simulation)]
    lines.append("")
    for text in _remarks(simulation):
        lines += wrap(text, max(40, width - 2), subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(lines) + "\n"


def _title(simulation: Simulation, plan: str) -> str:
    steps, variants = simulation.steps, len(simulation.variants)
    each = f" of each of {variants} variants" if variants > 1 else ""
    plural = "s" * (simulation.runs != 1)
    return (
        f"{plan}: {steps} step{'s' * (steps != 1)}, {simulation.runs:,} simulated run{plural}{each},"
        f" seed {simulation.seed}"
    )


def _figures(simulation: Simulation) -> list[str]:
    has_cost = any(variant.cost is not None for variant in simulation.variants)
    is_varied = len(simulation.variants) > 1
    head = [*(f"p{q * 100:g} in seconds" for q in SHOWN_QUANTILES), "succeeded", "calls", *["cost"] * has_cost]
    rows = []
    for variant in simulation.variants:
        row = [f"{_number(variant.quantile(q))} ({_range(variant.interval(q))})" for q in SHOWN_QUANTILES]
        low, high = variant.success_interval
        row += [f"{variant.success:.1%} ({low:.1%} to {high:.1%})", f"{variant.calls / variant.runs:.1f}"]
        if has_cost:
            row.append("-" if variant.cost is None else f"{variant.cost / variant.runs:.4g}")
        rows.append([variant.name, *row] if is_varied else row)
    return columns(rows, head=["", *head] if is_varied else head).rstrip("\n").split("\n")


def _differences(simulation: Simulation) -> Iterator[str]:
    first, *others = simulation.variants
    yield f"Against {first.name}, run by run:"
    rows = [
        [f"  {variant.name}", *(_verdict(variant.slower_than(first, q), q) for q in SHOWN_QUANTILES)]
        for variant in others
    ]
    yield from columns(rows).rstrip("\n").split("\n")


def _verdict(interval: Interval, q: float) -> str:
    low, high = interval
    if low > 0:
        return f"p{q * 100:g} {_range(interval)} s slower"
    if high < 0:
        return f"p{q * 100:g} {_range((-high, -low))} s faster"
    if not isfinite(low):
        return f"p{q * 100:g} too few runs"
    return f"p{q * 100:g} no difference" if low == high else f"p{q * 100:g} not known ({_range(interval)} s)"


def _remarks(simulation: Simulation) -> Iterator[str]:
    for variant in simulation.variants:
        yield _critical(variant)
        if variant.success < 1:
            counts = {str(status): count for status, count in sorted(variant.statuses.items())}
            counts.pop(str(Status.SUCCEEDED), None)
            ended = ", ".join(f"{count / variant.runs:.1%} {status}" for status, count in counts.items())
            yield f"Not succeeded{_with(variant)}: {ended}"
    yield "Durations: " + "; ".join(f"{name} {text}" for name, text in simulation.durations.items())
    if simulation.failures:
        yield "Failures: " + "; ".join(f"{name} {text}" for name, text in simulation.failures.items())
    yield "Taken for granted:"
    yield from (f"- {note}" for note in simulation.notes)


def _critical(variant: Variant) -> str:
    most = variant.critical.most_common(_MOST_CRITICAL)
    steps = ", ".join(f"{step} {count / variant.runs:.0%}" for step, count in most)
    more = len(variant.critical) - len(most)
    return f"Critical{_with(variant)}, in so many runs: {steps or 'no step'}" + (f"; and {more} more" if more else "")


def _with(variant: Variant) -> str:
    return f" with {variant.name}" if variant.name else ""


def _number(value: float) -> str:
    """Return a number with three digits that count, and no exponent."""
    digits = 2 if not value else min(6, max(0, 2 - floor(log10(abs(value)))))
    return f"{value:,.{digits}f}"


def _range(interval: Interval) -> str:
    low, high = interval
    if not isfinite(low):
        return f"up to {_number(high)}" if isfinite(high) else "too few runs"
    return f"{_number(low)} to {_number(high)}" if isfinite(high) else f"{_number(low)} or more"


def draw(simulation: Simulation, path: Path) -> None:
    """Draw the part of the runs that have ended, over time: a line for each variant.

    Raises:
        BadInput: The picture cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.4), layout="constrained")
    axes = figure.add_subplot()
    for variant in simulation.variants[:_MOST_DRAWN]:
        parts = [(i + 1) / variant.runs for i in range(variant.runs)]
        axes.step(variant.ordered, parts, where="post", linewidth=1.5, label=variant.name or None)
    for q in SHOWN_QUANTILES:
        axes.axhline(q, color="#9ca3af", linewidth=0.6, linestyle="--")
        axes.annotate(f"p{q * 100:g}", (1.005, q), xycoords=("axes fraction", "data"), va="center", fontsize=8)
    axes.set_xlabel("makespan in seconds, simulated")
    axes.set_ylabel("part of the runs")
    axes.set_ylim(0, 1.02)
    axes.set_xlim(left=0)
    axes.spines[["top", "right"]].set_visible(False)
    if len(simulation.variants) > 1:
        more = len(simulation.variants) - _MOST_DRAWN
        axes.legend(loc="lower right", frameon=False, fontsize=8, title=f"{more} more not shown" if more > 0 else None)
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}") from error
