"""Rewrite JSON Schemas into the form that the strict output modes of all model providers take.

The published rules of OpenAI and of Anthropic hold at once:

1. Every object is closed, and every field of it is required.
2. There is no ``$ref``: definitions stand where they are used. A type that contains itself, and whatever lies deeper
   than `MAX_DEPTH`, is a text that holds JSON.
3. An object with arbitrary keys is a list of pairs of ``key`` and ``value``.
4. Objects that may stand at one place begin with a field that tells them apart; otherwise they are a text that holds
   JSON.
5. Limits of numbers, texts and lists are words in descriptions, because providers refuse the keywords. So are patterns
   and formats that a server would refuse, drop or misread: see ``docs/reference/servers.md``.

`dagrun.llm.strict_answers` turns values of this form back. The check of a plan holds values to the true schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from dagrun.kernel.model.contracts.objects import is_object_place

Schema = Mapping[str, Any]

# Providers take ten levels; a plan uses up five: the plan, its steps, a step, its arguments, and an argument.
MAX_DEPTH: Final = 5
# Of one argument: definitions that use each other multiply when they stand where they are used.
MAX_PARTS: Final = 1_000

# The field for arguments that the schema of a tool allows and does not name.
OTHERS: Final = "(others)"
OTHER_ARGUMENTS: Final = {
    "type": "string",
    "description": 'Further arguments, as JSON text of an object; "" for none.',
}

# A reference and nothing else; inside a longer text, it may stand wherever a text may. Keys in quotes are left out: a
# server that takes a quote here may end the JSON string at it.
REFERENCE: Final = {
    "type": "string",
    "pattern": r"^\$\{[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+|\[[0-9]+\])*\}$",
    "description": 'The output of a step, or a part of it: "${load.rows[0]}".',
}
_SCALARS: Final = [{"type": name} for name in ("string", "number", "boolean", "null")]
_ANYTHING: Final = [*_SCALARS, {"type": "array", "items": {"anyOf": _SCALARS}}]
_KEY: Final = {"type": "string"}
# The patterns and formats that every server of the table takes and means alike: no negated class and no dot (llama.cpp
# lets both stand for an unescaped quote), no shorthand such as \d, no counted repetition, and anchors at both ends.
_PART: Final = r"(?:[\w /:;,@#%&=~!'<>-]|\\[.^$|(){}\[\]*+?]|\[(?:[\w .:/@#%+]|(?<=\w)-(?=\w)|-(?=\]))+\])[*+?]?"
_HONOURED: Final = {
    "pattern": re.compile(rf"\^(?:{_PART}|\((?:{_PART}|\|)+\)[*+?]?)*\$", re.ASCII),
    "format": re.compile("date-time|date|time|duration|email|hostname|ipv4|ipv6|uuid"),
}
_BOUNDS: Final = (
    ("minimum", "at least {}"),
    ("exclusiveMinimum", "more than {}"),
    ("maximum", "at most {}"),
    ("exclusiveMaximum", "less than {}"),
    ("multipleOf", "a multiple of {}"),
    ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"),
    ("minItems", "at least {} elements"),
    ("maxItems", "at most {} elements"),
)
_NAMES: Final = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def closed(properties: Mapping[str, Any], description: str = "") -> dict[str, Any]:
    """Return the schema of an object with exactly these fields."""
    schema = {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"description": description, **schema} if description else schema


def strict_schema(schema: Schema, root: Schema | None = None) -> dict[str, Any]:
    """Rewrite a JSON Schema into the strict form.

    Args:
        schema: The schema of a value.
        root: The schema whose ``$defs`` its ``$ref`` refer to; *schema* itself by default.
    """
    return _Rewriter(schema if root is None else root).rewrite(schema, MAX_DEPTH, ())


def with_reference(schema: dict[str, Any]) -> dict[str, Any]:
    """Allow a reference as the value of a strict schema, unless it takes texts anyway."""
    branches = [branch for branch in schema.get("anyOf", [schema]) if isinstance(branch, dict)]
    if any(is_text(branch) for branch in branches):
        return schema
    return _one_of([*branches, REFERENCE], _own_description(schema))


def with_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Allow null as the value of a strict schema, for an omitted value."""
    branches = schema.get("anyOf", [schema])
    if any(branch.get("type") == "null" for branch in branches):
        return schema
    return _one_of([*branches, {"type": "null"}], _own_description(schema))


def is_text(schema: Schema) -> bool:
    """Whether a strict schema takes any text."""
    return schema.get("type") == "string" and not schema.keys() & {"enum", "const", "pattern", "format"}


def count_unions(schema: Any) -> int:
    """Count the places of a schema that allow values of several types; providers limit their number."""
    if isinstance(schema, Mapping):
        return ("anyOf" in schema) + sum(count_unions(part) for part in schema.values())
    if isinstance(schema, list):
        return sum(count_unions(part) for part in schema)
    return 0


def _own_description(schema: Schema) -> str:
    return str(schema.get("description", "")) if "anyOf" in schema else ""


def _one_of(branches: Sequence[dict[str, Any]], description: str) -> dict[str, Any]:
    if len(branches) == 1:
        return _described(branches[0], description)
    return {**({"description": description} if description else {}), "anyOf": list(branches)}


def _described(schema: dict[str, Any], *texts: str) -> dict[str, Any]:
    """Add to the description of a strict schema; the first text comes first."""
    said = [text for text in (*texts, schema.get("description", "")) if text]
    return {**schema, "description": " ".join(dict.fromkeys(said))} if said else schema


class _Rewriter:
    """Rewrites the parts of one schema.

    Args:
        root: The schema with the definitions.
    """

    def __init__(self, root: Schema) -> None:
        self._definitions: Mapping[str, Any] = root.get("$defs", {})
        self._left = MAX_PARTS

    def rewrite(self, schema: Any, depth: int, around: tuple[str, ...]) -> dict[str, Any]:
        """Rewrite a schema.

        Args:
            schema: The schema.
            depth: How many levels it may have.
            around: The names of the definitions that it stands in.
        """
        if not isinstance(schema, Mapping):
            return {"anyOf": _ANYTHING}
        self._left -= 1
        if self._left < 0:
            return _json_text("a value")
        if is_object_place(schema):  # nothing but a reference can stand for an object in memory
            return REFERENCE
        made = self._made(schema, depth, around)
        return _described(made, _text_of(schema), _bounds_of(schema))

    def _made(self, schema: Schema, depth: int, around: tuple[str, ...]) -> dict[str, Any]:
        match schema:
            case {"$ref": str(name)}:
                return self._definition(name.removeprefix("#/$defs/"), depth, around)
            case {"anyOf": list(parts)} | {"oneOf": list(parts)}:
                return self._choice(parts, depth, around)
            case {"allOf": [part]}:
                return self.rewrite(part, depth, around)
            case {"allOf": _} | {"not": _} | {"if": _}:
                return _json_text("a value")
            case {"const": _} | {"enum": [_, *_]}:
                return _one_of_values(schema.get("enum", [schema.get("const")]))
            case {"type": list(names)}:
                return self._choice([{**schema, "type": name} for name in names], depth, around)
            case {"type": "object"} | {"properties": _}:
                return self._object(schema, depth, around)
            case {"type": "array"}:
                return self._array(schema, depth, around)
            case {"type": str(name)}:
                kept = {key: schema[key] for key in _HONOURED if key in schema and _is_honoured(key, schema[key])}
                return {"type": name, **kept}
            case _:
                return {"anyOf": _ANYTHING}

    def _definition(self, name: str, depth: int, around: tuple[str, ...]) -> dict[str, Any]:
        definition = self._definitions.get(name)
        if definition is None or name in around:
            return _json_text(f"a {name}")
        return self.rewrite(definition, depth, (*around, name))

    def _choice(self, parts: Sequence[Any], depth: int, around: tuple[str, ...]) -> dict[str, Any]:
        branches: list[dict[str, Any]] = []
        for part in parts:
            made = self.rewrite(part, depth, around)
            inner = made.get("anyOf", [made])
            branches += (branch for branch in inner if branch not in branches)
        return _one_of(_told_apart(branches), "")

    def _object(self, schema: Schema, depth: int, around: tuple[str, ...]) -> dict[str, Any]:
        properties = schema.get("properties", {})
        others = schema.get("additionalProperties", not properties)
        if depth <= 0:
            return _json_text("an object")
        if properties:
            return closed({name: self.rewrite(part, depth - 1, around) for name, part in properties.items()})
        if others is False:
            return closed({})
        value = self.rewrite(others, depth - 2, around)
        return {"type": "array", "items": closed({"key": _KEY, "value": value})}

    def _array(self, schema: Schema, depth: int, around: tuple[str, ...]) -> dict[str, Any]:
        if depth <= 0:
            return _json_text("a list")
        parts = schema.get("prefixItems")
        if not parts:
            return {"type": "array", "items": self.rewrite(schema.get("items"), depth - 1, around)}
        made = [self.rewrite(part, depth - 1, around) for part in parts]
        if any(part != made[0] for part in made):
            return _json_text("a list")
        return {"type": "array", "items": made[0], "description": f"{len(made)} elements."}


def _is_honoured(key: str, value: Any) -> bool:
    try:
        return _HONOURED[key].fullmatch(str(value)) is not None and bool(re.compile(str(value)))
    except re.error:  # such as [z-a]
        return False


def _json_text(what: str) -> dict[str, Any]:
    return {"type": "string", "description": f"JSON text of {what}."}


def _one_of_values(values: Sequence[Any]) -> dict[str, Any]:
    """Return the schema of one of *values*, with a branch for each of their types."""
    by_type: dict[str, list[Any]] = {}
    for value in values:
        name = _NAMES.get(type(value))
        if name is None:
            return _json_text(f"one of {json.dumps(list(values))}")
        by_type.setdefault(name, []).append(value)
    branches = [{"type": name} if name == "null" else {"type": name, "enum": own} for name, own in by_type.items()]
    return _one_of(branches, "")


def _told_apart(branches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put the distinguishing field first in the objects among *branches*; without one, take a JSON text."""
    objects = [branch for branch in branches if branch.get("properties")]
    if len(objects) < 2:
        return branches
    field = next(filter(None, (name if _tells(name, objects) else "" for name in objects[0]["properties"])), None)
    if field is not None:
        return [_beginning_with(field, branch) if branch in objects else branch for branch in branches]
    others = [branch for branch in branches if branch not in objects]
    return branches if any(is_text(branch) for branch in others) else [*others, _json_text("an object")]


def _tells(field: str, objects: Iterable[Schema]) -> bool:
    seen: set[str] = set()
    for branch in objects:
        values = list(_constants(branch["properties"].get(field, {})))
        if not values or seen & set(values):
            return False
        seen |= set(values)
    return True


def _constants(schema: Schema) -> Iterator[str]:
    yield from (json.dumps(value) for value in schema.get("enum", ()))
    if "const" in schema:
        yield json.dumps(schema["const"])


def _beginning_with(field: str, branch: dict[str, Any]) -> dict[str, Any]:
    properties = branch["properties"]
    ordered = {field: properties[field], **properties}
    return {**branch, "properties": ordered, "required": list(ordered)}


def _text_of(schema: Schema) -> str:
    return str(schema.get("description", ""))


def _bounds_of(schema: Schema) -> str:
    """Describe the rules of a schema that providers refuse as keywords in words."""
    said = [words.format(schema[key]) for key, words in _BOUNDS if isinstance(schema.get(key), int | float)]
    if schema.get("type") == "string":
        said += [f"{key} {schema[key]}" for key in _HONOURED if key in schema and not _is_honoured(key, schema[key])]
    text = ", ".join(said)
    return f"{text[0].upper()}{text[1:]}." if text else ""
