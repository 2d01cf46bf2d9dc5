"""``dagrun prompt``: prints the prompt that a planner sends to its model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from dagrun.cli import options
from dagrun.cli.setup.settings import configure
from dagrun.cli.terminal.stdout import data_output

if TYPE_CHECKING:
    from dagrun.planners.prompts import Kind

EPILOG: Final = """
\b
Examples:
  dagrun prompt --tools my_tools "Compare the sales of both regions"
  dagrun prompt --tools my_tools --kind replan
  dagrun prompt --texts > prompts.toml
"""

_GOAL: Final = "(what is wanted, in words)"

# As `dagrun.planners.prompts.Kind`, which is not loaded to print the help.
KINDS: Final = ("first", "repair", "replan", "next")


@click.command(epilog=EPILOG)
@click.argument("goal", default=_GOAL)
@options.combined(options.tools, options.inputs, options.policy, options.directory)
@click.option(
    "--kind",
    type=click.Choice(KINDS),
    default="first",
    show_default=True,
    help="The prompt for the first plan; for a repair, after the plan was refused; for a change of a running plan; for"
    " the next step of the planner stepwise.",
)
@click.option("--texts", is_flag=True, help="Print the texts that prompts are made of, to replace them in dagrun.toml.")
@options.combined(options.dialect, options.as_json)
def prompt(*, goal: str, inputs: tuple[str, ...], kind: Kind, texts: bool, as_json: bool, **flags: Any) -> None:
    """Print the prompt that a planner sends to its model, with the tools of --tools, or else of installed packages.

    No model is asked, and no tool is called. For every kind but the first, an example stands for what has happened.
    --json also prints the version of the prompt, and the schema of the answer: that goes to the model beside the
    prompt, or, if a server takes no schema, at the end of it.

    dagrun.toml may have instructions, constraints, and a table of prompts, whose texts take the place of those that
    --texts prints. The version of the prompt, which the record of a run has, too, tells such words apart.
    """
    from dagrun.cli.jobs.overheard_prompt import show_prompt, show_texts

    configuration = configure(flags)
    with data_output() as data:
        if texts:
            show_texts(configuration, data)
        else:
            show_prompt(configuration, data, goal, inputs, kind, as_json=as_json)
