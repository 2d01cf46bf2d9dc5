"""The figures of ``dagrun bench``, as JSON, as a table, and as a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeAlias

from dagrun.cli.setup.setting_fields import Mode
from dagrun.cli.terminal.text import SCHEMA_VERSION, columns
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import MissingExtra
from dagrun.kernel.runtime.result import RunResult

Figures: TypeAlias = dict[Mode, list[RunResult]]


def as_dict(figures: Figures, plan: str, steps: int) -> dict[str, Any]:
    """Return all figures as plain JSON; times are in seconds."""
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
    """Return the medians as a table, with the upper bound of the speed-up."""
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
    """Return the upper bound of the speed-up: sequential makespan over critical path, the median over runs."""
    return _median(figures["sequential"], lambda result: _ratio(result.makespan, result.critical_path))


def makespan(figures: Figures, mode: Mode) -> float:
    """Return the median makespan of a mode, in seconds."""
    return _median(figures[mode], lambda result: result.makespan)


def critical_path(figures: Figures, mode: Mode) -> float:
    """Return the median critical path of a mode, in seconds."""
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


SUFFIXES: Final = (".png", ".svg", ".pdf")
_COLOURS: Final = {"sequential": "#9ca3af", "waves": "#60a5fa", "parallel": "#16a34a"}


def check_suffix(path: Path) -> Path:
    """Return *path*, if a picture can be written there.

    Raises:
        BadInput: The suffix is not that of a picture, or there is no such folder.
        MissingExtra: matplotlib is not installed.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise BadInput(f"--plot {path.name}: the name must end in {', '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise BadInput(f"--plot {path}: there is no folder {path.parent}")
    try:
        import matplotlib as _matplotlib  # noqa: F401
    except ImportError:
        raise MissingExtra("--plot needs matplotlib: pip install 'dagrun-engine[tools]'") from None
    return path


def draw(figures: Figures, path: Path) -> None:
    """Draw the makespans as bars, with a line at the critical path.

    Raises:
        BadInput: The picture cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 2.6), layout="constrained")
    axes = figure.add_subplot()
    modes = list(figures)
    times = [makespan(figures, mode) for mode in modes]
    bars = axes.barh(modes, times, color=[_COLOURS[mode] for mode in modes])
    axes.bar_label(bars, [f"{time:.3f} s ({times[0] / time:.2f} x)" if time else "0 s" for time in times], padding=4)
    axes.axvline(critical_path(figures, "parallel"), color="black", linestyle="--", label="critical path")
    axes.set_xlim(0, max(times) * 1.3 or 1)
    axes.invert_yaxis()
    axes.set_xlabel("makespan in seconds (median)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right", frameon=False)
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}") from error
