"""``dagrun tools`` and ``dagrun schema``: the tools of plans, their weaknesses, and the JSON Schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from dagrun.cli.setup.settings import configure
from dagrun.cli.table_command import command
from dagrun.cli.terminal.text import SCHEMA_VERSION, Data, columns, data_output
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import shorten

if TYPE_CHECKING:
    from dagrun import Toolbox
    from dagrun.errors import Problem
    from dagrun.kernel.model.tool import AnyTool


@command("tools")
def tools(
    *,
    names: tuple[str, ...],
    check: bool,
    ignored: tuple[str, ...],
    rehearsed: str | None,
    then: str | None,
    as_json: bool,
    **flags: Any,
) -> int:
    """List the given tools, or the tools of installed packages; for MCP servers, with the source of each effect.

    With NAME, show the description, effect, arguments and output of this tool.

    --check reports tools that are hard to choose or unsafe to call: vague names and descriptions, outputs and
    arguments without a type, undeclared effects, too many arguments, no documented errors, an effect without approval
    or reconcile. Each finding has a code, a reason, and a fix.

    --check --rehearse calls an async tool without effects, cuts the call off at its first await, at its second, and so
    on, and reports programs, threads, tasks and sockets that are left, and what the next call then gets.

    Examples:
      dagrun tools --tools my_tools
      dagrun tools load_csv --tools my_tools
      dagrun tools --tools my_tools --check
      dagrun tools load_csv --tools my_tools --check --ignore DR810 --json
      dagrun tools weather -t my_tools --check --rehearse '{"city": "Oslo"}'

    Exit codes: 0, with --check 0 nothing was found, 1 something was; 2 wrong usage.
    """
    if not check and (ignored or rehearsed is not None):
        raise BadInput(f"{'--ignore' if ignored else '--rehearse'} is for --check")
    if then is not None and rehearsed is None:
        raise BadInput("--then is for --rehearse")
    if ignored and rehearsed is not None:
        raise BadInput("--ignore is for findings; a rehearsal has none")
    if rehearsed is not None and len(names) != 1:
        raise BadInput("--rehearse calls one tool: name it")
    with data_output() as data:
        toolbox = _toolbox(flags)
        chosen = [toolbox[name] for name in names] or list(toolbox.values())
        if rehearsed is not None:
            return _rehearse(chosen[0], _arguments("--rehearse", rehearsed), then, data, as_json=as_json)
        if check:
            return _check(chosen, ignored, data, as_json=as_json)
        if as_json:
            shown = [_as_dict(tool) for tool in chosen]
            data.json({"schema_version": SCHEMA_VERSION, **(shown[0] if len(names) == 1 else {"tools": shown})})
        elif names:
            data.text("\n\n".join("\n".join(_describe(tool)) for tool in chosen))
        else:
            data.text(_table(chosen) if chosen else "no tools")
    return 0


def _rehearse(tool: AnyTool, args: dict[str, Any], then: str | None, data: Data, *, as_json: bool) -> int:
    import anyio

    from dagrun.testing import rehearse_cancel

    after = None if then is None else _arguments("--then", then)
    seen = anyio.run(rehearse_cancel, tool, args, after)
    if as_json:
        data.json({"schema_version": SCHEMA_VERSION, **asdict(seen)})
    else:
        data.text(str(seen))
    return int(bool(seen.faults))


def _arguments(option: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise BadInput(f'{option} takes a JSON object, such as \'{{"city": "Oslo"}}\', not {shorten(text, 60)}')
    return found


def _check(chosen: Sequence[AnyTool], ignored: Sequence[str], data: Data, *, as_json: bool) -> int:
    from dagrun import check_tools
    from dagrun.problem_texts import FIXES

    if unknown := [code for code in ignored if code not in FIXES]:
        raise BadInput(f"--ignore {unknown[0]}: there is no such code; they are {min(FIXES)} to {max(FIXES)}")
    found = check_tools(chosen, ignore=ignored)
    if as_json:
        listed = [{**problem.as_dict(), "fix": problem.fix} for problem in found]
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
            yield f"         fix: {problem.fix}"


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


_PIN: Final = 12  # digits of a pin in a table
_LIMIT: Final = 400  # characters of the description of an argument


def _as_dict(tool: AnyTool) -> dict[str, Any]:
    """Return a tool as plain JSON."""
    return {
        **tool.describe(),
        "effect_declared": tool.effect_declared,
        "executor": tool.executor,
        "timeout": tool.timeout,
        "pool": tool.pool,
        "needs_approval": tool.needs_approval,
        "fallback": tool.fallback,
        "cache": tool.cache,
        "batch": None if tool.batch is None else {"max_calls": tool.batch.max_calls, "within": tool.batch.within},
        "untrusted": list(tool.untrusted) if isinstance(tool.untrusted, tuple) else tool.untrusted,
        "private": tool.private,
        "outbound": tool.outbound,
        "guarded": sorted(tool.arguments.guarded),
        "origin": None if tool.origin is None else asdict(tool.origin),
    }


def _table(tools: Sequence[AnyTool]) -> str:
    """Return tools as a table: name, effect and description; for MCP servers, also the effect's source and the pin."""
    with_origin = any(tool.origin is not None for tool in tools)
    head = ("tool", "effect", *(("said by", "pin") if with_origin else ()), "runs in", "what it does")
    return columns([_row(tool, with_origin=with_origin) for tool in tools], head=head)


def _row(tool: AnyTool, *, with_origin: bool) -> tuple[str, ...]:
    about = f"REFUSED: it {tool.refusal}" if tool.refusal else tool.description.partition("\n")[0]
    return (tool.name, str(tool.effect), *(_said(tool) if with_origin else ()), tool.executor, about)


def _said(tool: AnyTool) -> tuple[str, str]:
    if tool.origin is None:
        return "host" if tool.effect_declared else "nobody", "-"
    return tool.origin.said_by, tool.origin.pin[:_PIN]


def _describe(tool: AnyTool) -> Iterator[str]:
    """Yield the lines that describe a tool."""
    yield tool.name
    yield from (f"  {shorten(line, 1_000)}".rstrip() for line in tool.description.splitlines())
    yield ""
    yield from _effect(tool)
    yield f"runs in: {tool.executor}"
    if tool.timeout is not None:
        yield f"time limit: {tool.timeout:g} s"
    if tool.needs_approval is not None:
        yield f"needs approval: {'yes' if tool.needs_approval else 'no'}"
    if tool.fallback is not None:
        yield f"fallback: {tool.fallback}"
    if tool.cache is not None:
        kept = f"the {tool.cache}" if isinstance(tool.cache, str) else f"{tool.cache:g} s"
        yield f"keeps results: for {kept}"
    if tool.batch is not None:
        yield f"batches: up to {tool.batch.max_calls} calls within {tool.batch.within:g} s"
    yield from _boundary(tool)
    yield f"gives: {_kind(tool.output.schema) or 'anything'}"
    properties: Mapping[str, Any] = tool.arguments.schema.get("properties", {})
    yield "takes:" if properties else "takes: nothing"
    required = {name for name, parameter in tool.arguments.names.items() if parameter in tool.arguments.required}
    rows = [_argument(name, schema, is_required=name in required) for name, schema in properties.items()]
    yield from (f"  {line}" for line in columns(rows).splitlines())


def _effect(tool: AnyTool) -> Iterator[str]:
    """Yield the effect of a tool; for a tool of a server, also the source of the effect, and the pin."""
    origin = tool.origin
    if origin is None:
        yield f"effect: {tool.effect}{'' if tool.effect_declared else ' (not declared)'}"
        return
    yield f"effect: {tool.effect} (said by: {origin.said_by})"
    yield f"server: {origin.server}"
    yield f"pin: {origin.pin}"
    if origin.refusal:
        yield f"refused: it {origin.refusal}"


def _boundary(tool: AnyTool) -> Iterator[str]:
    """Yield the declarations of a tool about the trust boundary."""
    if tool.untrusted:
        parts = ", ".join(tool.untrusted) if isinstance(tool.untrusted, tuple) else "all of what it gives"
        yield f"others can write: {parts}"
    if tool.private:
        yield "private: what it gives must not leave"
    if tool.outbound:
        yield "outbound: a call carries its arguments out"
    if tool.arguments.guarded:
        yield f"guards: {', '.join(sorted(tool.arguments.guarded))}"


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
