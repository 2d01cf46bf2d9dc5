"""Tools as people and programs are shown them by ``dagrun tools``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from dagrun.cli.terminal.text import columns
from dagrun.errors import shorten
from dagrun.kernel.model.toolbox import AnyTool

_PIN: Final = 12  # digits of a pin in a table
_LIMIT: Final = 400  # characters of the description of an argument


def as_dict(tool: AnyTool) -> dict[str, Any]:
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


def table(tools: Sequence[AnyTool]) -> str:
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


def describe(tool: AnyTool) -> Iterator[str]:
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
