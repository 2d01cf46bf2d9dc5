"""``dagrun check``: look a plan over, and run nothing."""

from __future__ import annotations

from typing import Any, Final

import click

from dagrun.cli import options
from dagrun.cli.data import Data, data_output
from dagrun.cli.inputs import read_inputs
from dagrun.cli.plans import load_plan
from dagrun.cli.settings import configure
from dagrun.cli.text import SCHEMA_VERSION, bounded, printable
from dagrun.cli.tools_source import load_toolbox
from dagrun.errors import PlanRefused, Problem
from dagrun.graph.check import find_problems

EPILOG: Final = """
\b
Examples:
  dagrun check plan.json --tools my_tools
  dagrun check plan.json --tools my_tools --strict --json

Exit codes: 0 the plan can be run, 2 wrong usage, 3 it cannot.
"""

MAX_LINES: Final = 200


@click.command(epilog=EPILOG)
@options.combined(options.plan, options.tools, options.inputs, options.policy, options.directory)
@click.option("--strict", is_flag=True, help="Refuse the plan for advice, too.")
@options.as_json
def check(*, plan: str, inputs: tuple[str, ...], strict: bool, as_json: bool, **flags: Any) -> None:
    """Check PLAN and list everything that is wrong with it, without running anything.

    Without --input, references to the inputs of the run are not checked.
    """
    configuration = configure(flags)
    given = read_inputs(inputs) if inputs else None
    with data_output() as data:
        policy = configuration.limits().policy
        toolbox = load_toolbox(configuration)
        read = load_plan(plan, toolbox)
        problems, checked = find_problems(read, toolbox, policy, inputs=given, strict=strict)
        if checked is None:
            raise PlanRefused(problem for problem in problems if strict or not problem.is_advice)
        if as_json:
            listed = [problem.as_dict() for problem in problems]
            data.json({"schema_version": SCHEMA_VERSION, "status": "ok", "steps": len(read.steps), "problems": listed})
        else:
            _tell(data, plan, len(read.steps), problems)


def _tell(data: Data, plan: str, steps: int, advice: tuple[Problem, ...]) -> None:
    found = f"{len(advice)} piece{'s' * (len(advice) != 1)} of advice" if advice else "nothing to say"
    lines = [f"{plan}: {steps} step{'s' * (steps != 1)}, {found}", *(f"  {problem}" for problem in advice)]
    shown = bounded(lines, MAX_LINES, lambda more: f"  … and {more} more (--json has them all)")
    data.text(printable("\n".join(shown)))
