"""``dagrun tools`` and ``dagrun schema``: what plans may call, what is wrong with it, and the JSON Schemas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import click

from dagrun.cli import options
from dagrun.cli.setup.settings import configure
from dagrun.cli.terminal.stdout import data_output
from dagrun.cli.terminal.text import SCHEMA_VERSION
from dagrun.cli.terminal.user_errors import BadInput

if TYPE_CHECKING:
    from dagrun.errors import Problem
    from dagrun.model.toolbox import Toolbox

CHECK: Final = """
\b
Examples:
  dagrun tools check --tools my_tools
  dagrun tools check load_csv --tools my_tools --ignore DR810 --json

Exit codes: 0 nothing was found, 1 something was, 2 wrong usage.
"""


@click.group(cls=options.DefaultGroup, default=["list"])
def tools() -> None:
    """List the tools, with their arguments and outputs, or check how they are declared; without a command, list."""


@tools.command(
    "list",
    epilog="\b\nExample:\n  dagrun tools list --tools my_tools",
    short_help="List the named tools, or those of installed packages.",
)
@options.combined(options.tools, options.secrets, options.as_json, options.directory)
def list_tools(*, as_json: bool, **flags: Any) -> None:
    """List the tools that are named, or those of installed packages; of MCP servers, also who said their effect."""
    from dagrun.cli.setup.tool_pages import as_dict, table

    with data_output() as data:
        toolbox = _toolbox(flags)
        if as_json:
            shown = [as_dict(tool) for tool in toolbox.values()]
            data.json({"schema_version": SCHEMA_VERSION, "tools": shown})
            return
        data.text(table(list(toolbox.values())) if toolbox else "no tools")


@tools.command("show", epilog="\b\nExample:\n  dagrun tools show load_csv --tools dagrun_tools")
@click.argument("name")
@options.combined(options.tools, options.secrets, options.as_json, options.directory)
def show_tool(*, name: str, as_json: bool, **flags: Any) -> None:
    """Show the tool NAME: its description, effect, arguments and output."""
    from dagrun.cli.setup.tool_pages import as_dict, describe

    with data_output() as data:
        tool = _toolbox(flags)[name]
        if as_json:
            data.json({"schema_version": SCHEMA_VERSION, **as_dict(tool)})
        else:
            data.text("\n".join(describe(tool)))


@tools.command("check", epilog=CHECK, short_help="Look for what makes tools hard to choose or unsafe to call.")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--ignore", "ignored", metavar="CODE", multiple=True, help="Leave out findings of this code; repeatable.")
@options.combined(options.tools, options.secrets, options.as_json, options.directory)
def check_tools(*, names: tuple[str, ...], ignored: tuple[str, ...], as_json: bool, **flags: Any) -> int:
    """Look for what makes tools hard to choose or unsafe to call; without NAME, in all of them.

    Vague names and descriptions, outputs and arguments without a type, undeclared effects, too many arguments, no way
    to fail, an effect without approval or reconcile: each finding has a code, a reason, and what to do about it.
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
            listed = [{**problem.as_dict(), "mend": problem.mend} for problem in found]
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
            yield f"         mend: {problem.mend}"


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


@schema.command(
    "view",
    epilog="\b\nExample:\n  dagrun schema view > view.schema.json",
    short_help="Print the schema of the view of a run, for reports and pages.",
)
def schema_of_views() -> None:
    """Print the schema of the view of a run: the JSON that reports and pages are made of."""
    from dagrun.observe.view.shape import view_schema

    with data_output() as data:
        data.json(view_schema())


@schema.command(
    "toolset",
    epilog="\b\nExample:\n  dagrun schema toolset --tools my_tools",
    short_help="Print the schema of plans that call only the named tools.",
)
@options.combined(options.tools, options.secrets, options.directory)
def schema_of_toolset(**flags: Any) -> None:
    """Print the schema of plans that call only the tools of a module, in the form that models are given."""
    from dagrun.plans.plan_schemas import toolset_schema

    with data_output() as data:
        data.json(toolset_schema(_toolbox(flags)))


@schema.command(
    "eval",
    epilog="\b\nExample:\n  dagrun schema eval > eval.schema.json",
    short_help="Print the schema of files of golden tasks.",
)
def schema_of_cases() -> None:
    """Print the schema of files of golden tasks, which `dagrun eval` carries out."""
    from dagrun.evaluate.cases.case_file import case_schema

    with data_output() as data:
        data.json(case_schema())


@schema.command(
    "events",
    epilog="\b\nExample:\n  dagrun schema events > events.schema.json",
    short_help="Print the schema of events as JSON.",
)
def schema_of_events() -> None:
    """Print the schema of events as JSON, as `Event.to_dict` makes them.

    Events and fields are added in later releases; none is changed or taken away.
    """
    from dagrun.model.event import event_types
    from dagrun.model.redaction.event_json import events_schema

    with data_output() as data:
        data.json(events_schema(event_types))
