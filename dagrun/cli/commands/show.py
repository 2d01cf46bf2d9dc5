"""``dagrun show``: draws a plan."""

from __future__ import annotations

from typing import Any, Final

import click

from dagrun.cli import options
from dagrun.cli.setup.plans import as_written, load_plan
from dagrun.cli.setup.settings import configure
from dagrun.cli.setup.tool_modules import load_toolbox
from dagrun.cli.terminal.stdout import data_output
from dagrun.plans.drawing import draw_dot, draw_mermaid, draw_tree

EPILOG: Final = """
\b
Examples:
  dagrun show plan.json
  dagrun show plan.json --format mermaid > plan.mmd
  dagrun show plan.json --format dot | dot -Tsvg > plan.svg
"""

_DRAW: Final = {"tree": draw_tree, "mermaid": draw_mermaid, "dot": draw_dot}


@click.command(epilog=EPILOG)
@options.combined(options.plan, options.tools, options.directory)
@click.option(
    "-f",
    "--format",
    "form",
    type=click.Choice(["tree", "mermaid", "dot", "json"]),
    default="tree",
    show_default=True,
    help="The form of the drawing; json is the plan as dagrun has read it.",
)
def show(*, plan: str, form: str, **flags: Any) -> None:
    """Draw PLAN, without checking it.

    With --tools, a plan in the dialect of step_number and action is drawn with the data flow that it only implies.
    """
    configuration = configure(flags)
    with data_output() as data:
        toolbox = load_toolbox(configuration) if configuration.settings.tools else None
        drawn = load_plan(plan, toolbox)
        if form == "json":
            data.json(as_written(drawn))
        else:
            data.text(_DRAW[form](drawn))
