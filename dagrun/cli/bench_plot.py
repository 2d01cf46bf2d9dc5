"""A comparison of modes as a picture; needs matplotlib, which is in the extra ``tools``."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from dagrun.cli.bench_figures import Figures, critical_path, makespan
from dagrun.cli.problems import BadInput
from dagrun.errors import MissingExtra

SUFFIXES: Final = (".png", ".svg", ".pdf")
_COLOURS: Final = {"sequential": "#9ca3af", "waves": "#60a5fa", "parallel": "#16a34a"}


def check_suffix(path: Path) -> Path:
    """Give *path* back if a picture can be written there.

    Raises:
        BadInput: Its suffix is of no picture, or its folder is not there.
        MissingExtra: There is no matplotlib.
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
    """Draw the makespans as bars, with a line where the critical path ends.

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
