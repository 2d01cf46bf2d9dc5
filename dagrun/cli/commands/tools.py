"""``dagrun tools`` and ``dagrun schema``: what plans may call, for people, and as JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from dagrun.cli import options
from dagrun.cli.setup.settings import configure
from dagrun.cli.terminal.stdout import data_output
from dagrun.cli.terminal.text import SCHEMA_VERSION, columns

if TYPE_CHECKING:
    from dagrun.model.toolbox import Toolbox


@click.group(cls=options.DefaultGroup, default=["list"])
def tools() -> None:
    """List the tools, with their arguments and outputs; without a command, list."""


@tools.command("list", epilog="\b\nExample:\n  dagrun tools list --tools my_tools")
@options.combined(options.tools, options.as_json, options.directory)
def list_tools(*, as_json: bool, **flags: Any) -> None:
    """List the tools of a module; without --tools, the tools of installed packages."""
    from dagrun.cli.setup.tool_pages import as_dict

    with data_output() as data:
        toolbox = _toolbox(flags)
        if as_json:
            shown = [as_dict(tool) for tool in toolbox.values()]
            data.json({"schema_version": SCHEMA_VERSION, "tools": shown})
            return
        rows = [(t.name, str(t.effect), t.executor, t.description.partition("\n")[0]) for t in toolbox.values()]
        data.text(columns(rows, head=("tool", "effect", "runs in", "what it does")) if rows else "no tools")


@tools.command("show", epilog="\b\nExample:\n  dagrun tools show load_csv --tools dagrun_tools")
@click.argument("name")
@options.combined(options.tools, options.as_json, options.directory)
def show_tool(*, name: str, as_json: bool, **flags: Any) -> None:
    """Show the tool NAME: its description, effect, arguments and output."""
    from dagrun.cli.setup.tool_pages import as_dict, describe

    with data_output() as data:
        tool = _toolbox(flags)[name]
        if as_json:
            data.json({"schema_version": SCHEMA_VERSION, **as_dict(tool)})
        else:
            data.text("\n".join(describe(tool)))


def _toolbox(flags: Mapping[str, Any]) -> Toolbox:
    from dagrun.cli.setup.tool_modules import load_toolbox

    return load_toolbox(configure(flags), or_installed=True)


@click.group(cls=options.DefaultGroup, default=["plan"])
def schema() -> None:
    """Print a JSON Schema, for editors, planners and readers of events; without a command, that of plans."""


@schema.command("plan", epilog="\b\nExample:\n  dagrun schema plan > plan.schema.json")
def schema_of_plans() -> None:
    """Print the schema of all plans."""
    from dagrun.plans.plan_schemas import plan_schema

    with data_output() as data:
        data.json(plan_schema())


@schema.command("view", epilog="\b\nExample:\n  dagrun schema view > view.schema.json")
def schema_of_views() -> None:
    """Print the schema of the view of a run: the JSON that reports and pages are made of."""
    from dagrun.observe.view.shape import view_schema

    with data_output() as data:
        data.json(view_schema())


@schema.command("toolset", epilog="\b\nExample:\n  dagrun schema toolset --tools my_tools")
@options.combined(options.tools, options.directory)
def schema_of_toolset(**flags: Any) -> None:
    """Print the schema of plans that call only the tools of a module, in the form that models are given."""
    from dagrun.plans.plan_schemas import toolset_schema

    with data_output() as data:
        data.json(toolset_schema(_toolbox(flags)))


@schema.command("events", epilog="\b\nExample:\n  dagrun schema events > events.schema.json")
def schema_of_events() -> None:
    """Print the schema of events as JSON, as `Event.to_dict` makes them.

    Events and fields are added in later releases; none is changed or taken away.
    """
    from dagrun.model.event import event_types
    from dagrun.model.redaction.event_json import events_schema

    with data_output() as data:
        data.json(events_schema(event_types))
