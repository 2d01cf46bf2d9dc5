"""``dagrun show``: draws a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from dagrun.cli import options
from dagrun.cli.setup.settings import configure
from dagrun.cli.terminal.stdout import Data, data_output
from dagrun.cli.terminal.user_errors import BadInput

if TYPE_CHECKING:
    from dagrun.model.plan import Plan

EPILOG: Final = """
\b
Examples:
  dagrun show plan.json
  dagrun show plan.json --format mermaid > plan.mmd
  dagrun show plan.json --format svg -o plan.svg
"""

_PICTURES: Final = ("svg", "png", "html")


@click.command(epilog=EPILOG)
@options.combined(options.plan, options.tools, options.directory)
@click.option(
    "-f",
    "--format",
    "form",
    type=click.Choice(["tree", "mermaid", "dot", "json", "svg", "png", "html"]),
    default="tree",
    show_default=True,
    help="The form of the drawing; json is the plan as dagrun has read it.",
)
@click.option("-o", "--output", "file", metavar="FILE", help="The file of a picture or page.  [default: stdout]")
def show(*, plan: str, form: str, file: str | None, **flags: Any) -> None:
    """Draw PLAN, without checking it.

    With --tools, a plan in the dialect of step_number and action is drawn with the data flow that it only implies.
    """
    from dagrun.cli.setup.plans import as_written, load_plan
    from dagrun.cli.setup.tool_modules import load_toolbox, names_tools
    from dagrun.plans.drawing import draw_dot, draw_mermaid, draw_tree

    drawings = {"tree": draw_tree, "mermaid": draw_mermaid, "dot": draw_dot}
    configuration = configure(flags)
    with data_output() as data:
        toolbox = load_toolbox(configuration) if names_tools(configuration) else None
        drawn = load_plan(plan, toolbox)
        if form in _PICTURES or file is not None:
            _draw(drawn, form, file, data)
        elif form == "json":
            data.json(as_written(drawn))
        else:
            data.text(drawings[form](drawn))


def _draw(plan: Plan, form: str, file: str | None, data: Data) -> None:
    """Draw a plan as a picture or a page, into a file or to the standard output."""
    from dagrun.cli.jobs.report_file import ReportFile
    from dagrun.observe.report.report import make_report
    from dagrun.observe.view.plan_view import plan_view

    view = plan_view(plan)
    if file is not None:
        target = ReportFile(file, form if form in _PICTURES else None)
        target.write(view)
        data.text(str(target.path))
    elif form == "png":
        raise BadInput("a PNG needs a file: name one by -o")
    else:
        data.text(make_report(view, form).decode())
