"""``dagrun tools`` and ``dagrun schema``: the tools of plans, their weaknesses, and the JSON Schemas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from dagrun.cli.setup.settings import configure
from dagrun.cli.table_command import DefaultGroup, command
from dagrun.cli.terminal.stdout import data_output
from dagrun.cli.terminal.text import SCHEMA_VERSION
from dagrun.cli.terminal.user_errors import BadInput

if TYPE_CHECKING:
    from dagrun.errors import Problem
    from dagrun.model.toolbox import Toolbox


@click.group(cls=DefaultGroup, default=["list"])
def tools() -> None:
    """List the tools, with their arguments and outputs, or check how they are declared; without a command, list."""


@command("tools.list", tools, short_help="List the named tools, or those of installed packages.")
def list_tools(*, as_json: bool, **flags: Any) -> None:
    """List the given tools, or the tools of installed packages; for MCP servers, with the source of each effect.

    Example:
      dagrun tools list --tools my_tools
    """
    from dagrun.cli.setup.tool_pages import as_dict, table

    with data_output() as data:
        toolbox = _toolbox(flags)
        if as_json:
            shown = [as_dict(tool) for tool in toolbox.values()]
            data.json({"schema_version": SCHEMA_VERSION, "tools": shown})
            return
        data.text(table(list(toolbox.values())) if toolbox else "no tools")


@command("tools.show", tools)
def show_tool(*, name: str, as_json: bool, **flags: Any) -> None:
    """Show the tool NAME: its description, effect, arguments and output.

    Example:
      dagrun tools show load_csv --tools dagrun_tools
    """
    from dagrun.cli.setup.tool_pages import as_dict, describe

    with data_output() as data:
        tool = _toolbox(flags)[name]
        if as_json:
            data.json({"schema_version": SCHEMA_VERSION, **as_dict(tool)})
        else:
            data.text("\n".join(describe(tool)))


@command("tools.check", tools, short_help="Report tools that are hard to choose or unsafe to call.")
def check_tools(*, names: tuple[str, ...], ignored: tuple[str, ...], as_json: bool, **flags: Any) -> int:
    """Report tools that are hard to choose or unsafe to call; without NAME, check all tools.

    Vague names and descriptions, outputs and arguments without a type, undeclared effects, too many arguments, no
    documented errors, an effect without approval or reconcile: each finding has a code, a reason, and a fix.

    Examples:
      dagrun tools check --tools my_tools
      dagrun tools check load_csv --tools my_tools --ignore DR810 --json

    Exit codes: 0 nothing was found, 1 something was, 2 wrong usage.
    """
    from dagrun.checks.tool_advice import check_tools as found_in
    from dagrun.problem_texts import MENDS

    if unknown := [code for code in ignored if code not in MENDS]:
        raise BadInput(f"--ignore {unknown[0]}: there is no such code; they are {min(MENDS)} to {max(MENDS)}")
    with data_output() as data:
        toolbox = _toolbox(flags)
        chosen = [toolbox[name] for name in names] or list(toolbox.values())
        found = found_in(chosen, ignore=ignored)
        if as_json:
            listed = [{**problem.as_dict(), "fix": problem.mend} for problem in found]
            data.json({"schema_version": SCHEMA_VERSION, "tools": len(chosen), "findings": listed})
        else:
            data.text("\n".join(_findings(len(chosen), found)))
    return int(bool(found))


def _findings(tools: int, found: Sequence[Problem]) -> Iterator[str]:
    count = f"{len(found)} finding{'s' * (len(found) != 1)}" if found else "nothing to say"
    yield f"{tools} tool{'s' * (tools != 1)}, {count}"
    for name, problems in groupby(found, key=lambda problem: problem.path):
        yield f"\n{name}"
        for problem in problems:
            yield f"  {problem.code}  {problem.sentence}"
            yield f"         fix: {problem.mend}"


def _toolbox(flags: Mapping[str, Any]) -> Toolbox:
    from dagrun.cli.setup.tool_modules import load_toolbox

    return load_toolbox(configure(flags), or_installed=True)


@click.group(cls=DefaultGroup, default=["plan"])
def schema() -> None:
    """Print a JSON Schema, for editors, planners and readers of events; without a command, the schema of plans."""


@command("schema.plan", schema)
def schema_of_plans() -> None:
    """Print the schema of all plans.

    Example:
      dagrun schema plan > plan.schema.json
    """
    from dagrun.plans.plan_schemas import plan_schema

    with data_output() as data:
        data.json(plan_schema())


@command("schema.view", schema, short_help="Print the schema of the view of a run, for reports and pages.")
def schema_of_views() -> None:
    """Print the schema of the view of a run: the JSON behind reports and pages.

    Example:
      dagrun schema view > view.schema.json
    """
    from dagrun.observe.view.shape import view_schema

    with data_output() as data:
        data.json(view_schema())


@command("schema.toolset", schema, short_help="Print the schema of plans that call only the named tools.")
def schema_of_toolset(**flags: Any) -> None:
    """Print the schema of plans that call only the tools of a module, in the form that models are given.

    Example:
      dagrun schema toolset --tools my_tools
    """
    from dagrun.plans.plan_schemas import toolset_schema

    with data_output() as data:
        data.json(toolset_schema(_toolbox(flags)))


@command("schema.eval", schema, short_help="Print the schema of files of golden tasks.")
def schema_of_cases() -> None:
    """Print the schema of files of golden tasks, which `dagrun eval` carries out.

    Example:
      dagrun schema eval > eval.schema.json
    """
    from dagrun.evaluate.cases.case_file import case_schema

    with data_output() as data:
        data.json(case_schema())


@command("schema.events", schema, short_help="Print the schema of events as JSON.")
def schema_of_events() -> None:
    """Print the schema of events as JSON, as `Event.to_dict` makes them.

    Events and fields are added in later releases; none is changed or taken away.

    Example:
      dagrun schema events > events.schema.json
    """
    from dagrun.model.event import event_types
    from dagrun.model.redaction.event_json import events_schema

    with data_output() as data:
        data.json(events_schema(event_types))
