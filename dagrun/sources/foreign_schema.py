"""Read a JSON Schema from outside into one form that the rest of dagrun understands.

A foreign schema is hostile input. The rules:

1. It is plain JSON within limits of size and depth. Everything is copied, so nobody can change it later. Descriptions
   do not count: they are cut where they are too much beside what is checked. A null in place of a schema says nothing.
2. Only keywords that are known here are kept, each with a value of its right shape. Other keywords say nothing about
   values, or nothing that can be checked here.
3. The result is of draft 2020-12. What older drafts and OpenAPI 3.0 write in another way is rewritten.
4. References point into the document itself. Each becomes ``#/$defs/NAME``, and definitions that nothing uses are left
   out. Nothing is ever fetched. A reference that leads back to itself without a step into the value is refused.
   A schema that is read late may be larger: its definitions are read as far as the limits go, and any other on the
   first value that it is about.
5. ``pattern``, ``format``, ``patternProperties``, ``uniqueItems`` and ``unevaluated…`` are kept for readers, never
   executed: a pattern can take forever, and a comparison of all elements with each other nearly so. The
   provider of the tool checks them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

from dagrun.errors import ContractError, shorten
from dagrun.kernel.model.value import MAX_INT_BITS, Path, encode_plain

Schema = Mapping[str, Any]

MAX_SCHEMA_BYTES: Final = 64 << 10
MAX_SCHEMA_DEPTH: Final = 32  # levels of schemas inside schemas
MAX_DEFINITIONS: Final = 500
MAX_EXPANSION: Final = 2_000  # schemas that may look at one and the same value
MAX_TEXT: Final = 2_000  # characters of a description
_SHORTER_TEXTS: Final = (300, 100, 0)  # characters of all, where they are too many

_MAX_JSON_DEPTH: Final = 2 * MAX_SCHEMA_DEPTH + 2  # "properties" and "anyOf" are levels of JSON, and none of schemas
_MAX_TREE_BYTES: Final = 4 << 20  # beyond that, nobody measures how much it is
TYPES: Final = frozenset(("string", "integer", "number", "boolean", "null", "array", "object"))

_UNEVALUATED: Final = ("unevaluatedItems", "unevaluatedProperties")
_ONE: Final = frozenset(
    ("items", "contains", "additionalProperties", "propertyNames", "not", "if", "then", "else", *_UNEVALUATED)
)
_LISTS: Final = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_NAMED: Final = frozenset(("properties", "patternProperties", "dependentSchemas"))
_NUMBERS: Final = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"))
_COUNTS: Final = frozenset(
    ("minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains", "minProperties", "maxProperties")
)
_FLAGS: Final = frozenset(("uniqueItems", "deprecated", "readOnly", "writeOnly"))
_TEXTS: Final = frozenset(("pattern", "format", "contentMediaType", "contentEncoding"))
_IN_PLACE: Final = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else")  # they look at the same value
_NOTES: Final = frozenset(("description", "default", "examples", "deprecated", "readOnly", "writeOnly"))
_FOLLOWS_ONLY_HERE: Final = ("$dynamicRef", "$recursiveRef")
NOTHING: Final[Schema] = {"not": {}}  # the schema that no value fits


def read_schema(
    schema: Any,
    what: str,
    inside: Mapping[str, Any] | None = None,
    *,
    without: str = "",
    is_late: bool = False,
) -> dict[str, Any]:
    """Return a foreign schema in the form that the top of this file describes.

    Args:
        schema: The schema: an object, or true.
        what: The thing that it describes, to begin messages with.
        inside: The document that the schema is a part of, and that its references point into; `None` if it is the
            whole document. Of a larger document, only what the schema refers to is looked at and counts.
        without: A flag whose properties are left out, and not required: what is only for answers (``readOnly``) is not
            sent, and what is only for requests (``writeOnly``) does not come back.
        is_late: Whether it may be larger than the limits; if it is, its ``$defs`` are `LateDefinitions`.

    Raises:
        ContractError: It is no JSON Schema, or one that cannot be enforced; the message says where.
    """
    try:
        copier = _Copier()
        plain = copier.copied(schema, (), 0)
        read = _Reader(plain, plain if inside is None else inside, copier, without).read(is_late=is_late)
        if not isinstance(read.get("$defs"), LateDefinitions):
            _fit(read)
            _check_expansion(read)
    except BadSchema as error:
        place = "/".join(map(str, error.place))
        raise ContractError(f"{what}: not a JSON Schema that can be used: {shorten(place) or 'it'} {error}") from None
    return read


class BadSchema(ValueError):
    """A part of a schema cannot be used; the message has the reason, and *place* the part."""

    def __init__(self, reason: str, place: Path = ()) -> None:
        super().__init__(reason)
        self.place = place


# Plain JSON ----------------------------------------------------------------------------------------------------------


def _fit(read: dict[str, Any]) -> None:
    """Shorten the descriptions of a schema, in place, until it is within the ceiling."""
    size = 0
    for most in (MAX_TEXT, *_SHORTER_TEXTS):
        for part in [part for part in _every(read) if most < MAX_TEXT and "description" in part]:
            text = part.pop("description")
            if most:
                part["description"] = text if len(text) <= most else f"{text[:most]}…"
        size = len(encode_plain(read).encode())
        if size <= MAX_SCHEMA_BYTES:
            return
    raise BadSchema(f"has {size} bytes of JSON without its descriptions, the ceiling is {MAX_SCHEMA_BYTES}")


def _every(read: Schema) -> Iterator[Any]:
    """Yield every schema in a schema that has been read."""
    waiting = [read, *read.get("$defs", {}).values()]
    while waiting:
        yield (part := waiting.pop())
        waiting += subschemas(part)


class _Copier:
    """Copies plain JSON, and counts while it does: a value that contains itself ends at the limit."""

    def __init__(self) -> None:
        self._left = _MAX_TREE_BYTES

    def copied(self, value: Any, place: Path, depth: int) -> Any:
        self._spend(1)
        if depth > _MAX_JSON_DEPTH:
            raise BadSchema(f"is nested deeper than {MAX_SCHEMA_DEPTH} schemas", place[:3])
        match value:
            case None | bool():
                return value
            case str():
                return self._text(value, place)
            case int():
                if value.bit_length() > MAX_INT_BITS:
                    raise BadSchema(f"is a number of over {MAX_INT_BITS} bits", place)
                return int(value)
            case float():
                if not math.isfinite(value):
                    raise BadSchema("is a number that is not finite", place)
                return float(value)
            case Mapping():
                return {
                    self._key(key, place): self.copied(part, (*place, key), depth + 1) for key, part in value.items()
                }
            case list() | tuple():
                return [self.copied(part, (*place, number), depth + 1) for number, part in enumerate(value)]
            case _:
                raise BadSchema(f"is no JSON but a {type(value).__name__}", place)

    def _key(self, key: Any, place: Path) -> str:
        if not isinstance(key, str):
            raise BadSchema("has a key that is no text", place)
        return self._text(key, place)

    def _text(self, text: str, place: Path) -> str:
        self._spend(len(text))
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                raise BadSchema("has half a character (a lone surrogate)", place) from None
        return str(text)

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise BadSchema(f"has over {_MAX_TREE_BYTES} bytes of JSON, the ceiling is {MAX_SCHEMA_BYTES}")


# One form ------------------------------------------------------------------------------------------------------------


class _Reader:
    """Rewrites one schema.

    Attributes:
        waiting: The definitions that have not been read, by name.

    Args:
        schema: The schema, as plain JSON.
        document: The document that its references point into.
        copier: Copies the targets of references, if that is another document.
        without: A flag whose properties are left out; or an empty text.
    """

    def __init__(self, schema: Any, document: Any, copier: _Copier, without: str = "") -> None:
        self._root = schema
        self._document = document
        self._copier = copier
        self._names: dict[str, str] = {}  # by target of a reference
        self.waiting: dict[str, Any] = {}  # definitions to read, by name
        self._without = without
        self._is_late = False
        self._is_old = isinstance(document, Mapping) and _ignores_siblings(document)

    def read(self, *, is_late: bool = False) -> dict[str, Any]:
        """Return the schema in the one form."""
        self._is_late = is_late
        root = self._schema(self._root, (), 0)
        definitions = LateDefinitions(self)
        left = MAX_SCHEMA_BYTES - (len(encode_plain(root)) if is_late else 0)
        self._is_late, left = is_late and left >= 0, max(left, 0)  # a root that is too large has no other way
        while self.waiting:  # the nearest ones first
            name, raw = next(iter(self.waiting.items()))
            made = self.definition(name)
            left -= len(encode_plain(made)) if self._is_late else 0
            if left < 0:  # there is no room for this one
                self.waiting[name] = raw
                return {**root, "$defs": definitions}
            definitions[name] = made
        return {**root, "$defs": dict(sorted(definitions.items()))} if definitions else root

    def definition(self, name: str) -> dict[str, Any]:
        """Read the next definition."""
        return self._schema(self.waiting.pop(name), ("$defs", name), 0)

    def late_definition(self, name: str) -> dict[str, Any]:
        """Read a definition when a value asks for it; one that cannot be used says nothing."""
        self._copier = _Copier()
        try:
            return self.definition(name)
        except BadSchema:
            return {}

    def _schema(self, schema: Any, place: Path, depth: int) -> dict[str, Any]:
        if depth > MAX_SCHEMA_DEPTH:
            raise BadSchema(f"is nested deeper than {MAX_SCHEMA_DEPTH} schemas", place[:3])
        if schema is True or (schema is None and depth):
            return {}
        if schema is False:
            return dict(NOTHING)
        if not isinstance(schema, dict):
            raise BadSchema("must be an object, true or false", place)
        modern = _modernised(schema, place)
        if self._without:
            modern = self._unflagged(modern)
        read: dict[str, Any] = {}
        for key, value in modern.items():
            if value is not None or key in ("const", "default"):
                self._keyword(read, key, value, place, depth)
        return self._with_reference(read, modern, place)

    def _keyword(self, read: dict[str, Any], key: str, value: Any, place: Path, depth: int) -> None:
        """Read one keyword into *read*; an unknown one is left out."""
        here = (*place, key)
        if key in _ONE:
            read[key] = self._schema(value, here, depth + 1)
            if key.startswith(("additional", "unevaluated")) and read[key] in ({}, NOTHING):
                read[key] = not read[key]  # the short form, which the rest of dagrun looks for
        elif key in _LISTS:
            if not isinstance(value, list) or not value:
                raise BadSchema("must be a list with an element", here)
            read[key] = [self._schema(part, (*here, number), depth + 1) for number, part in enumerate(value)]
        elif key in _NAMED:
            if not isinstance(value, dict):
                raise BadSchema("must be an object", here)
            read[key] = {name: self._schema(part, (*here, name), depth + 1) for name, part in value.items()}
        elif key in _FOLLOWS_ONLY_HERE:
            raise BadSchema("is a dynamic reference, which is not supported", here)
        elif (reader := _PLAIN_KEYWORDS.get(key)) is not None:
            kept = reader(value, here)
            if kept is not None or key in ("const", "default"):
                read[key] = kept

    def _with_reference(self, read: dict[str, Any], modern: Schema, place: Path) -> dict[str, Any]:
        """Add the reference, if there is one, with its sibling keywords as a second condition."""
        target = modern.get("$ref")
        if target is None:
            return read
        reference = {"$ref": f"#/$defs/{self._name_of(target, (*place, '$ref'))}"}
        notes = {key: part for key, part in read.items() if key in _NOTES}
        rest = {key: part for key, part in read.items() if key not in _NOTES}
        return {**notes, "allOf": [reference, rest]} if rest and not self._is_old else {**notes, **reference}

    def _name_of(self, target: Any, place: Path) -> str:
        """Return the name under which the target of a reference stands in the result."""
        if not isinstance(target, str) or not (target == "#" or target.startswith("#/")):
            reason = f"refers to {shorten(repr(target), 60)}; only references inside the schema, '#/…', work"
            raise BadSchema(reason, place)
        if target not in self._names:
            schema = self._resolved(target, place)
            if len(self._names) >= MAX_DEFINITIONS and not self._is_late:
                raise BadSchema(f"has over {MAX_DEFINITIONS} definitions", place[:1])
            last = re.sub(r"[^A-Za-z0-9_.-]", "_", unquote(target.rpartition("/")[2]))[:60].strip("#") or "Whole"
            taken = set(self._names.values())
            name, number = last, 1
            while name in taken:
                number += 1
                name = f"{last}_{number}"
            self._names[target] = name
            self.waiting[name] = schema
        return self._names[target]

    def _resolved(self, target: str, place: Path) -> Any:
        try:
            found = part_at(self._document, target)
        except LookupError:
            raise BadSchema(f"refers to {shorten(repr(target), 60)}, which is not in the schema", place) from None
        return found if self._document is self._root else self._copier.copied(found, place, 0)

    def _unflagged(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return a schema without the properties that have the flag, in it or in what it is composed of."""
        gone: set[str] = set()
        waiting: list[Any] = [schema]
        seen: set[int] = set()
        while waiting:
            part = waiting.pop()
            if not isinstance(part, Mapping) or id(part) in seen:
                continue
            seen.add(id(part))
            properties, parts = part.get("properties"), part.get("allOf")
            for name, one in properties.items() if isinstance(properties, Mapping) else ():
                both = (one, self._target(one))
                if any(isinstance(each, Mapping) and each.get(self._without) is True for each in both):
                    gone.add(name)
            waiting += [*(parts if isinstance(parts, list) else ()), self._target(part)]
        kept = dict(schema)
        if isinstance(properties := kept.get("properties"), dict):
            kept["properties"] = {name: one for name, one in properties.items() if name not in gone}
        if isinstance(required := kept.get("required"), list):
            kept["required"] = [name for name in required if not isinstance(name, str) or name not in gone]
        return kept

    def _target(self, schema: Any) -> Any:
        """Return the target of the reference of a schema as it is written; `None` if there is none."""
        target = schema.get("$ref") if isinstance(schema, Mapping) else None
        try:
            return part_at(self._document, target) if isinstance(target, str) and target.startswith("#/") else None
        except LookupError:
            return None


class LateDefinitions(dict[str, Any]):
    """The definitions of a schema that is larger than the limits; each is read on first use.

    Args:
        reader: Reads them.
    """

    def __init__(self, reader: _Reader) -> None:
        super().__init__()
        self._reader = reader

    def shown(self) -> dict[str, Any]:
        """Return the parts that have been read, and the schema of any value for the others."""
        return {name: {} for name in self._reader.waiting} | self

    def __missing__(self, name: str) -> dict[str, Any]:
        """Read a definition."""
        made = self[name] = self._reader.late_definition(name)
        return made


def as_shown(read: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that has been read with all definitions that it refers to, as planners and checks see it."""
    late = read.get("$defs")
    return {**read, "$defs": late.shown()} if isinstance(late, LateDefinitions) else read


def part_at(document: Any, target: str) -> Any:
    """Return the part of a document that a reference ``#/…`` leads to, through objects and lists.

    Raises:
        LookupError: There is none.
    """
    found = document
    for part in target.split("/")[1:]:
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and key.isascii() and key.isdigit() and len(key) < 6:
            found = found[int(key)]
        elif isinstance(found, Mapping):
            found = found[key]
        else:
            raise LookupError(target)
    return found


def _ignores_siblings(document: Mapping[str, Any]) -> bool:
    """Whether siblings of a reference are ignored, as up to draft 7 and in OpenAPI 3.0."""
    is_old_draft = re.search(r"draft-0[3-7]/", str(document.get("$schema", ""))[:200]) is not None
    return is_old_draft or str(document.get("openapi", "")).startswith("3.0")


def _modernised(schema: dict[str, Any], place: Path) -> dict[str, Any]:
    """Return a schema of older drafts or OpenAPI 3.0 in the form of draft 2020-12."""
    new = dict(schema)
    for bound, strict in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        # Draft 4: whether the bound itself is out.
        if isinstance(new.get(strict), bool) and new.pop(strict) and bound in new:
            new[strict] = new.pop(bound)
    if isinstance(new.get("items"), list):  # up to 2019-09: a schema for each element
        first, rest = new.pop("items"), new.pop("additionalItems", True)
        new |= {"prefixItems": first, "items": rest} if first else {"items": rest}
    if isinstance(depends := new.pop("dependencies", None), dict):
        lists = {key: part for key, part in depends.items() if isinstance(part, list)}
        schemas = {key: part for key, part in depends.items() if not isinstance(part, list)}
        new |= {"dependentRequired": lists} if lists else {}
        new |= {"dependentSchemas": schemas} if schemas else {}
    if isinstance(new.get("required"), bool):  # draft 3, and many by mistake: of a property, it says nothing
        del new["required"]
    if new.pop("nullable", False) is True:
        new = _or_null(new, place)
    return new


def _or_null(schema: dict[str, Any], place: Path) -> dict[str, Any]:
    types = schema.get("type")
    if types is None:
        return schema  # any type, null too
    listed = types if isinstance(types, list) else [types]
    widened = {**schema, "type": [*listed, "null"] if "null" not in listed else listed}
    if isinstance(enum := schema.get("enum"), list) and None not in enum:
        widened["enum"] = [*enum, None]
    return widened


# Keywords without schemas inside -------------------------------------------------------------------------------------


def _read_type(value: Any, place: Path) -> Any:
    names = value if isinstance(value, list) else [value]
    if not names or any(not isinstance(name, str) or name not in TYPES for name in names):
        raise BadSchema(f"is {shorten(repr(value), 60)}, not of {', '.join(sorted(TYPES))}", place)
    return names[0] if len(names) == 1 else list(dict.fromkeys(names))


def _read_enum(value: Any, place: Path) -> Any:
    if not isinstance(value, list) or not value:
        raise BadSchema("must be a list with an element", place)
    return value


def _read_number(value: Any, place: Path) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadSchema("must be a number", place)
    if place[-1] == "multipleOf" and value <= 0:
        raise BadSchema("must be above 0", place)
    return value


def _read_count(value: Any, place: Path) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or value != int(value):
        raise BadSchema("must be a whole number from 0", place)
    return int(value)


def _read_flag(value: Any, place: Path) -> Any:
    return True if value is True else None


def _read_text(value: Any, place: Path) -> Any:
    if not isinstance(value, str):
        raise BadSchema("must be a text", place)
    return value


def _read_description(value: Any, place: Path) -> Any:
    return shorten(value, MAX_TEXT) if isinstance(value, str) and value.strip() else None


def _read_names(value: Any, place: Path) -> Any:
    if not isinstance(value, list) or any(not isinstance(name, str) for name in value):
        raise BadSchema("must be a list of names", place)
    return list(dict.fromkeys(value)) or None


def _read_dependencies(value: Any, place: Path) -> Any:
    if not isinstance(value, dict):
        raise BadSchema("must be an object", place)
    return {name: _read_names(names, (*place, name)) or [] for name, names in value.items()} or None


def _read_anything(value: Any, place: Path) -> Any:
    return value


_PLAIN_KEYWORDS: Final[Mapping[str, Callable[[Any, Path], Any]]] = {
    "type": _read_type,
    "enum": _read_enum,
    "const": _read_anything,
    "default": _read_anything,
    "description": _read_description,
    "required": _read_names,
    "dependentRequired": _read_dependencies,
    **dict.fromkeys(_NUMBERS, _read_number),
    **dict.fromkeys(_COUNTS, _read_count),
    **dict.fromkeys(_FLAGS, _read_flag),
    **dict.fromkeys(_TEXTS, _read_text),
}


# Expansion -----------------------------------------------------------------------------------------------------------


def in_place(schema: Schema) -> Iterator[Schema]:
    """Yield the schemas inside a schema that apply to its own value; not the target of its reference."""
    for key in _IN_PLACE:
        part = schema.get(key)
        if isinstance(part, list):
            yield from part
        elif part is not None:
            yield part
    yield from schema.get("dependentSchemas", {}).values()


def definition_of(schema: Schema, definitions: Mapping[str, Any]) -> Schema | None:
    """Return the target of the reference of a schema that `read_schema` has read; `None` if it has none."""
    return definitions[schema["$ref"].removeprefix("#/$defs/")] if "$ref" in schema else None


def _check_expansion(root: Schema) -> None:
    """Refuse a schema with a circular reference, or with references that multiply."""
    definitions: Mapping[str, Any] = root.get("$defs", {})
    costs: dict[str, int] = {}
    for name in definitions:
        _cost_of(name, definitions, costs)
    for part in _every(root):
        if _sum(part, costs) > MAX_EXPANSION:
            raise BadSchema(f"would look at one value with over {MAX_EXPANSION} schemas")


def subschemas(schema: Schema) -> Iterator[Schema]:
    """Yield every schema that stands directly inside a schema, except its definitions."""
    for key, part in schema.items():
        if key in _LISTS:
            yield from part
        elif key in _NAMED:
            yield from part.values()
        elif key in _ONE and not isinstance(part, bool):
            yield part


def _cost_of(first: str, definitions: Mapping[str, Any], costs: dict[str, int]) -> None:
    """Find how many schemas a definition and those that it refers to apply to one value."""
    path: dict[str, None] = {}
    waiting = [(first, False)]
    while waiting:
        name, is_ready = waiting.pop()
        if is_ready:
            del path[name]
            costs[name] = min(_sum(definitions[name], costs), MAX_EXPANSION + 1)
        elif name in path:
            raise BadSchema("refers to itself without a step into the value", ("$defs", name))
        elif name not in costs:
            path[name] = None
            waiting.append((name, True))
            waiting += [(target, False) for target in _targets(definitions[name])]


def _all_in_place(schema: Schema) -> Iterator[Schema]:
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        yield part
        waiting += in_place(part)


def _targets(schema: Schema) -> list[str]:
    return [part["$ref"].removeprefix("#/$defs/") for part in _all_in_place(schema) if _is_reference(part)]


def _sum(schema: Schema, costs: Mapping[str, int]) -> int:
    return sum(
        1 + (costs.get(part["$ref"].removeprefix("#/$defs/"), 1) if _is_reference(part) else 0)
        for part in _all_in_place(schema)
    )


def _is_reference(schema: Schema) -> bool:
    return isinstance(schema.get("$ref"), str)
