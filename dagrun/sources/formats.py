"""Definitions of tools in the formats of other libraries, made tools of dagrun. Nothing of them is imported."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from dagrun.errors import ContractError, shorten
from dagrun.kernel.model.effect import Effect
from dagrun.kernel.model.tool import Tool
from dagrun.kernel.model.tool_context import ToolContext
from dagrun.sources.schemas import Call, schema_tool

NamedCall = Callable[[str, dict[str, Any]], Awaitable[Any]]

# Under these keys stand the schemas: OpenAI's two APIs, Anthropic, MCP.
_ARGUMENTS: Final = ("parameters", "input_schema", "inputSchema")
_OUTPUTS: Final = ("outputSchema", "output_schema")
_NO_ARGUMENTS: Final[Mapping[str, Any]] = {"type": "object", "properties": {}}


def schema_tools(
    definitions: Iterable[Any],
    call: NamedCall | None = None,
    *,
    effects: Mapping[str, Effect | str] | None = None,
    prefix: str = "",
    **options: Any,
) -> list[Tool[..., Any]]:
    """Make tools of definitions in the formats of others.

    A definition is an object as OpenAI (``{"type": "function", "function": {…}}``, or with its fields beside ``type``),
    Anthropic (``input_schema``) or MCP (``inputSchema``, ``outputSchema``) write it; or a tool of LangChain, which
    brings its own ``ainvoke``. What a definition says about its effects does not count: it may come from anywhere.

    Args:
        definitions: The definitions.
        call: The async function that makes the calls; it takes the name of a tool, as the definition has it, and the
            arguments. Only tools of LangChain do without.
        effects: The effects by name, as the definitions have it. A tool that is not in it counts as effectful.
        prefix: Text before every name: ``"crm."``.
        options: Options of every tool; see `schema_tool`.

    Raises:
        ContractError: A definition is of no known format, its schema cannot be used, two have one name, or *effects*
            names a tool that is not there.
    """
    known = dict(effects or {})
    tools: dict[str, Tool[..., Any]] = {}
    for definition in definitions:
        name, description, arguments, output = _parts_of(definition)
        tool = schema_tool(
            f"{prefix}{name}",
            _call_of(definition, name, call),
            arguments,
            output=output,
            effect=known.pop(name, None),
            description=description,
            **options,
        )
        if tool.name in tools:
            raise ContractError(f"two tools are called {tool.name}; give one of them another name")
        tools[tool.name] = tool
    if known:
        raise ContractError(f"effects names {shorten(', '.join(known))}, which no definition has")
    return list(tools.values())


def _parts_of(definition: Any) -> tuple[str, str, Any, Any]:
    """Return name, description, schema of the arguments and schema of the output."""
    if isinstance(definition, Mapping):
        fields = definition.get("function", definition)
        if isinstance(fields, Mapping) and isinstance(fields.get("name"), str):
            arguments = next((fields[key] for key in _ARGUMENTS if fields.get(key) is not None), _NO_ARGUMENTS)
            output = next((fields[key] for key in _OUTPUTS if fields.get(key) is not None), None)
            return fields["name"], str(fields.get("description") or ""), arguments, output
    elif callable(getattr(definition, "ainvoke", None)) and isinstance(getattr(definition, "name", None), str):
        return definition.name, str(getattr(definition, "description", "") or ""), _langchain_schema(definition), None
    raise ContractError(
        f"{shorten(repr(definition), 80)} is no definition of a tool: those of OpenAI, Anthropic and MCP are objects "
        "with a name, tools of LangChain have a name and ainvoke"
    )


def _langchain_schema(tool: Any) -> Any:
    """Return the schema of a tool of LangChain for a model's arguments, without injected arguments."""
    for name in ("tool_call_schema", "args_schema"):
        schema = getattr(tool, name, None)
        if isinstance(schema, Mapping):
            return schema
        if callable(make := getattr(schema, "model_json_schema", None)):
            return make()
    return {"type": "object", "properties": getattr(tool, "args", {})}


def _call_of(definition: Any, name: str, call: NamedCall | None) -> Call:
    if call is not None:
        return partial(_call_by_name, call, name)
    if callable(getattr(definition, "ainvoke", None)):
        return partial(_invoke, definition)
    raise ContractError(f"{name}: nothing can call it; give schema_tools a call(name, arguments)")


async def _call_by_name(call: NamedCall, name: str, arguments: dict[str, Any], context: ToolContext) -> Any:
    result = call(name, arguments)
    if not inspect.isawaitable(result):
        raise ContractError(f"{name}: call must be an async function; a plain one would block every other step")
    return await result


async def _invoke(tool: Any, arguments: dict[str, Any], context: ToolContext) -> Any:
    return await tool.ainvoke(arguments)
