"""Commands whose options are the rows of the table that name them, and whose help is their docstring."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import click

from dagrun.cli.option_table import OPTIONS

_ALL: Final = "dagrun.cli.help-all"
# Options of release 0.2, and what they are called now. They are removed in 0.4.
OLD_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "runs": {"--standing": "--state"},
    "compare": {"--ways": "--variants"},
}
_EXAMPLES: Final = re.compile(r"^Examples?:$", re.MULTILINE)


class TableCommand(click.Command):
    """A command that shows the options of every day with ``--help``, and all of them with ``--help-all``.

    Args:
        args: Arguments of `click.Command`.
        more: The names of parameters that only ``--help-all`` shows.
        attributes: Further arguments of `click.Command`.
    """

    def __init__(self, *args: Any, more: frozenset[str | None], **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._more = more
        if more:
            text = f"Show all {sum(isinstance(one, click.Option) for one in self.params)} options and exit."
            flag: dict[str, Any] = {"is_flag": True, "is_eager": True, "expose_value": False, "callback": _show_all}
            self.params.append(click.Option(["--help-all"], help=text, **flag))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments, with old names of options replaced by their present ones."""
        renamed = OLD_OPTIONS.get(str(self.name), {})
        for at, word in enumerate(args):
            old, sign, value = word.partition("=")
            if new := renamed.get(old):
                args[at] = f"{new}{sign}{value}"
                click.echo(f"{old} is now called: {new}; the old name is removed in 0.4", err=True)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:  # click also suggests options that are there only to be refused
            hidden = {name for param in self.params if getattr(param, "hidden", False) for name in param.opts}
            near = [name for name in error.possibilities or () if name not in hidden]
            raise click.NoSuchOption(error.option_name, possibilities=near, ctx=ctx) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of every day; then the others, if they are wanted."""
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        usual = [option for option in options if option.name not in self._more]
        others = [option for option in options if option.name in self._more and ctx.meta.get(_ALL)]
        for heading, params in (("Options", usual), ("More options", others)):
            if records := [record for param in params if (record := param.get_help_record(ctx))]:
                with formatter.section(heading):
                    formatter.write_dl(records)


def _show_all(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    """Print the help page with all options, and end; the callback of ``--help-all``."""
    if value and not context.resilient_parsing:
        context.meta[_ALL] = True
        click.echo(context.get_help(), color=context.color)
        context.exit()


class DefaultGroup(click.Group):
    """A group that calls one of its commands where none is named.

    Args:
        args: Arguments of `click.Group`.
        default: That command, with the options that it gets then.
        attributes: Further arguments of `click.Group`.
    """

    def __init__(self, *args: Any, default: Sequence[str], **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._default = tuple(default)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments, with the default command in front if they name none."""
        names_none = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
        return super().parse_args(ctx, [*self._default, *args] if names_none else args)


def command(
    path: str, group: click.Group | None = None, **attributes: Any
) -> Callable[[Callable[..., Any]], click.Command]:
    """Return a decorator that makes a command of a function.

    The docstring is the help. From its examples on, it stands below the options, and paragraphs with indented lines
    keep their lines.

    Args:
        path: The command in the table of options: ``run``, ``mcp.serve``.
        group: The group that it belongs to; `None` for none.
        attributes: Further arguments of `click.Command`.
    """

    def decorate(function: Callable[..., Any]) -> click.Command:
        text = inspect.getdoc(function) or ""
        examples = match.start() if (match := _EXAMPLES.search(text)) else len(text)
        rows = [row for row in OPTIONS if path in row.usual or path in row.more or "*" in row.usual]
        made = TableCommand(
            path.rpartition(".")[2],
            callback=function,
            params=[row.parameter() for row in rows],
            more=frozenset(row.setting for row in rows if path in row.more),
            **{"help": text[:examples], "epilog": _lines_kept(text[examples:])} | attributes,
        )
        if group is not None:
            group.add_command(made)
        return made

    return decorate


def _lines_kept(text: str) -> str:
    """Return a text in which click keeps the lines of each paragraph with indented ones."""
    return "\n\n".join(f"\b\n{part}" if "\n  " in part else part for part in text.split("\n\n"))
