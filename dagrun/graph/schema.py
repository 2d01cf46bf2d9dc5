"""JSON Schemas of plans: one for editors, and one per toolset for planners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dagrun.model.plan import Plan
from dagrun.model.reference import ID_PATTERN
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
    definitions: dict[str, Any] = _shared_definitions()
    steps = []
    for name in sorted(toolbox.allowed):
        steps.append(_step(toolbox[name]))
        for key, definition in toolbox[name].arguments.schema.get("$defs", {}).items():
            definitions[f"{name}.{key}"] = _strict(definition, name)
    properties = {
        "goal": {"type": "string", "description": "What the plan is for."},
        "steps": {"type": "array", "items": {"anyOf": steps}} if steps else {"type": "array", "maxItems": 0},
        "output": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": 'The answer: "step_id.path".'},
    }
    return {"$schema": DRAFT, **_closed(properties), "$defs": definitions}


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


def _step(tool: AnyTool) -> dict[str, Any]:
    """The shape of a step that calls *tool*."""
    none = {"type": "null"}
    condition = {"anyOf": [{"$ref": "#/$defs/condition"}, none]}
    properties = {
        "id": {"$ref": "#/$defs/id"},
        "description": {"type": "string"},
        "tool": {"type": "string", "const": tool.name},
        "args": _arguments(tool),
        "depends_on": {"type": "array", "items": {"$ref": "#/$defs/id"}},
        "when": condition,
        "for_each": {"anyOf": [*_REFERENCES, {"type": "array", "items": {"anyOf": _SCALARS}}, none]},
        "success": condition,
        "on_failure": {"anyOf": [_enum("replan", "skip", "stop"), none]},
    }
    return {"description": tool.description or tool.name, **_closed(properties)}


def _arguments(tool: AnyTool) -> dict[str, Any]:
    """Every argument as its own type or a reference; null for one that may be left out."""
    arguments = tool.arguments
    properties = {}
    for name, schema in arguments.schema.get("properties", {}).items():
        kinds = [_strict(schema, tool.name), *_REFERENCES]
        if arguments.names.get(name, name) not in arguments.required:
            kinds.append({"type": "null"})
        properties[name] = {"anyOf": kinds}
    return _closed(properties)


def _strict(schema: Any, tool: str) -> Any:
    """Rewrite a schema of an argument: closed, no defaults, and with definitions that no other tool shares."""
    if not isinstance(schema, Mapping):
        return {"anyOf": _ANYTHING} if schema is True else schema
    made = dict(_strict_part(key, value, tool) for key, value in schema.items() if key not in _LEFT_OUT)
    if made.keys() <= {"description"}:
        made["anyOf"] = _ANYTHING
    if "properties" in made and not made.get("additionalProperties"):
        # A field that may be left out has to be given: strict modes know no other way, and the tool takes it gladly.
        made |= {"required": list(made["properties"]), "additionalProperties": False}
    return made


def _strict_part(key: str, value: Any, tool: str) -> tuple[str, Any]:
    match key:
        case "$ref":
            return key, str(value).replace("#/$defs/", f"#/$defs/{tool}.")
        case "anyOf" | "oneOf" | "allOf" | "prefixItems":
            return "anyOf" if key == "oneOf" else key, [_strict(part, tool) for part in value]
        case "properties":
            return key, {name: _strict(part, tool) for name, part in value.items()}
        case "items" | "additionalProperties" if not isinstance(value, bool):
            return key, _strict(value, tool)
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
