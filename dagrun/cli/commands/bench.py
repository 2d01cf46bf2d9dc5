"""``dagrun bench``: runs a plan in each mode (sequential, waves, parallel), and compares the times."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, get_args

import click

from dagrun.checks.check_plan import check_plan
from dagrun.checks.checked_plan import CheckedPlan
from dagrun.cli import options
from dagrun.cli.jobs.bench_figures import Figures, as_dict, table
from dagrun.cli.jobs.execute import execute
from dagrun.cli.jobs.job import Job, Reporting
from dagrun.cli.records.output_folder import RunFolder, run_folder
from dagrun.cli.setup.inputs import read_inputs
from dagrun.cli.setup.plans import load_plan, scheduled
from dagrun.cli.setup.settings import Configuration, Mode, configure
from dagrun.cli.setup.tool_modules import configure_tools, load_toolbox
from dagrun.cli.terminal.stdout import data_output
from dagrun.cli.terminal.text import is_drawable
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.model.effect import Effect
from dagrun.model.outcome import Status
from dagrun.observe.summary import summarise
from dagrun.runtime.result import RunResult

EPILOG: Final = """
\b
Examples:
  dagrun bench plan.json --tools my_tools
  dagrun bench plan.json --tools my_tools -n 5 --plot bench.png
"""

MODES: Final[tuple[Mode, ...]] = ("sequential", "waves", "parallel")
assert set(MODES) == set(get_args(Mode))


@click.command(epilog=EPILOG)
@options.combined(
    options.plan, options.tools, options.inputs, options.policy, options.max_running, options.output, options.directory
)
@click.option("--repeat", type=click.IntRange(1, 1000), default=3, show_default=True, help="Runs in each mode.")
@click.option("--plot", metavar="FILE", type=click.Path(dir_okay=False), help="Draw the figures: .png, .svg or .pdf.")
@click.option("--repeat-effects", is_flag=True, help="Call tools with effects, too, once in each run.")
@options.as_json
def bench(
    *,
    plan: str,
    inputs: tuple[str, ...],
    repeat: int,
    plot: str | None,
    repeat_effects: bool,
    as_json: bool,
    **flags: Any,
) -> int:
    """Run PLAN in each mode, several times, and compare the times.

    sequential runs one step after another, waves one generation after another, parallel each step as soon as it can
    run. A first run, in which tools load their libraries, is not counted. The figures are medians. Efficiency is the
    critical path (the longest chain of steps that wait for each other) divided by the makespan, for each run.
    """
    configuration = configure(flags)
    plot_file = _plot_file(plot)
    with data_output() as data:
        checked, input_values = _check(plan, inputs, configuration)
        if not repeat_effects:
            _refuse_effects(checked, 1 + repeat * len(MODES))
        with run_folder(configuration.path("output")) as folder:
            code, figures = _Bench(checked, input_values, folder).measure(repeat)
        if code:
            return code
        if as_json:
            data.json(as_dict(figures, plan, len(checked.steps)))
        else:
            data.text(table(figures))
        if plot_file is not None:
            from dagrun.cli.jobs.bench_figures import draw

            draw(figures, plot_file)
    return 0


def _check(plan: str, inputs: tuple[str, ...], configuration: Configuration) -> tuple[CheckedPlan, dict[str, Any]]:
    limits = configuration.limits()
    input_values = read_inputs(inputs)
    toolbox = load_toolbox(configuration)
    configure_tools(configuration, limits)
    return check_plan(load_plan(plan, toolbox), toolbox, limits.policy, inputs=input_values), input_values


def _plot_file(name: str | None) -> Path | None:
    if name is None:
        return None
    from dagrun.cli.jobs.bench_figures import check_suffix

    return check_suffix(Path(name).absolute())


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
        def on_result(result: RunResult) -> None:
            if result.status is Status.SUCCEEDED:
                keep(result)
            else:
                _tell("")
                click.echo(f"{mode}: {summarise(result)}", err=True)

        job = Job(plan=scheduled(self._plan, mode), inputs=self._inputs, artifacts=self._folder.artifacts)
        return execute(job, Reporting(on_result=on_result, is_shown=False))


def _tell(text: str) -> None:
    """Show the progress on a terminal, in one line that is overwritten."""
    if is_drawable(sys.stderr):
        click.echo(f"\r\x1b[K{text}", err=True, nl=False)
