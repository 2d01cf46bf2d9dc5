"""Find a place in a JSON Schema: the types its values can have, or that it cannot exist.

The look-up is permissive: a place counts as missing only if the schema rules it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from dagrun.kernel.model.contracts.objects import OBJECT_TYPE, places_in
from dagrun.kernel.model.value import SHA256_PATTERN, Path

Schema = Mapping[str, Any]
Types = frozenset[str]
Alternatives: TypeAlias = list[tuple[Schema, Schema]]  # each with the root that its references point into

_MAX_BRANCHES: Final = 200
_ANYTHING: Final[tuple[Schema, ...]] = ({},)
# Beside a union, they are a second condition on the value; what both together allow is not worked out.
_OWN_SHAPE: Final = frozenset(("$ref", "allOf", "items", "prefixItems", "properties", "additionalProperties"))

_COUNTS: Final = frozenset(("prefixItems", "maxItems"))  # with them, the positions in a list are not alike

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
    """The facts about a place.

    Attributes:
        types: The JSON types that a value at this place can have; `None` for any.
        missing: The part of the path that does not exist, if the schema rules the place out.
        known: The fields that exist beside the missing part.
        inside: The class of the object in memory that the path leads into; empty if there is none.
        hint: For a value with objects in memory: its type, as the tool declares it.
        schemas: The alternative schemas of the value, each with the root that its references point into.
    """

    types: Types | None
    missing: str | int | None = None
    known: tuple[str, ...] = ()
    inside: str = ""
    hint: Any = None
    schemas: Alternatives = field(default_factory=list, repr=False, compare=False)


UNKNOWN: Final = Lookup(None)


def look_up(schemas: Iterable[tuple[Schema, Schema]], path: Path) -> Lookup:
    """Follow *path* through schemas.

    Args:
        schemas: Alternative schemas, each with the root that its ``$ref`` refer to.
        path: Keys and indices.
    """
    place = SchemaPlace(list(schemas))
    for part in path:
        whole, place = place, place.at(part)
        if not place.lookup.schemas:
            names = tuple(dict.fromkeys(k for b, _ in whole.branches for k in b.get("properties", ())))
            inside = (name for b, _ in whole.branches for name in places_in(_types(b)))
            return Lookup(None, part, names, next(inside, ""))
    return place.lookup


class SchemaPlace:
    """A place in a schema, which knows the places below it: each is looked up once.

    Keys that no schema names are one place, and so are the positions in a list whose elements are all alike. So there
    are few places, however many keys and positions there are.

    Args:
        alternatives: The alternative schemas of the values at this place, each with the root that its ``$ref`` refer
            to; none if there can be no value.

    Attributes:
        branches: The same without references and unions.
        lookup: The facts about the place; nothing is known if there can be no value.
    """

    __slots__ = ("_alike", "_parts", "branches", "lookup")

    def __init__(self, alternatives: Alternatives) -> None:
        self.branches = [(branch, root) for schema, root in alternatives for branch in _branches(schema, root)]
        types = _union(_types(branch) for branch, _ in self.branches) if alternatives else None
        self.lookup = Lookup(types, schemas=alternatives)
        named = (key for branch, _ in self.branches for key in branch.get("properties", ()))
        self._parts: dict[str | int, SchemaPlace | None] = dict.fromkeys(named)
        self._alike: dict[type, SchemaPlace] = {}  # the place of all other keys, and that of all positions

    def at(self, part: str | int) -> SchemaPlace:
        """Return the place of a field or an element; one that cannot exist has no schemas."""
        return self._parts.get(part, self._alike.get(type(part))) or self._look_up(part)

    def below(self, path: Iterable[str | int]) -> SchemaPlace:
        """Return the place at the end of a path; see `at`."""
        place = self
        for part in path:
            place = place.at(part)
        return place

    def _look_up(self, part: str | int) -> SchemaPlace:
        inside = [(inner, root) for branch, root in self.branches for inner in _step_into(branch, part)]
        if len(inside) > _MAX_BRANCHES:  # a schema that leads back to itself would multiply them at each step
            inside = list({id(inner): (inner, root) for inner, root in inside}.values())
        place = SchemaPlace(inside)
        own = part in self._parts if isinstance(part, str) else any(_COUNTS.intersection(b) for b, _ in self.branches)
        if own:
            self._parts[part] = place
        else:
            self._alike[type(part)] = place
        return place


def schemas_at(schema: Schema, root: Schema, path: Path) -> list[Schema]:
    """Return the alternative schemas of the value at *path*; none if there can be no value.

    Args:
        schema: A schema.
        root: The document of its references.
        path: Keys and indices.
    """
    return [inner for inner, _ in SchemaPlace([(schema, root)]).below(path).lookup.schemas]


def with_defaults(value: Any, schema: Schema, root: Schema) -> Any:
    """Return plain JSON completed with the defaults of its schema."""
    if not isinstance(value, dict | list):
        return value
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    parts = {key: with_defaults(part, {"anyOf": schemas_at(schema, root, (key,)) or [{}]}, root) for key, part in pairs}
    if isinstance(value, list):
        return list(parts.values())
    fields = [pair for branch in _branches(schema, root) for pair in branch.get("properties", {}).items()]
    said = [(name, part) for name, field in fields for part in (field, *_branches(field, root)) if "default" in part]
    return {**{name: part["default"] for name, part in reversed(said)}, **parts}


def takes_artifact(schema: Schema, root: Schema, path: Path) -> bool:
    """Whether the schema names an `Artifact` as one of the types that *path* can have."""
    return any(_is_artifact(branch) for branch, _ in SchemaPlace([(schema, root)]).below(path).branches)


def _is_artifact(branch: Schema) -> bool:
    field = branch.get("properties", {}).get("sha256", {})
    return isinstance(field, Mapping) and field.get("pattern") == SHA256_PATTERN


def types_of(schema: Schema, root: Schema) -> Types | None:
    """Return the JSON types that a schema allows; `None` for any."""
    return _union(_types(branch) for branch in _branches(schema, root))


def are_disjoint(expected: Types | None, possible: Types | None) -> bool:
    """Whether the two sets have no type in common; `None` means any type."""
    return expected is not None and possible is not None and not _widen(expected) & _widen(possible)


Clash: TypeAlias = tuple[Path, Types | None, Types | None]
"""The path to a place, the types that are expected there, and those that are given."""
_Known: TypeAlias = dict[tuple[int, int], Clash | None]  # by a pair of schemas


def clash(expected: Alternatives, given: Alternatives, known: _Known) -> Clash | None:
    """Return a place at which no value fits; `None` if a value may fit.

    Empty lists and objects do not count: a list of texts where numbers are needed is a wrong reference.

    Args:
        expected: The schemas of the accepted values.
        given: The schemas of the passed values.
        known: The result so far.
    """
    ours = [(part, root) for schema, root in expected for part in _branches(schema, root)]
    theirs = [(part, root) for schema, root in given for part in _branches(schema, root)]
    found = [_clash_of(one, other, known) for one in ours for other in theirs]
    if not found or None in found:
        return None
    taken, passed = (_union(_types(part) for part, _ in side) for side in (ours, theirs))
    inside = (one for one in found if one is not None and one[0])
    return ((), taken, passed) if are_disjoint(taken, passed) else next(inside)


def _clash_of(one: tuple[Schema, Schema], other: tuple[Schema, Schema], known: _Known) -> Clash | None:
    """Return a clash of two schemas without alternatives."""
    expected, given, pair = _types(one[0]), _types(other[0]), (id(one[0]), id(other[0]))
    if are_disjoint(expected, given):
        return (), expected, given
    both = (expected or frozenset()) & (given or frozenset())
    if pair in known or len(known) > _MAX_BRANCHES or not both or both - {"array", "object"}:
        return known.get(pair)
    known[pair] = None  # a type that leads back to itself adds nothing
    for kind in sorted(both):
        for part in _parts(kind, one[0], other[0]):
            inside = [[(inner, root) for inner in _step_into(schema, part)] for schema, root in (one, other)]
            if (found := clash(inside[0], inside[1], known)) is not None:
                known[pair] = ((part, *found[0]), found[1], found[2])
                break
        else:
            return None
    return known[pair]


def _parts(kind: str, expected: Schema, given: Schema) -> Iterable[str | int]:
    """Return the parts to compare: elements, or fields that one side must have, and any of an object by text."""
    if kind == "array":
        return range(max(1, *(len(side.get("prefixItems", ())) for side in (expected, given))))
    return (*expected.get("required", ()), *given.get("required", ()), *(() if "properties" in given else ("*",)))


def words(types: Types | None) -> str:
    """Name types in words: "a text or null"."""
    return "anything" if types is None else " or ".join(map(_word, sorted(types)))


def _word(name: str) -> str:
    if name.startswith(OBJECT_TYPE):
        return f"an object in memory ({name.removeprefix(OBJECT_TYPE)})"
    return _WORDS.get(name, name)


def type_of(value: object) -> Types | None:
    """Return the JSON type of a value."""
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
    # JSON has only one kind of number, so 3.0 may be used as 3.
    return types | {"integer"} if "number" in types else types


def _union(parts: Iterable[Types | None]) -> Types | None:
    union: set[str] = set()
    for part in parts:
        if part is None:
            return None
        union |= part
    return frozenset(union)


def _branches(schema: Schema | bool, root: Schema) -> list[Schema]:
    """Return every alternative of a schema, with references and unions resolved; a plain schema is the only one."""
    branches: list[Schema] = []
    waiting: list[Any] = [schema]
    seen: set[str] = set()
    while waiting:
        current = waiting.pop()
        if len(branches) + len(seen) > _MAX_BRANCHES or current is True:
            return list(_ANYTHING)
        if not isinstance(current, Mapping):
            continue  # false, which allows no value
        if "$ref" in current:
            target = str(current["$ref"])
            if target not in seen:  # a type that refers only to itself adds nothing
                seen.add(target)
                waiting.append(_resolve(target, root))
        elif unions := [part for key in ("anyOf", "oneOf") for part in current.get(key, ())]:
            waiting += [{}] if current.keys() & _OWN_SHAPE else reversed(unions)
        elif "allOf" in current:
            parts = current["allOf"]
            waiting.append(parts[0] if len(parts) == 1 and len(current.keys() & _OWN_SHAPE) == 1 else {})
        else:
            branches.append(current)
    return branches


def _resolve(target: str, root: Schema) -> Any:
    schema: Any = root
    for part in target.removeprefix("#").split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        schema = schema.get(key, {}) if isinstance(schema, Mapping) else {}
    return schema if target.startswith("#") else {}


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
    """Return the schemas of one field or element; none if it cannot exist."""
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
    # Pydantic writes additionalProperties only if the object can have fields beyond the declared ones.
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
