"""``dagrun bench``: a plan that is run many times, in each mode; and its figures, as JSON, a table or a picture."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final, TypeAlias, get_args

import click

from dagrun import Effect
from dagrun.cli.records.output_files import RunFolder, run_folder
from dagrun.cli.setup.setting_fields import Mode
from dagrun.cli.setup.settings import Configuration, configure
from dagrun.cli.table_command import command
from dagrun.cli.terminal.text import SCHEMA_VERSION, Data, columns, data_output, is_drawable
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import MissingExtra

if TYPE_CHECKING:
    from dagrun import CheckedPlan, RunResult

    Figures: TypeAlias = dict[Mode, list[RunResult]]


@command("bench")
def bench(*, plan: str, inputs: tuple[str, ...], **flags: Any) -> int:
    """Run PLAN in each mode, several times, and compare the times.

    sequential runs one step after another, waves one generation after another, parallel each step as soon as it can
    run. A first run, in which tools load their libraries, is not counted. The figures are medians. Efficiency is the
    critical path (the longest chain of steps that wait for each other) divided by the makespan, for each run.

    Examples:
      dagrun bench plan.json --tools my_tools
      dagrun bench plan.json --tools my_tools --repeat 5 --plot bench.png
    """
    configuration = configure(flags)
    with data_output() as data:
        return measure(configuration, data, plan, inputs, flags)


MODES: Final[tuple[Mode, ...]] = ("sequential", "waves", "parallel")
assert set(MODES) == set(get_args(Mode))


def measure(
    configuration: Configuration, data: Data, plan: str, inputs: tuple[str, ...], flags: Mapping[str, Any]
) -> int:
    """Run a plan in each mode, print the figures, and return the exit code.

    Args:
        configuration: The settings that hold.
        data: Takes the figures.
        plan: The name of the file of the plan.
        inputs: The inputs, as typed.
        flags: The flags of the command line: ``repeat``, ``repeat_effects``, ``plot``, ``as_json``.

    Raises:
        BadInput: The plan calls tools that may change the world, or the picture cannot be drawn.
        PlanRefused: The plan has problems.
    """
    plot = None if flags["plot"] is None else check_suffix(Path(flags["plot"]).absolute())
    repeat: int = flags["repeat"]
    checked, input_values = _check(plan, inputs, configuration)
    if not flags["repeat_effects"]:
        _refuse_effects(checked, 1 + repeat * len(MODES))
    with run_folder(configuration.path("output")) as folder:
        code, figures = _Bench(checked, input_values, folder).measure(repeat)
    if code:
        return code
    if flags["as_json"]:
        data.json(as_dict(figures, plan, len(checked.steps)))
    else:
        data.text(table(figures))
    if plot is not None:
        draw(figures, plot)
    return 0


def _check(plan: str, inputs: tuple[str, ...], configuration: Configuration) -> tuple[CheckedPlan, dict[str, Any]]:
    from dagrun.cli.setup.plans import load_plan, read_inputs
    from dagrun.cli.setup.tool_modules import configure_tools, load_toolbox
    from dagrun.kernel.checks.check_plan import check_plan

    limits = configuration.limits()
    input_values = read_inputs(inputs)
    toolbox = load_toolbox(configuration)
    configure_tools(configuration, limits)
    return check_plan(load_plan(plan, toolbox), toolbox, limits.policy, inputs=input_values), input_values


def _refuse_effects(plan: CheckedPlan, runs: int) -> None:
    tools = {step.tool.name for step in plan.steps.values() if step.tool.effect is Effect.EFFECTFUL}
    if tools:
        raise BadInput(
            f"{', '.join(sorted(tools))} may change the world, and would be called in each of {runs} runs;"
            " declare what it does (@dagrun.tool(effect=…)), or pass --repeat-effects"
        )


class _Bench:
    """Runs a plan many times, and keeps the figures."""

    def __init__(self, plan: CheckedPlan, inputs: dict[str, Any], folder: RunFolder) -> None:
        self._plan = plan
        self._inputs = inputs
        self._folder = folder
        self._figures: Figures = {mode: [] for mode in MODES}

    def measure(self, repeat: int) -> tuple[int, Figures]:
        """Run the plan in each mode, in turns; return the exit code of a run that failed, or 0, and the figures."""
        if code := self._run("parallel", lambda result: None):
            return code, self._figures
        for number in range(repeat):
            # The order changes each time, so that caches and other load affect all modes alike.
            for mode in MODES[number % len(MODES) :] + MODES[: number % len(MODES)]:
                _tell(f"{mode}, {number + 1} of {repeat}")
                if code := self._run(mode, self._figures[mode].append):
                    return code, self._figures
        _tell("")
        return 0, self._figures

    def _run(self, mode: Mode, keep: Callable[[RunResult], object]) -> int:
        from dagrun import Status
        from dagrun.cli.jobs.execute import execute
        from dagrun.cli.jobs.job import Job, Reporting
        from dagrun.cli.setup.plans import scheduled
        from dagrun.observe.progress import summarise

        def on_result(result: RunResult) -> None:
            if result.status is Status.SUCCEEDED:
                keep(result)
            else:
                _tell("")
                click.echo(f"{mode}: {summarise(result)}", err=True)

        job = Job(plan=scheduled(self._plan, mode), inputs=self._inputs, artifacts=self._folder.artifacts)
        return execute(job, Reporting(on_result=on_result, is_shown=False)).code


def _tell(text: str) -> None:
    """Show the progress on a terminal, in one line that is overwritten."""
    if is_drawable(sys.stderr):
        click.echo(f"\r\x1b[K{text}", err=True, nl=False)


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
