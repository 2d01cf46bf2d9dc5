"""A plan that ``dagrun bench`` runs many times, in each mode."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, get_args

import click

from dagrun.cli.jobs.bench_figures import Figures, as_dict, check_suffix, draw, table
from dagrun.cli.jobs.execute import execute
from dagrun.cli.jobs.job import Job, Reporting
from dagrun.cli.records.output_folder import RunFolder, run_folder
from dagrun.cli.setup.plans import load_plan, read_inputs, scheduled
from dagrun.cli.setup.setting_fields import Mode
from dagrun.cli.setup.settings import Configuration
from dagrun.cli.setup.tool_modules import configure_tools, load_toolbox
from dagrun.cli.terminal.text import Data, is_drawable
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.kernel.checks.check_plan import check_plan
from dagrun.kernel.checks.checked_plan import CheckedPlan
from dagrun.kernel.model.effect import Effect
from dagrun.kernel.model.outcome import Status
from dagrun.kernel.runtime.result import RunResult
from dagrun.observe.progress import summarise

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
