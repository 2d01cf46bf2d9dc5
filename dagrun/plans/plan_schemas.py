"""JSON Schemas of plans, for editors; and of the answers of planners, for a set of tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from dagrun.model.contracts.objects import is_object_place
from dagrun.model.plan import Plan
from dagrun.model.reference import ID_PATTERN
from dagrun.model.secrets.secret import KEY, Secrets, handle_schema
from dagrun.model.toolbox import AnyTool, Toolbox

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"

# Keywords that strict output modes of models refuse. The checker checks values against them anyway.
_LEFT_OUT: Final = frozenset(
    (
        "default",
        "title",
        "examples",
        "deprecated",
        "discriminator",
        "minLength",
        "maxLength",
        "uniqueItems",
        "minProperties",
        "maxProperties",
        "propertyNames",
        "contentMediaType",
        "contentEncoding",
    )
)
_SCALARS: Final = [{"type": name} for name in ("string", "number", "boolean", "null")]
_REFERENCES: Final = [{"$ref": "#/$defs/reference_text"}, {"$ref": "#/$defs/reference_object"}]
# Any value, as far as strict modes allow it: they require a type everywhere, so nesting ends after one level.
_ANYTHING: Final = [*_SCALARS, {"type": "array", "items": {"anyOf": [*_SCALARS, *_REFERENCES]}}]
_PLAIN: Final = [*_SCALARS, {"type": "array", "items": {"anyOf": _SCALARS}}]  # the same without references

_NULL: Final = {"type": "null"}
_OUTPUT: Final = {"anyOf": [{"type": "string"}, _NULL], "description": 'The answer: "step_id.path".'}
_CONFIDENCE: Final = {"anyOf": [{"type": "number"}, _NULL], "description": "How sure you are, from 0 to 1."}
_REFUSAL: Final = {
    "anyOf": [{"type": "string"}, _NULL],
    "description": "Why this cannot be planned with these tools; null where it can.",
}


def plan_schema() -> dict[str, Any]:
    """Return the JSON Schema of a plan in our dialect, for editors and validators."""
    schema = Plan.model_json_schema()
    # A file may name its schema; `read_plan` ignores that.
    schema["properties"]["$schema"] = {"type": "string", "description": "For editors."}
    return {"$schema": DRAFT, **schema}


def toolset_schema(toolbox: Toolbox) -> dict[str, Any]:
    """Return the JSON Schema of a plan that calls only the tools that *toolbox* allows.

    It has the form that strict output modes of models require: every object is closed, every field is required, and an
    optional field is nullable (`read_plan` with the toolbox treats such a null as left out). If a tool takes an object
    with any fields, that part of the schema does not have this form.
    """
    steps = [_step(toolbox[name], _arguments(toolbox[name])) for name in sorted(toolbox.allowed)]
    # Steps first, because they start while the answer is written. Refusal last, because a weak model fills in each
    # field that comes.
    properties = {
        "steps": {"type": "array", "items": {"anyOf": steps}} if steps else {"type": "array", "maxItems": 0},
        "output": _OUTPUT,
        "confidence": _CONFIDENCE,
        "refusal": _REFUSAL,
    }
    return _whole(properties, toolbox)


def patch_schema(toolbox: Toolbox) -> dict[str, Any]:
    """Return the JSON Schema of a patch whose steps call only the tools that *toolbox* allows; see `toolset_schema`.

    The form of strict modes has no object with arbitrary keys, so ``use`` of a ``rewire`` is a list of pairs;
    `read_answer` accepts both. The ``args`` of a ``rewire`` are those of any tool, because the tool is not in the edit.
    """
    names = sorted(toolbox.allowed)
    # No tool has a name that begins with "-", so these names differ from the definitions of the tools.
    definitions: dict[str, Any] = {f"-args.{name}": _arguments(toolbox[name]) for name in names}
    steps = [_step(toolbox[name], {"$ref": f"#/$defs/-args.{name}"}) for name in names]
    ids = {"type": "array", "items": {"$ref": "#/$defs/id"}}
    old = {"type": "string", "description": "The id of the step."}
    pair = _closed({"old": {"$ref": "#/$defs/id"}, "new": {"$ref": "#/$defs/id"}})
    edits = [
        _edit("drop", id=old, cancel={"type": "boolean"}),
        _edit(
            "rewire",
            id=old,
            use={"type": "array", "items": pair, "description": "Steps to use in place of others."},
            depends_on={"anyOf": [ids, _NULL]},
            args={"anyOf": [*({"$ref": f"#/$defs/{name}"} for name in definitions), _NULL]},
        ),
    ]
    if steps:
        definitions["-step"] = {"anyOf": steps}
        step = {"$ref": "#/$defs/-step"}
        edits += [_edit("add", step=step), _edit("replace", id=old, step=step, cancel={"type": "boolean"})]
    properties = {
        "reason": {"type": "string", "description": "Why, in a sentence."},
        "edits": {"type": "array", "items": {"anyOf": edits}},
        "output": _OUTPUT,
        "confidence": _CONFIDENCE,
        "refusal": _REFUSAL,
    }
    return _whole(properties, toolbox, definitions)


def next_step_schema(toolbox: Toolbox) -> dict[str, Any]:
    """Return the JSON Schema of one step or the end, for planners that go step by step; see `read_next_step`."""
    steps = [_step(toolbox[name], _arguments(toolbox[name])) for name in sorted(toolbox.allowed)]
    properties = {
        "thought": {"type": "string"},
        "step": {"anyOf": [*steps, _NULL], "description": "The next step; null to stop."},
        "stop": {"anyOf": [_enum("goal_met", "cannot", "needs_person"), _NULL]},
        "output": _OUTPUT,
        "reason": {"anyOf": [{"type": "string"}, _NULL], "description": "Why there is no next step."},
        "confidence": _CONFIDENCE,
    }
    return _whole(properties, toolbox)


def _whole(properties: dict[str, Any], toolbox: Toolbox, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a whole schema, with the definitions that steps need."""
    definitions = _shared_definitions()
    for name in sorted(toolbox.allowed):
        for key, definition in toolbox[name].arguments.schema.get("$defs", {}).items():
            definitions[f"{name}.{key}"] = _strict(definition, name)
    return {"$schema": DRAFT, **_closed(properties), "$defs": {**definitions, **(more or {})}}


def _edit(op: str, **properties: Any) -> dict[str, Any]:
    return _closed({"op": {"type": "string", "const": op}, **properties})


def strict_schema(schema: Mapping[str, Any], prefix: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Rewrite a JSON Schema into the form that strict output modes require, without references to steps.

    Args:
        schema: The schema with its ``$defs``.
        prefix: The prefix for the names of its definitions.

    Returns:
        The schema without its definitions; and its definitions by name.
    """
    whole = {key: value for key, value in schema.items() if key != "$defs"}
    definitions = {f"{prefix}.{key}": _strict(d, prefix, _PLAIN) for key, d in schema.get("$defs", {}).items()}
    return _strict(whole, prefix, _PLAIN), definitions


def call_schema(tool: AnyTool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the schema of a call of *tool* without references, and its definitions; see `strict_schema`."""
    strict, definitions = strict_schema(tool.arguments.schema, tool.name)
    properties = strict.get("properties", {})
    for name in properties:
        if tool.arguments.names.get(name, name) not in tool.arguments.required:
            properties[name] = {"anyOf": [properties[name], {"type": "null"}]}
    call = _closed({"tool": {"type": "string", "const": tool.name}, "args": _closed(properties)})
    return {"description": tool.description or tool.name, **call}, definitions


def _shared_definitions() -> dict[str, Any]:
    id_ = {"type": "string", "pattern": f"^{ID_PATTERN}$"}
    leaf = {"ref": {"type": "string"}, "op": _enum("==", "!=", "<", "<=", ">", ">=", "in", "contains", "exists")}
    value = {"anyOf": [*_SCALARS, {"type": "array", "items": {"anyOf": _SCALARS}}]}
    conditions = {"type": "array", "items": {"$ref": "#/$defs/condition"}}
    return {
        "id": id_,
        "reference_text": {
            "type": "string",
            "pattern": r"\$\{[A-Za-z0-9_-]+[^}]*\}",
            "description": 'The output of a step: "${load.rows[0]}"; inside a text, it is put in.',
        },
        "reference_object": _closed({"$step": {"$ref": "#/$defs/id"}, "path": {"type": "string"}}),
        "condition": {
            "anyOf": [
                _closed({**leaf, "value": value}),
                _closed({"all": conditions}),
                _closed({"any": conditions}),
                _closed({"not": {"$ref": "#/$defs/condition"}}),
            ]
        },
    }


def _step(tool: AnyTool, args: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a step that calls *tool*; *args* is the schema of its arguments."""
    condition = {"anyOf": [{"$ref": "#/$defs/condition"}, _NULL]}
    properties = {
        "id": {"$ref": "#/$defs/id"},
        "description": {"type": "string"},
        "tool": {"type": "string", "const": tool.name},
        "args": args,
        "depends_on": {"type": "array", "items": {"$ref": "#/$defs/id"}},
        "when": condition,
        "for_each": {"anyOf": [*_REFERENCES, {"type": "array", "items": {"anyOf": _SCALARS}}, _NULL]},
        "success": condition,
        "on_failure": {"anyOf": [_enum("replan", "skip", "stop"), _NULL]},
        "confidence": _CONFIDENCE,
    }
    return {"description": tool.description or tool.name, **_closed(properties)}


def _arguments(tool: AnyTool) -> dict[str, Any]:
    """Return the schema of arguments: each has its own type or is a reference; a secret is only a handle.

    An optional argument may also be null.
    """
    arguments = tool.arguments
    properties = {}
    for name, schema in arguments.schema.get("properties", {}).items():
        parameter = arguments.names.get(name, name)
        is_closed = parameter in arguments.secrets or is_object_place(schema)
        kinds = [_strict(schema, tool.name), *(() if is_closed else _REFERENCES)]
        if parameter not in arguments.required:
            kinds.append({"type": "null"})
        properties[name] = {"anyOf": kinds}
    return _closed(properties)


def _strict(schema: Any, tool: str, anything: list[Any] = _ANYTHING) -> Any:
    """Rewrite the schema of an argument: closed, without defaults, and with names of definitions for this tool only."""
    if not isinstance(schema, Mapping):
        return {"anyOf": anything} if schema is True else schema
    if is_object_place(schema):  # nothing but a reference can stand for an object in memory
        return {"anyOf": _REFERENCES}
    strict = dict(_strict_part(key, value, tool, anything) for key, value in schema.items() if key not in _LEFT_OUT)
    if strict.keys() <= {"description"}:
        strict["anyOf"] = anything
    if "properties" in strict and not strict.get("additionalProperties"):
        # Optional fields are required, too: strict modes allow nothing else, and the tool accepts them.
        strict |= {"required": list(strict["properties"]), "additionalProperties": False}
    return strict


def _strict_part(key: str, value: Any, tool: str, anything: list[Any]) -> tuple[str, Any]:
    match key:
        case "$ref":
            return key, str(value).replace("#/$defs/", f"#/$defs/{tool}.")
        case "anyOf" | "oneOf" | "allOf" | "prefixItems":
            return "anyOf" if key == "oneOf" else key, [_strict(part, tool, anything) for part in value]
        case "properties":
            return key, {name: _strict(part, tool, anything) for name, part in value.items()}
        case "items" | "additionalProperties" if not isinstance(value, bool):
            return key, _strict(value, tool, anything)
        case _:
            return key, value


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _enum(*values: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(values)}


def with_secret_names(toolbox: Toolbox, secrets: Secrets) -> Toolbox:
    """Return *toolbox* with the names of *secrets* in the schemas of its tools; unchanged if no tool takes secrets."""
    if not secrets or not any(tool.arguments.secrets for tool in toolbox.values()):
        return toolbox
    tools = [_tool_with_names(tool, secrets.names_for(tool.name)) for tool in toolbox.values()]
    return Toolbox(tools, allow=toolbox.allowed)


def _tool_with_names(tool: AnyTool, names: Sequence[str]) -> AnyTool:
    if not tool.arguments.secrets or not names:
        return tool
    arguments = tool.arguments
    properties = {
        name: _with_names(schema, names) if arguments.names.get(name, name) in arguments.secrets else schema
        for name, schema in arguments.schema["properties"].items()
    }
    return replace(tool, arguments=replace(arguments, schema={**arguments.schema, "properties": properties}))


def _with_names(schema: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the schema of a handle, or of an optional handle, with the names that it may contain."""
    if "anyOf" in schema:
        return {**schema, "anyOf": [_with_names(part, names) for part in schema["anyOf"]]}
    return {**schema, **handle_schema(names)} if KEY in schema.get("properties", {}) else schema
