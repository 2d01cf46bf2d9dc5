"""What a comparison of modes comes to, as JSON and as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, TypeAlias

from dagrun.cli.settings import Mode
from dagrun.cli.text import SCHEMA_VERSION, columns
from dagrun.runtime.result import RunResult

Figures: TypeAlias = dict[Mode, list[RunResult]]


def as_dict(figures: Figures, plan: str, steps: int) -> dict[str, Any]:
    """Give everything as plain JSON; times are in seconds."""
    return {
        "schema_version": SCHEMA_VERSION,
        "status": "succeeded",
        "plan": plan,
        "steps": steps,
        "repeats": len(figures["parallel"]),
        "best_speed_up": best_speed_up(figures),
        "modes": {mode: _mode(figures, mode) for mode in figures},
    }


def table(figures: Figures) -> str:
    """Give the medians as a table, and what no schedule could beat."""
    rows = []
    for mode in figures:
        shown = _mode(figures, mode)
        rows.append(
            (
                str(mode),
                f"{shown['makespan']:.3f} s",
                f"{shown['speed_up']:.2f} x",
                f"{shown['critical_path']:.3f} s",
                f"{shown['efficiency']:.1%}",
            )
        )
    head = ("mode", "makespan", "speed-up", "critical path", "efficiency")
    return columns(rows, head=head) + f"\nNo schedule is faster than {best_speed_up(figures):.2f} x.\n"


def best_speed_up(figures: Figures) -> float:
    """The sequential makespan over the critical path of the same runs: the bound of any speed-up."""
    return _median(figures["sequential"], lambda result: _ratio(result.makespan, result.critical_path))


def makespan(figures: Figures, mode: Mode) -> float:
    """The median makespan of a mode, in seconds."""
    return _median(figures[mode], lambda result: result.makespan)


def critical_path(figures: Figures, mode: Mode) -> float:
    """The median critical path of a mode, in seconds."""
    return _median(figures[mode], lambda result: result.critical_path)


def _mode(figures: Figures, mode: Mode) -> Mapping[str, Any]:
    results = figures[mode]
    return {
        "makespan": makespan(figures, mode),
        "makespans": [result.makespan for result in results],
        "speed_up": _ratio(makespan(figures, "sequential"), makespan(figures, mode)),
        "critical_path": critical_path(figures, mode),
        "work": _median(results, lambda result: result.work),
        "efficiency": _median(results, lambda result: _ratio(result.critical_path, result.makespan)),
    }


def _median(results: Sequence[RunResult], figure: Callable[[RunResult], float]) -> float:
    return median(map(figure, results))


def _ratio(over: float, under: float) -> float:
    return over / under if under else 1.0
