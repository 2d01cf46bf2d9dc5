"""``dagrun schema``: the JSON Schema of plans."""

from __future__ import annotations

from typing import Any

import click

from dagrun.cli import options
from dagrun.cli.setup.settings import configure
from dagrun.cli.setup.tool_modules import load_toolbox
from dagrun.cli.terminal.stdout import data_output
from dagrun.plans.plan_schemas import plan_schema, toolset_schema


@click.group()
def schema() -> None:
    """Print a JSON Schema, for editors and planners."""


@schema.command("plan", epilog="\b\nExample:\n  dagrun schema plan > plan.schema.json")
def schema_of_plans() -> None:
    """Print the schema of any plan."""
    with data_output() as data:
        data.json(plan_schema())


@schema.command("toolset", epilog="\b\nExample:\n  dagrun schema toolset --tools my_tools")
@options.combined(options.tools, options.directory)
def schema_of_toolset(**flags: Any) -> None:
    """Print the schema of a plan that calls only the tools of a module, in the form that models are given."""
    with data_output() as data:
        data.json(toolset_schema(load_toolbox(configure(flags), or_installed=True)))
