"""``dagrun tools`` and ``dagrun schema``: the tools of plans, their weaknesses, and the JSON Schemas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from dagrun.cli.setup.settings import configure
from dagrun.cli.table_command import command
from dagrun.cli.terminal.text import SCHEMA_VERSION, Data, data_output
from dagrun.cli.terminal.user_errors import BadInput

if TYPE_CHECKING:
    from dagrun.errors import Problem
    from dagrun.kernel.model.toolbox import AnyTool, Toolbox


@command("tools")
def tools(*, names: tuple[str, ...], check: bool, ignored: tuple[str, ...], as_json: bool, **flags: Any) -> int:
    """List the given tools, or the tools of installed packages; for MCP servers, with the source of each effect.

    With NAME, show the description, effect, arguments and output of this tool.

    --check reports tools that are hard to choose or unsafe to call: vague names and descriptions, outputs and
    arguments without a type, undeclared effects, too many arguments, no documented errors, an effect without approval
    or reconcile. Each finding has a code, a reason, and a fix.

    Examples:
      dagrun tools --tools my_tools
      dagrun tools load_csv --tools my_tools
      dagrun tools --tools my_tools --check
      dagrun tools load_csv --tools my_tools --check --ignore DR810 --json

    Exit codes: 0, with --check 0 nothing was found, 1 something was; 2 wrong usage.
    """
    from dagrun.cli.setup.tool_pages import as_dict, describe, table

    if ignored and not check:
        raise BadInput("--ignore is for --check")
    with data_output() as data:
        toolbox = _toolbox(flags)
        chosen = [toolbox[name] for name in names] or list(toolbox.values())
        if check:
            return _check(chosen, ignored, data, as_json=as_json)
        if as_json:
            shown = [as_dict(tool) for tool in chosen]
            data.json({"schema_version": SCHEMA_VERSION, **(shown[0] if len(names) == 1 else {"tools": shown})})
        elif names:
            data.text("\n\n".join("\n".join(describe(tool)) for tool in chosen))
        else:
            data.text(table(chosen) if chosen else "no tools")
    return 0


def _check(chosen: Sequence[AnyTool], ignored: Sequence[str], data: Data, *, as_json: bool) -> int:
    from dagrun.advice.tool_advice import check_tools
    from dagrun.problem_texts import MENDS

    if unknown := [code for code in ignored if code not in MENDS]:
        raise BadInput(f"--ignore {unknown[0]}: there is no such code; they are {min(MENDS)} to {max(MENDS)}")
    found = check_tools(chosen, ignore=ignored)
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


@command("schema")
def schema(*, kind: str, **flags: Any) -> None:
    """Print a JSON Schema, for editors, planners and readers of events; by default, the schema of all plans.

    toolset is the schema of plans that call only the tools of --tools, in the form that models are given; view, of the
    JSON behind reports and pages; eval, of the files of golden tasks; events, of events as Event.to_dict
    makes them. Events and fields are added in later releases; none is changed or taken away.

    Examples:
      dagrun schema > plan.schema.json
      dagrun schema toolset --tools my_tools
      dagrun schema events > events.schema.json
    """
    with data_output() as data:
        data.json(_schema(kind, flags))


def _schema(kind: str, flags: Mapping[str, Any]) -> Mapping[str, Any]:
    match kind:
        case "view":
            from dagrun.observe.view.shape import view_schema

            return view_schema()
        case "toolset":
            from dagrun.planners.answers.plan_schemas import toolset_schema

            return toolset_schema(_toolbox(flags))
        case "eval":
            from dagrun.evaluate.cases.case_file import case_schema

            return case_schema()
        case "events":
            from dagrun.kernel.model.event import event_types
            from dagrun.kernel.model.redaction.event_json import events_schema

            return events_schema(event_types)
        case _:
            from dagrun.planners.answers.plan_schemas import plan_schema

            return plan_schema()
