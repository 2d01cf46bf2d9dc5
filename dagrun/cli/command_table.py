"""The command ``dagrun`` and the table of its subcommands, which are imported when they are called."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from typing import Any, Final

import click

from dagrun._version import __version__


class LazyCommand(click.Command):
    """The name and help line of a command whose module is not imported yet."""

    def __init__(self, name: str, target: str, help_line: str) -> None:
        super().__init__(name, short_help=help_line)
        self.target = target

    def load(self) -> click.Command:
        """Import the command from ``module:attribute``."""
        module, _, attribute = self.target.partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command), f"{self.target} is not a click command"
        return command


class LazyGroup(click.Group):
    """A group of lazy commands. Its help page imports none of them; a call imports the one that is called."""

    def add_lazy(self, name: str, target: str, help_line: str) -> None:
        """Add the command at *target* (``module:attribute``) as *name*."""
        self.add_command(LazyCommand(name, target, help_line))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that *args* call, and import its module."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, LazyCommand) else command, rest


class PluginGroup(LazyGroup):
    """A lazy group that installed packages can extend by entry points.

    Entry points are read only for the help page, and for a name that is not in the table. A plug-in that cannot be
    loaded shows as a line on the help page, and does not affect other commands.

    Args:
        args: Arguments of `click.Group`.
        entry_points: The name of the group of entry points.
        attributes: Further arguments of `click.Group`.
    """

    def __init__(self, *args: Any, entry_points: str, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._entry_points = entry_points

    @cached_property
    def _plugins(self) -> Mapping[str, Any]:
        from importlib.metadata import entry_points

        return {point.name: point for point in entry_points(group=self._entry_points)}

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that *args* call, by its present or by an old name."""
        old = old_name(args)
        if old and (args[0] in self.commands or args[0] not in self._plugins):
            new = OLD_NAMES[old]
            args = [*new.split(), *args[len(old.split()) :]]
            if not ctx.resilient_parsing:
                click.echo(f"dagrun {old} is now called: dagrun {new}; the old name is removed in 0.4", err=True)
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of our own commands in their order, then the names from other packages."""
        return [*self.commands, *sorted(self._plugins.keys() - self.commands.keys())]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by groups, with their help lines in one column."""
        names = self.list_commands(ctx)
        grouped = {heading: [name for name in listed if name in names] for heading, listed in GROUPS.items()}
        grouped[_OTHERS] = [name for name in names if not any(name in listed for listed in GROUPS.values())]
        widest = max(map(len, names))
        room = formatter.width - widest - 6
        for heading, listed in grouped.items():
            commands = [(name, self.get_command(ctx, name)) for name in listed]
            rows = [(name.ljust(widest), command.get_short_help_str(room)) for name, command in commands if command]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by its name; `None` if there is none."""
        own = super().get_command(ctx, cmd_name)
        if own is not None or cmd_name not in self._plugins:
            return own
        try:
            command = self._plugins[cmd_name].load()
            if not isinstance(command, click.Command):
                raise TypeError(f"{self._plugins[cmd_name].value} is no click command")
        except Exception as error:  # noqa: BLE001  (another package may raise anything while it is imported)
            return _broken(cmd_name, self._plugins[cmd_name].value, error)
        return command


def old_name(args: list[str]) -> str:
    """Return the old name of a command that arguments begin with; empty if they begin with none."""
    return next((old for old in OLD_NAMES if args[: len(old.split())] == old.split()), "")


def _broken(name: str, target: str, error: Exception) -> click.Command:
    """Return a command that stands in for one that cannot be loaded."""
    from dagrun.errors import shorten

    fault = shorten(f"{type(error).__name__}: {error}")

    def fail(**_: Any) -> None:
        raise click.ClickException(f"the command {name} ({target}) cannot be loaded: {fault}")

    settings = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
    short = f"(cannot be loaded: {fault})"
    return click.Command(name, callback=fail, short_help=short, context_settings=settings)


# The target (module:attribute) and the help line of each command. A command returns its exit code; `None` stands for 0.
COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "new": ("dagrun.cli.commands.config:new", "Make a project to start from: tools, a plan, a policy, tests."),
    "do": ("dagrun.cli.commands.run:do", "Let a planner write a plan for a goal, and run it."),
    "plan": ("dagrun.cli.commands.plan:plan", "Let a planner write a plan for a goal, or show its prompt."),
    "run": ("dagrun.cli.commands.run:run", "Check a plan and run it."),
    "resume": ("dagrun.cli.commands.resume:resume", "Resume a run that was interrupted, killed, or waits."),
    "retry": ("dagrun.cli.commands.resume:retry", "Run the failed part of a run again."),
    "runs": ("dagrun.cli.commands.runs:runs", "List the recorded runs, and the state of each."),
    "answer": ("dagrun.cli.commands.answer:answer", "Answer a question of a run: yes, no, or a value."),
    "stop": ("dagrun.cli.commands.stop:stop", "Stop a run of another process, or one step of it."),
    "serve": ("dagrun.cli.commands.serve:serve", "Show runs in a browser, answer them, and stop them."),
    "mcp": ("dagrun.cli.commands.serve:mcp", "Offer plans to other programs, as tools of an MCP server."),
    "submit": ("dagrun.cli.commands.submit:submit", "Check a plan, and leave the run to a worker."),
    "worker": ("dagrun.cli.commands.worker:worker", "Run the submitted runs."),
    "inspect": ("dagrun.cli.commands.inspect:inspect", "Show the history of a run, with reasons."),
    "report": ("dagrun.cli.commands.report:report", "Write a page, a picture or a text about a run."),
    "metrics": ("dagrun.cli.commands.evaluate.metrics:metrics", "Measure the recorded runs: success, times, cost."),
    "learn": (
        "dagrun.cli.commands.evaluate.learn:learn",
        "Make routes from successful plans; they need no model.",
    ),
    "prune": ("dagrun.cli.commands.runs:prune", "Delete records that have expired."),
    "check": ("dagrun.cli.commands.check:check", "List all problems of a plan."),
    "show": ("dagrun.cli.commands.show:show", "Draw a plan as text, a picture or a page."),
    "tools": ("dagrun.cli.commands.tools:tools", "List the tools, show one, or check how they are declared."),
    "schema": ("dagrun.cli.commands.tools:schema", "Print the JSON Schema of plans, events and other files."),
    "eval": ("dagrun.cli.commands.evaluate.eval:eval_group", "Run golden tasks, and report what differs."),
    "compare": (
        "dagrun.cli.commands.evaluate.compare:compare",
        "Compare planners and policies on golden tasks.",
    ),
    "bench": ("dagrun.cli.commands.evaluate.bench:bench", "Measure how much time a plan saves by running in parallel."),
    "sim": ("dagrun.cli.commands.evaluate.sim:sim", "Simulate runs of a plan, and call no tool."),
    "config": ("dagrun.cli.commands.config:config", "Show the settings, or trust a file of settings."),
    "completion": ("dagrun.cli.commands.config:completion", "Print a completion script for the shell."),
}

# Commands of release 0.2, and what they are called now. They are removed in 0.4.
OLD_NAMES: Final[Mapping[str, str]] = {
    "approve": "answer",
    "cancel": "stop",
    "suspend": "stop --suspend",
    "requeue": "resume --requeue",
    "follow": "inspect --follow",
    "replay": "inspect --state",
    "journal export": "inspect --export",
    "journal verify --all": "runs --verify",
    "journal verify": "runs --verify",
    "journal": "runs --verify",
    "prompt": "plan --show-prompt",
    "tools list": "tools",
    "tools show": "tools",
    "tools check": "tools --check",
    "mcp check": "mcp pin --check",
    "config distrust": "config trust --undo",
}

# The headings of the help page, each with its commands; what no heading has comes last.
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "Plans": ("run", "check", "show", "eval", "compare", "sim", "bench"),
    "Goals": ("do", "plan"),
    "Running and waiting runs": ("resume", "retry", "answer", "stop", "serve"),
    "Runs for workers": ("submit", "worker"),
    "Records": ("runs", "inspect", "report", "metrics", "learn", "prune"),
    "Set-up": ("new", "tools", "mcp", "schema", "config", "completion"),
}
_OTHERS: Final = "More commands"

# The group of entry points by which other packages add commands; each refers to a click command.
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
    help="Run in DIR.",
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def cli() -> None:
    """Write plans of tool calls, check them, and run them in parallel."""


for _name, (_target, _help_line) in COMMANDS.items():
    cli.add_lazy(_name, _target, _help_line)
