"""``dagrun tools`` and ``dagrun schema``: what plans may call, for people, and as JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import click

from dagrun.cli import options
from dagrun.cli.setup.settings import configure
from dagrun.cli.setup.tool_modules import load_toolbox
from dagrun.cli.terminal.stdout import data_output
from dagrun.cli.terminal.text import SCHEMA_VERSION, columns
from dagrun.errors import shorten
from dagrun.model.toolbox import AnyTool, Toolbox

_LIMIT: Final = 400  # characters of the description of an argument


@click.group(cls=options.DefaultGroup, default=["list"])
def tools() -> None:
    """List the tools, with their arguments and outputs; without a command, list."""


@tools.command("list", epilog="\b\nExample:\n  dagrun tools list --tools my_tools")
@options.combined(options.tools, options.as_json, options.directory)
def list_tools(*, as_json: bool, **flags: Any) -> None:
    """List the tools of a module; without --tools, the tools of installed packages."""
    with data_output() as data:
        toolbox = _toolbox(flags)
        if as_json:
            shown = [_as_dict(tool) for tool in toolbox.values()]
            data.json({"schema_version": SCHEMA_VERSION, "tools": shown})
            return
        rows = [(t.name, str(t.effect), t.executor, t.description.partition("\n")[0]) for t in toolbox.values()]
        data.text(columns(rows, head=("tool", "effect", "runs in", "what it does")) if rows else "no tools")


@tools.command("show", epilog="\b\nExample:\n  dagrun tools show load_csv --tools dagrun_tools")
@click.argument("name")
@options.combined(options.tools, options.as_json, options.directory)
def show_tool(*, name: str, as_json: bool, **flags: Any) -> None:
    """Show the tool NAME: its description, effect, arguments and output."""
    with data_output() as data:
        tool = _toolbox(flags)[name]
        if as_json:
            data.json({"schema_version": SCHEMA_VERSION, **_as_dict(tool)})
        else:
            data.text("\n".join(_describe(tool)))


def _toolbox(flags: Mapping[str, Any]) -> Toolbox:
    return load_toolbox(configure(flags), or_installed=True)


def _as_dict(tool: AnyTool) -> dict[str, Any]:
    return {
        **tool.describe(),
        "effect_declared": tool.effect_declared,
        "executor": tool.executor,
        "timeout": tool.timeout,
        "pool": tool.pool,
        "needs_approval": tool.needs_approval,
        "fallback": tool.fallback,
    }


def _describe(tool: AnyTool) -> Iterator[str]:
    yield tool.name
    yield from (f"  {shorten(line, 1_000)}".rstrip() for line in tool.description.splitlines())
    yield ""
    yield f"effect: {tool.effect}{'' if tool.effect_declared else ' (not declared)'}"
    yield f"runs in: {tool.executor}"
    if tool.timeout is not None:
        yield f"time limit: {tool.timeout:g} s"
    if tool.needs_approval is not None:
        yield f"needs approval: {'yes' if tool.needs_approval else 'no'}"
    if tool.fallback is not None:
        yield f"fallback: {tool.fallback}"
    yield f"gives: {_kind(tool.output.schema) or 'anything'}"
    properties: Mapping[str, Any] = tool.arguments.schema.get("properties", {})
    yield "takes:" if properties else "takes: nothing"
    required = {name for name, parameter in tool.arguments.names.items() if parameter in tool.arguments.required}
    rows = [_argument(name, schema, is_required=name in required) for name, schema in properties.items()]
    yield from (f"  {line}" for line in columns(rows).splitlines())


def _argument(name: str, schema: Mapping[str, Any], *, is_required: bool) -> tuple[str, str, str, str]:
    default = "required" if is_required else f"default {shorten(json.dumps(schema.get('default')), 40)}"
    return name, _kind(schema), default, shorten(str(schema.get("description", "")), _LIMIT)


def _kind(schema: Mapping[str, Any]) -> str:
    """Return a JSON Schema in a word or two."""
    if "enum" in schema:
        return " | ".join(shorten(json.dumps(value), 40) for value in schema["enum"])
    if "const" in schema:
        return json.dumps(schema["const"])
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " | ".join(dict.fromkeys(_kind(part) for part in schema[key]))
    if schema.get("type") == "array" and schema.get("items"):
        return f"array of {_kind(schema['items'])}"
    return str(schema.get("type", "")).replace("python:", "an object in memory: ")


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
