"""JSON Schemas: of plans, for editors; and, per toolset, of what planners answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from dagrun.model.plan import Plan
from dagrun.model.reference import ID_PATTERN
from dagrun.model.secrets.secret import KEY, Secrets, handle_schema
from dagrun.model.toolbox import AnyTool, Toolbox

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"

# Said of values, not of shapes, and unknown to the strict output modes of models; the checker looks at them anyway.
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
# Strict modes want a type everywhere, so "anything" is what a plan can say without another level of nesting.
_ANYTHING: Final = [*_SCALARS, {"type": "array", "items": {"anyOf": [*_SCALARS, *_REFERENCES]}}]
_PLAIN: Final = [*_SCALARS, {"type": "array", "items": {"anyOf": _SCALARS}}]  # where there are no references

_NULL: Final = {"type": "null"}
_OUTPUT: Final = {"anyOf": [{"type": "string"}, _NULL], "description": 'The answer: "step_id.path".'}
_CONFIDENCE: Final = {"anyOf": [{"type": "number"}, _NULL], "description": "How sure you are, from 0 to 1."}
_REFUSAL: Final = {
    "anyOf": [{"type": "string"}, _NULL],
    "description": "Why this cannot be planned with these tools; null where it can.",
}


def plan_schema() -> dict[str, Any]:
    """The JSON Schema of a plan in our dialect, for editors and validators."""
    schema = Plan.model_json_schema()
    # A file may name the schema that it follows; reading drops that.
    schema["properties"]["$schema"] = {"type": "string", "description": "For editors."}
    return {"$schema": DRAFT, **schema}


def toolset_schema(toolbox: Toolbox) -> dict[str, Any]:
    """The JSON Schema of a plan that calls nothing but the tools that *toolbox* allows.

    It has the form that the strict output modes of models ask for: every object closed, every field required, what
    may be left out nullable (`read_plan` with the toolbox takes such a null for "left out"). A tool that takes an
    object with any fields has no such form; that part is left as it is.
    """
    steps = [_step(toolbox[name], _arguments(toolbox[name])) for name in sorted(toolbox.allowed)]
    # Steps first, as they start when they are written; the refusal last, as a weak model fills in whatever it meets.
    properties = {
        "steps": {"type": "array", "items": {"anyOf": steps}} if steps else {"type": "array", "maxItems": 0},
        "output": _OUTPUT,
        "confidence": _CONFIDENCE,
        "refusal": _REFUSAL,
    }
    return _whole(properties, toolbox)


def patch_schema(toolbox: Toolbox) -> dict[str, Any]:
    """The JSON Schema of a patch whose steps call nothing but the tools that *toolbox* allows; see `toolset_schema`.

    An object with any keys has no place in that form, so ``use`` of a ``rewire`` is a list of pairs; `read_answer`
    takes both. Its ``args`` are those of one of the tools: a schema cannot say which, for the step is not in it.
    """
    names = sorted(toolbox.allowed)
    # No name of a tool begins with "-", so these are in the way of none of its own definitions.
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
    """The JSON Schema of one step, or of the end, for planners that think step by step; see `read_next_step`."""
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
    """A whole schema, with the definitions that steps need."""
    definitions = _shared_definitions()
    for name in sorted(toolbox.allowed):
        for key, definition in toolbox[name].arguments.schema.get("$defs", {}).items():
            definitions[f"{name}.{key}"] = _strict(definition, name)
    return {"$schema": DRAFT, **_closed(properties), "$defs": {**definitions, **(more or {})}}


def _edit(op: str, **properties: Any) -> dict[str, Any]:
    return _closed({"op": {"type": "string", "const": op}, **properties})


def strict_schema(schema: Mapping[str, Any], prefix: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Rewrite a JSON Schema into the form that strict output modes ask for; there are no references in it to steps.

    Args:
        schema: With its ``$defs``.
        prefix: What the names of its definitions begin with from now on.

    Returns:
        The schema without its definitions; and these, by name.
    """
    whole = {key: value for key, value in schema.items() if key != "$defs"}
    definitions = {f"{prefix}.{key}": _strict(d, prefix, _PLAIN) for key, d in schema.get("$defs", {}).items()}
    return _strict(whole, prefix, _PLAIN), definitions


def call_schema(tool: AnyTool) -> tuple[dict[str, Any], dict[str, Any]]:
    """The shape of a call of *tool* with its arguments themselves, and its definitions; see `strict_schema`."""
    made, definitions = strict_schema(tool.arguments.schema, tool.name)
    properties = made.get("properties", {})
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
    """The shape of a step that calls *tool* with *args*."""
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
    """Every argument as its own type or a reference, a secret as its handle alone; null for what may be left out."""
    arguments = tool.arguments
    properties = {}
    for name, schema in arguments.schema.get("properties", {}).items():
        parameter = arguments.names.get(name, name)
        kinds = [_strict(schema, tool.name), *(() if parameter in arguments.secrets else _REFERENCES)]
        if parameter not in arguments.required:
            kinds.append({"type": "null"})
        properties[name] = {"anyOf": kinds}
    return _closed(properties)


def _strict(schema: Any, tool: str, anything: list[Any] = _ANYTHING) -> Any:
    """Rewrite a schema of an argument: closed, no defaults, and with definitions that no other tool shares."""
    if not isinstance(schema, Mapping):
        return {"anyOf": anything} if schema is True else schema
    made = dict(_strict_part(key, value, tool, anything) for key, value in schema.items() if key not in _LEFT_OUT)
    if made.keys() <= {"description"}:
        made["anyOf"] = anything
    if "properties" in made and not made.get("additionalProperties"):
        # A field that may be left out has to be given: strict modes know no other way, and the tool takes it gladly.
        made |= {"required": list(made["properties"]), "additionalProperties": False}
    return made


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


def with_handles(toolbox: Toolbox, secrets: Secrets) -> Toolbox:
    """*toolbox* with the names of *secrets* in the schemas of its tools; itself, if no tool takes any."""
    if not secrets or not any(tool.arguments.secrets for tool in toolbox.values()):
        return toolbox
    return Toolbox([_listed(tool, secrets.names_for(tool.name)) for tool in toolbox.values()], allow=toolbox.allowed)


def _listed(tool: AnyTool, names: Sequence[str]) -> AnyTool:
    if not tool.arguments.secrets or not names:
        return tool
    arguments = tool.arguments
    properties = {
        name: _with_names(schema, names) if arguments.names.get(name, name) in arguments.secrets else schema
        for name, schema in arguments.schema["properties"].items()
    }
    listed = replace(arguments, schema={**arguments.schema, "properties": properties})
    return replace(tool, arguments=listed)


def _with_names(schema: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The schema of a handle, or of a handle or nothing, with the names that it may say."""
    if "anyOf" in schema:
        return {**schema, "anyOf": [_with_names(part, names) for part in schema["anyOf"]]}
    return {**schema, **handle_schema(names)} if KEY in schema.get("properties", {}) else schema
