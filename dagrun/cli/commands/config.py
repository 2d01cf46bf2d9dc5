"""``dagrun config``: shows the settings, and where each comes from."""

from __future__ import annotations

import json
from typing import Any, Final

import click

from dagrun.cli import options
from dagrun.cli.setup.settings import configure
from dagrun.cli.terminal.stdout import data_output
from dagrun.cli.terminal.text import SCHEMA_VERSION, columns

EPILOG: Final = """
\b
Example:
  dagrun config show

\b
A setting comes from the first of these places that has it:
  the command line
  the environment (DAGRUN_TOOLS=one,two and so on; OPENAI_BASE_URL or ANTHROPIC_BASE_URL)
  dagrun.toml, or [tool.dagrun] in pyproject.toml, of the project; or the file that DAGRUN_CONFIG names
  config.toml in your folder for settings of dagrun
"""


@click.group()
def config() -> None:
    """Show the settings."""


@config.command("show", epilog=EPILOG)
@options.combined(options.as_json, options.directory)
def show_config(*, as_json: bool) -> None:
    """Show each setting, and where it comes from."""
    configuration = configure({})
    values = configuration.settings.model_dump(mode="json")
    with data_output() as data:
        if as_json:
            shown = {name: {"value": values[name], "origin": configuration.origins[name].name} for name in values}
            data.json({"schema_version": SCHEMA_VERSION, "settings": shown})
            return
        rows = [(name, _shown(value), configuration.origins[name].name) for name, value in values.items()]
        data.text(columns(rows, head=("setting", "value", "from")))


def _shown(value: Any) -> str:
    return "-" if value is None else json.dumps(value, ensure_ascii=False)
