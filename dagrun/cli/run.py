"""``dagrun run``: check a plan and carry it out."""

from __future__ import annotations

import logging
import sys
from contextlib import ExitStack
from typing import Any, Final

import click

from dagrun.cli import options
from dagrun.cli.data import Data, data_output
from dagrun.cli.dry_run import show_order
from dagrun.cli.events import EventLines
from dagrun.cli.execute import Job, execute, scheduled
from dagrun.cli.files import RunFolder, run_folder
from dagrun.cli.inputs import read_inputs
from dagrun.cli.plans import load_plan
from dagrun.cli.plugins import load_critics, load_planner
from dagrun.cli.settings import Configuration, configure
from dagrun.cli.terminal import coloured
from dagrun.cli.text import SCHEMA_VERSION
from dagrun.cli.tools_source import configure_tools, load_toolbox
from dagrun.graph.check import check_plan
from dagrun.graph.checked import CheckedPlan
from dagrun.model.brief import Planner
from dagrun.model.outcome import State, Status
from dagrun.model.verdict import Critic
from dagrun.observe.summary import summarise
from dagrun.runtime.result import RunResult

_LEVELS: Final = {-1: logging.ERROR, 0: logging.WARNING, 1: logging.INFO}

EPILOG: Final = """
\b
Examples:
  dagrun run plan.json --tools my_tools
  dagrun run plan.json --tools my_tools --input region=EU --json > result.json
  dagrun run plan.json --tools my_tools -n

\b
Exit codes:
  0 succeeded, 1 failed, 2 wrong usage, 3 plan refused, 4 over budget,
  5 waiting for a person, 6 escalated, 7 an effect is in doubt,
  130 cancelled by Ctrl-C, 143 by SIGTERM
"""


@click.command(epilog=EPILOG)
@options.combined(
    options.plan, options.tools, options.inputs, options.policy, options.max_running, options.output, options.directory
)
@options.combined(options.planner, options.critics)
@click.option(
    "--mode",
    type=click.Choice(["parallel", "waves", "sequential"]),
    help="Each step as soon as it can run; or generation by generation; or one by one.  [default: parallel]",
)
@options.as_json
@click.option("--events", type=click.Choice(["jsonl"]), help="Print each event as it happens, then the result.")
@click.option("-n", "--dry-run", is_flag=True, help="Check, and say what would run; run nothing.")
@click.option("-v", "--verbose", count=True, help="Show what tools log; -vv for everything.")
@click.option("-q", "--quiet", is_flag=True, help="No progress and no summary.")
def run(*, plan: str, inputs: tuple[str, ...], **flags: Any) -> int:
    """Check PLAN and run it, each step as soon as what it needs is there.

    PLAN is a JSON or YAML file, or - for the standard input. The answer goes to the standard output, all else to the
    standard error.

    What needs a person is asked on the terminal, while the other steps go on; without a terminal it is not done.

    Ctrl-C cancels the run and prints what there is so far; a second one ends the program at once.
    """
    configuration = configure(flags)
    with data_output() as data:
        checked = _check(plan, inputs, configuration)
        if flags["dry_run"]:
            show_order(checked, data, as_json=flags["as_json"])
            return 0
        flags["planner"], flags["critics"] = load_planner(flags["planner"]), load_critics(flags["critics"])
        return _Command(checked, read_inputs(inputs), configuration, data, flags).run()


def _check(plan: str, inputs: tuple[str, ...], configuration: Configuration) -> CheckedPlan:
    limits = configuration.limits()
    given = read_inputs(inputs)
    toolbox = load_toolbox(configuration)
    configure_tools(configuration, limits)
    return check_plan(load_plan(plan, toolbox), toolbox, limits.policy, inputs=given)


class _Command:
    """A checked plan, and what the command line says about running it."""

    def __init__(
        self,
        plan: CheckedPlan,
        inputs: dict[str, Any],
        configuration: Configuration,
        data: Data,
        flags: dict[str, Any],
    ) -> None:
        self._plan = plan
        self._inputs = inputs
        self._configuration = configuration
        self._data = data
        self._as_json: bool = flags["as_json"]
        self._is_quiet: bool = flags["quiet"]
        self._level = _LEVELS.get(-1 if self._is_quiet else flags["verbose"], logging.DEBUG)
        self._lines = EventLines(data) if flags["events"] else None
        self._planner: Planner | None = flags["planner"]
        self._critics: tuple[Critic, ...] = flags["critics"]
        self._stack = ExitStack()

    def run(self) -> int:
        """Run it, and give the exit code."""
        with run_folder(self._configuration.path("output")) as folder, self._stack:
            if self._lines is not None:
                self._stack.enter_context(self._lines)
            return execute(
                Job(
                    plan=scheduled(self._plan, self._configuration.settings.mode),
                    inputs=self._inputs,
                    artifacts=folder.artifacts,
                    planner=self._planner,
                    critics=self._critics,
                    is_shown=not self._is_quiet,
                    log_level=self._level,
                    on_event=self._lines.on_event if self._lines is not None else None,
                    on_result=lambda result: self._deliver(result, folder),
                )
            )

    def _deliver(self, result: RunResult, folder: RunFolder) -> None:
        self._stack.close()  # the last event is written before the result
        record = {"schema_version": SCHEMA_VERSION, **result.as_dict()}
        try:
            folder.save(record)
        except OSError as error:
            self._say(f"cannot write run.json: {error.strerror}")
        if self._lines is not None:
            self._data.line({"event": "Result", **record})
        elif self._as_json:
            self._data.json(record)
        else:
            self._answer(result)
        if not self._is_quiet:
            colour = 32 if result.status is Status.SUCCEEDED else 31
            self._say(coloured(summarise(result), colour, sys.stderr))

    def _answer(self, result: RunResult) -> None:
        """Print what the run answers; of a run that did not succeed, what there is."""
        if result.status is Status.SUCCEEDED:
            self._data.value(result.output)
        elif partial := _partial(result):
            self._data.json(partial)

    @staticmethod
    def _say(text: str) -> None:
        click.echo(text, err=True, color=True)


def _partial(result: RunResult) -> dict[str, Any]:
    """The outputs of the steps that succeeded and that nothing which succeeded goes on from."""
    steps = result.plan.steps
    good = [id_ for id_ in steps if result.steps[id_].state is State.SUCCEEDED]
    used = {need for id_ in good for need in result.dependencies(id_)}
    return {id_: result.steps[id_].output for id_ in good if id_ not in used}
