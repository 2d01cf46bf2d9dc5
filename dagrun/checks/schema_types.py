"""What a JSON Schema says about one place in a value: which types can stand there, or that there is no such place.

Permissive: only what a schema rules out is missing, and only what it names is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dagrun.model.value import SHA256_PATTERN, Path

Schema = Mapping[str, Any]
Types = frozenset[str]

_MAX_BRANCHES: Final = 200
_ANYTHING: Final[tuple[Schema, ...]] = ({},)

_WORDS: Final = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "array": "a list",
    "object": "an object",
}


@dataclass(frozen=True, slots=True)
class Lookup:
    """What is known about a place.

    Attributes:
        types: The JSON types that can stand there; `None` for any.
        missing: The part of the path that does not exist, if the schema rules the place out.
        known: The fields that exist in its place.
    """

    types: Types | None
    missing: str | int | None = None
    known: tuple[str, ...] = ()


UNKNOWN: Final = Lookup(None)


def look_up(schemas: Iterable[tuple[Schema, Schema]], path: Path) -> Lookup:
    """Follow *path* through schemas.

    Args:
        schemas: Alternatives, each with the root that its ``$ref`` point into.
        path: Keys and indices.
    """
    spots = list(schemas)
    for part in path:
        branches = [(branch, root) for schema, root in spots for branch in _branches(schema, root)]
        spots = [(found, root) for branch, root in branches for found in _step_into(branch, part)]
        if not spots:
            return Lookup(None, part, tuple(dict.fromkeys(k for b, _ in branches for k in b.get("properties", ()))))
    return Lookup(_union(types_of(schema, root) for schema, root in spots))


def takes_artifact(schema: Schema, root: Schema, path: Path) -> bool:
    """Whether the schema names an `Artifact` as one of the types that *path* can have."""
    spots = [schema]
    for part in path:
        spots = [found for spot in spots for branch in _branches(spot, root) for found in _step_into(branch, part)]
    return any(_is_artifact(branch) for spot in spots for branch in _branches(spot, root))


def _is_artifact(branch: Schema) -> bool:
    field = branch.get("properties", {}).get("sha256", {})
    return isinstance(field, Mapping) and field.get("pattern") == SHA256_PATTERN


def types_of(schema: Schema, root: Schema) -> Types | None:
    """The JSON types that a schema lets through; `None` for any."""
    return _union(_types(branch) for branch in _branches(schema, root))


def are_disjoint(expected: Types | None, found: Types | None) -> bool:
    """Whether no value can be of both; what is unknown could be anything."""
    return expected is not None and found is not None and not _widen(expected) & _widen(found)


def words(types: Types | None) -> str:
    """Types as a person would say them: "a text or null"."""
    return "anything" if types is None else " or ".join(_WORDS.get(name, name) for name in sorted(types))


def type_of(value: object) -> Types | None:
    """The JSON type of a value."""
    match value:
        case None:
            return frozenset(("null",))
        case bool():
            return frozenset(("boolean",))
        case int():
            return frozenset(("integer",))
        case float():
            return frozenset(("number",))
        case str():
            return frozenset(("string",))
        case list() | tuple():
            return frozenset(("array",))
        case dict():
            return frozenset(("object",))
        case _:
            return None


def _widen(types: Types) -> Types:
    # JSON knows one kind of number: 3.0 may well pass for 3.
    return types | {"integer"} if "number" in types else types


def _union(parts: Iterable[Types | None]) -> Types | None:
    found: set[str] = set()
    for part in parts:
        if part is None:
            return None
        found |= part
    return frozenset(found)


def _branches(schema: Schema | bool, root: Schema) -> list[Schema]:
    """Every alternative of a schema, references and unions resolved; a schema of its own is its only branch."""
    found: list[Schema] = []
    waiting: list[Any] = [schema]
    seen: set[str] = set()
    while waiting:
        current = waiting.pop()
        if len(found) + len(seen) > _MAX_BRANCHES or current is True:
            return list(_ANYTHING)
        if not isinstance(current, Mapping):
            continue  # false: nothing can stand there
        if "$ref" in current:
            target = str(current["$ref"])
            if target not in seen:  # a type that is defined by itself alone says nothing
                seen.add(target)
                waiting.append(_resolve(target, root))
        elif unions := [part for key in ("anyOf", "oneOf") for part in current.get(key, ())]:
            waiting += reversed(unions)
        elif "allOf" in current:
            parts = current["allOf"]
            waiting.append(parts[0] if len(parts) == 1 else {})
        else:
            found.append(current)
    return found


def _resolve(target: str, root: Schema) -> Any:
    found: Any = root
    for part in target.removeprefix("#").split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        found = found.get(key, {}) if isinstance(found, Mapping) else {}
    return found if target.startswith("#") else {}


def _types(branch: Schema) -> Types | None:
    named = branch.get("type")
    if isinstance(named, str):
        return frozenset((named,))
    if isinstance(named, list):
        return frozenset(named)
    if "const" in branch:
        return type_of(branch["const"])
    if "enum" in branch:
        return _union(type_of(value) for value in branch["enum"])
    return None


def _step_into(branch: Schema, part: str | int) -> list[Schema]:
    """The schemas of one field or element; none if there can be no such thing."""
    types = _types(branch)
    if isinstance(part, str):
        return _field(branch, part) if types is None or "object" in types else []
    return _element(branch, part) if types is None or "array" in types else []


def _field(branch: Schema, key: str) -> list[Schema]:
    properties = branch.get("properties", {})
    if key in properties:
        return [properties[key]]
    if "patternProperties" in branch:
        return list(_ANYTHING)
    # Pydantic writes additionalProperties only where fields beyond the declared ones can come out.
    return _rest(branch.get("additionalProperties", "properties" not in branch))


def _element(branch: Schema, index: int) -> list[Schema]:
    prefix = branch.get("prefixItems", [])
    if index < len(prefix):
        return [prefix[index]]
    if index >= branch.get("maxItems", index + 1):
        return []
    return _rest(branch.get("items", True))


def _rest(schema: Any) -> list[Schema]:
    if schema is True:
        return list(_ANYTHING)
    return [] if schema is False else [schema]
