"""A row of the table of options, and how it becomes an option or an argument of click."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import click

from dagrun.cli.terminal.user_errors import BadInput

_DEFAULT: Final = "  [default"
_REPEATED: Final = " May be repeated."

# What a value is by the word that stands for it on the help page; any other word stands for a text.
_TYPES: Final[Mapping[str, click.ParamType[Any]]] = {
    "FILE": click.Path(dir_okay=False),
    "DIR": click.Path(file_okay=False),
    "PLAN": click.Path(allow_dash=True),
}


@dataclass(frozen=True, slots=True)
class OptionRow:
    """An option or an argument, and the commands that have it.

    Attributes:
        shown: It, as the help page shows it: ``-j, --max-running N``, ``--strict`` for a flag, ``--api [auto|chat]``
            for a choice, ``RUN``, ``[STEP]`` or ``PATH...`` for an argument.
        setting: The name of its value: that of a setting, if it sets one.
        text: The line of the help page.
        usual: The commands whose ``--help`` shows it.
        more: The commands whose ``--help-all`` shows it.
        attributes: Further arguments of `click.Option` or `click.Argument`.
    """

    shown: str
    setting: str
    text: str
    usual: frozenset[str]
    more: frozenset[str]
    attributes: Mapping[str, Any]

    def parameter(self) -> click.Parameter:
        """Return it for click."""
        *names, last = self.shown.replace(", ", " ").split()
        if not self.shown.startswith("-"):
            return self._argument(last)
        if last.startswith("-"):
            given: dict[str, Any] = {"is_flag": "count" not in self.attributes} | dict(self.attributes)
            return click.Option([*names, last, self.setting], help=self.text, **given)
        given = {"metavar": last, "type": _TYPES.get(last)}
        if last.startswith("[") and last.endswith("]"):
            given = {"type": click.Choice(last[1:-1].split("|"))}
        given |= self.attributes
        return click.Option([*names, self.setting], help=self._help(), **given)

    def _argument(self, word: str) -> click.Argument:
        given: dict[str, Any] = {"metavar": word, "type": _TYPES.get(word.strip("[]."))}
        given |= {"required": not word.startswith("["), "nargs": -1 if word.endswith("...") else 1}
        return click.Argument([self.setting], **(given | dict(self.attributes)))

    def _help(self) -> str:
        text, sign, default = self.text.partition(_DEFAULT)
        return text + _REPEATED * bool(self.attributes.get("multiple")) + sign + default


def row(shown: str, setting: str, text: str = "", **attributes: Any) -> OptionRow:
    """Return an option, or an argument, that no command has yet."""
    return OptionRow(shown, setting, text, frozenset(), frozenset(), attributes)


def rows_of(commands: str, *rows: OptionRow) -> Iterator[OptionRow]:
    """Yield rows with the commands that have them.

    Args:
        commands: Names with blanks between them, ``*`` for all; after a bar, those that show it with ``--help-all``.
        rows: The options and arguments.
    """
    usual, _, more = commands.partition("|")
    for one in rows:
        yield replace(one, usual=frozenset(usual.split()), more=frozenset(more.split()))


def change_directory(context: click.Context, parameter: click.Parameter, folder: str | None) -> None:
    """Change to another directory until the command ends; the callback of ``-C``."""
    if folder is None or context.resilient_parsing:
        return
    try:
        context.with_resource(contextlib.chdir(folder))
    except OSError as error:
        raise BadInput(f"cannot change to {folder}: {error.strerror}") from error


def refuse_key(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Refuse a key on the command line: other users can read it there, and shells keep it."""
    if value is not None:
        raise click.UsageError(
            "keys are never given on the command line, where others can read them: set OPENAI_API_KEY or"
            " ANTHROPIC_API_KEY in the environment; and change a key that you have given so",
            ctx=context,
        )


def complete_run(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of runs that begin with *incomplete*, for the completion of the shell; never an error."""
    try:
        from dagrun.cli.records.run_store import LAST, open_runs
        from dagrun.cli.setup.settings import configure

        names = open_runs(configure({name: context.params.get(name) for name in ("runs", "journal")})).names()
    except Exception:  # noqa: BLE001  (a traceback would appear in the middle of the typed line)
        return []
    return [name for name in [LAST, *reversed(names)] if name.startswith(incomplete)]
