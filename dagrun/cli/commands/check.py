"""``dagrun check``: lists the problems of a plan, and runs nothing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import click

from dagrun.cli import options
from dagrun.cli.records.run_records import runs_option
from dagrun.cli.setup.settings import Configuration, configure
from dagrun.cli.terminal.stdout import Data, data_output
from dagrun.cli.terminal.text import SCHEMA_VERSION, bounded, columns_of, printable
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import PlanRefused, Problem

if TYPE_CHECKING:
    from dagrun.checks.worksheet import Worksheet
    from dagrun.model.plan import Plan

EPILOG: Final = """
\b
Examples:
  dagrun check plan.json --tools my_tools
  dagrun check plan.json --tools my_tools --strict --json
  dagrun check plan.json --tools my_tools --policy policy.toml
  dagrun check --goals

Exit codes: 0 the plan can be run, 2 wrong usage, 3 it cannot.
"""

MAX_LINES: Final = 200


@click.command(epilog=EPILOG)
@click.argument("plan", type=click.Path(allow_dash=True), required=False)
@options.combined(options.tools, options.inputs, options.secrets, options.policy, runs_option, options.directory)
@click.option(
    "--goals", is_flag=True, help="In place of a plan, check the recorded runs: which goals need no planner any more."
)
@click.option("--strict", is_flag=True, help="Refuse the plan for advice, too.")
@click.option("--html", metavar="FILE", help="Draw the plan as a page, with each problem at its step.")
@options.as_json
def check(
    *,
    plan: str | None,
    inputs: tuple[str, ...],
    strict: bool,
    html: str | None,
    goals: bool,
    as_json: bool,
    **flags: Any,
) -> None:
    """Check PLAN, list everything that is wrong with it, and run nothing.

    Without --input, references to the inputs of the run are not checked. With a policy, from --policy or a settings
    file, the autonomy worksheet follows: the steps of high risk, those that are safe to retry, the fallbacks and
    ceilings, when a person takes over, contracts that are not stable, what is not known in advance, the metrics, and
    the questions that nobody has answered; --strict refuses the plan for the questions about limits and people, too.

    With --goals, look at the recorded runs in place of a plan: a goal whose runs have always taken the same steps, at
    least three times, needs no planner; a fixed plan or a route would do.
    """
    configuration = configure(flags)
    if goals == (plan is not None):
        raise BadInput("check a PLAN, or --goals, which looks at recorded runs; not both, nor neither")
    with data_output() as data:
        if plan is None:
            from dagrun.cli.records.repeated_goals import show_repeated_goals

            show_repeated_goals(configuration, data, as_json=as_json)
        else:
            _check_plan(configuration, data, plan, inputs, html, strict=strict, as_json=as_json)


def _check_plan(
    configuration: Configuration,
    data: Data,
    plan: str,
    inputs: tuple[str, ...],
    html: str | None,
    *,
    strict: bool,
    as_json: bool,
) -> None:
    from dagrun.checks.check_plan import find_problems
    from dagrun.checks.shape_advice import shape_advice
    from dagrun.checks.worksheet import worksheet_of
    from dagrun.cli.setup.inputs import read_inputs
    from dagrun.cli.setup.plans import load_plan
    from dagrun.cli.setup.secrets import names_of_secrets
    from dagrun.cli.setup.tool_modules import load_toolbox

    input_values = read_inputs(inputs) if inputs else None
    policy = configuration.limits().policy
    toolbox = load_toolbox(configuration)
    read = load_plan(plan, toolbox)
    secrets = names_of_secrets(configuration)
    problems, checked = find_problems(read, toolbox, policy, inputs=input_values, secrets=secrets)
    problems += shape_advice(checked) if checked is not None else ()
    if html is not None:
        _draw(html, read, problems)
    if checked is None:
        raise PlanRefused(problem for problem in problems if strict or not problem.is_advice)
    sheet = worksheet_of(checked) if configuration.settings.policy is not None else None
    if strict and (advice := problems + (sheet.problems() if sheet is not None else ())):
        raise PlanRefused(advice)
    if as_json:
        data.json(_as_dict(len(read.steps), problems, sheet))
    else:
        _tell(data, plan, len(read.steps), problems, sheet)


def _draw(file: str, plan: Plan, problems: tuple[Problem, ...]) -> None:
    from dagrun.cli.jobs.report_file import ReportFile
    from dagrun.observe.view.plan_view import plan_view

    ReportFile(file, "html", option="--html").write(plan_view(plan, problems))


def _as_dict(steps: int, problems: tuple[Problem, ...], sheet: Worksheet | None) -> dict[str, Any]:
    listed = [problem.as_dict() for problem in problems]
    shown = {"schema_version": SCHEMA_VERSION, "status": "ok", "steps": steps, "problems": listed}
    return shown if sheet is None else shown | {"worksheet": sheet.as_dict()}


def _tell(data: Data, plan: str, steps: int, advice: tuple[Problem, ...], sheet: Worksheet | None) -> None:
    count = f"{len(advice)} piece{'s' * (len(advice) != 1)} of advice" if advice else "nothing to say"
    lines = [f"{plan}: {steps} step{'s' * (steps != 1)}, {count}", *(f"  {problem}" for problem in advice)]
    shown = bounded(lines, MAX_LINES, lambda more: f"  … and {more} more (--json has them all)")
    data.text(printable("\n".join(shown)))
    if sheet is not None:
        from dagrun.cli.terminal.worksheet_text import worksheet_lines

        data.text("\n".join(worksheet_lines(sheet, columns_of(sys.stdout))))
