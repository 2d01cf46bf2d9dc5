"""The ``dagrun`` command and the table of its subcommands."""

from typing import Any, Final

import click

from dagrun._version import __version__
from dagrun.cli.lazy import PluginGroup

# name: (module:attribute, help line). A command may return its exit code; None is 0.
COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "do": ("dagrun.cli.do:do", "Plan what a goal needs, and run it meanwhile."),
    "plan": ("dagrun.cli.plan:plan", "Make a plan for a goal, and run nothing."),
    "run": ("dagrun.cli.run:run", "Check a plan and run it."),
    "resume": ("dagrun.cli.again:resume", "Go on with a run that was interrupted, killed, or waits."),
    "retry": ("dagrun.cli.again:retry", "Do again what has failed of a run."),
    "runs": ("dagrun.cli.runs:runs", "List the runs on record, and where they stand."),
    "approve": ("dagrun.cli.replying:approve", "Say yes or no to a question of a run, from elsewhere."),
    "answer": ("dagrun.cli.replying:answer", "Give a run a value that it has asked for, from elsewhere."),
    "inspect": ("dagrun.cli.inspecting:inspect", "Say what happened in a run, and why."),
    "replay": ("dagrun.cli.replay:replay", "Fold the record of a run again, and call nothing."),
    "journal": ("dagrun.cli.journal:journal", "Verify the records of runs, or export them."),
    "prune": ("dagrun.cli.prune:prune", "Delete records that have expired."),
    "check": ("dagrun.cli.check:check", "List everything that is wrong with a plan."),
    "show": ("dagrun.cli.show:show", "Draw a plan as a tree, Mermaid, DOT or JSON."),
    "tools": ("dagrun.cli.tools:tools", "Say which tools there are, and what they take and give."),
    "prompt": ("dagrun.cli.prompt:prompt", "Print what a planner tells its model."),
    "schema": ("dagrun.cli.schema:schema", "Print the JSON Schema of plans."),
    "bench": ("dagrun.cli.bench:bench", "Measure what running in parallel gains."),
    "config": ("dagrun.cli.config:config", "Say which settings hold, and where they come from."),
    "completion": ("dagrun.cli.completion:completion", "Print a completion script for the shell."),
}

# Commands of other packages: an entry point each, to a click command.
ENTRY_POINTS: Final = "dagrun.commands"

EPILOG: Final = """
\b
Examples:
  dagrun check plan.json --tools my_tools
  dagrun run plan.json --tools my_tools
  dagrun do "what is wanted, in words" --tools my_tools --model NAME
"""


def _change_directory(context: click.Context, parameter: click.Parameter, folder: str | None) -> Any:
    if folder is not None:
        from dagrun.cli.options import change_directory

        change_directory(context, parameter, folder)


@click.group(
    cls=PluginGroup,
    entry_points=ENTRY_POINTS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EPILOG,
)
@click.option(
    "-C",
    "directory",
    metavar="DIR",
    is_eager=True,
    expose_value=False,
    callback=_change_directory,
    help="Do as if started in DIR.",
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def cli() -> None:
    """Make plans of tool calls, check them, and run them in parallel."""


for _name, (_target, _help_line) in COMMANDS.items():
    cli.add_lazy(_name, _target, _help_line)
