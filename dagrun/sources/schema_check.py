"""Hold a value to a JSON Schema that `read_schema` has read, in an amount of work that is bounded.

Libraries for JSON Schema execute its patterns, compare all elements of a list with each other, and follow references
that multiply as long as it takes. A tool is called in the event loop of its run, with a schema from anywhere, so each
look at a part of a value costs one unit of work here, and a check that has spent its units ends with a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import islice
from typing import Any, Final, Literal

from dagrun.errors import shorten
from dagrun.kernel.model.contracts.schema_types import words
from dagrun.kernel.model.reference import path_text
from dagrun.kernel.model.value import Path, encode, to_json
from dagrun.sources.foreign_schema import Schema, definition_of, read_schema, subschemas

FIRST_WORK: Final = 50_000  # units that each check has
WORK_BY_BYTE: Final = 4  # more of them, for each byte of JSON
MAX_WORK: Final = 2_000_000  # in all; that many take some three seconds
MAX_FAULTS: Final = 20
_MOST_FORMS: Final = 6  # that a fault names
_MOST_WEAK: Final = 2_000  # parts of a schema

FaultKind = Literal["missing", "unknown", "other"]


@dataclass(frozen=True, slots=True)
class SchemaFault:
    """A part of a value does not fit.

    Attributes:
        kind: ``missing``: the last part of *place* is not there; ``unknown``: it should not be there; else ``other``.
        place: The place in the value.
        text: The fault, without the value: "it should be a text".
    """

    kind: FaultKind
    place: Path
    text: str

    def __str__(self) -> str:
        where = path_text(self.place).removeprefix(".")
        return f"{where}: {self.text}" if where else self.text


def schema_faults(schema: Any, value: Any, what: str) -> list[SchemaFault]:
    """Return the faults of a value that does not fit a foreign JSON Schema; empty if it fits.

    Args:
        schema: The schema, as people write it.
        value: Plain JSON.
        what: What the schema describes, to begin messages with.

    Raises:
        ContractError: The schema is none, or one that cannot be enforced.
    """
    return SchemaRules(read_schema(schema, what)).faults(value, len(to_json(encode(value))))


class SchemaRules:
    """A schema that values are held to.

    Args:
        schema: The schema, as `read_schema` returns it.
    """

    __slots__ = ("_schema", "_weak", "definitions")

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self.definitions: Mapping[str, Any] = schema.get("$defs", {})
        self._weak: dict[int, bool] = {}  # by identity of a part, which lives as long as the schema

    def faults(self, value: Any, size: int) -> list[SchemaFault]:
        """Return the faults of a value, at most `MAX_FAULTS`; empty if it fits.

        Args:
            value: Plain JSON.
            size: Bytes of the value as JSON; a large value may take more work.
        """
        check = _Check(self, min(FIRST_WORK + WORK_BY_BYTE * size, MAX_WORK))
        try:
            return check.faults(value, self._schema, ())[:MAX_FAULTS]
        except (_OutOfWork, RecursionError):
            return [SchemaFault("other", (), "checking it against the schema takes more work than is allowed")]

    def is_weak(self, part: Schema) -> bool:
        """Whether a keyword that is never executed is in a part of the schema, so that too much may fit it."""
        known = self._weak.get(id(part))
        if known is None:
            known = self._weak[id(part)] = self._find_weak(part)
        return known

    def _find_weak(self, part: Schema) -> bool:
        waiting, seen = [part], set[int]()
        while waiting:
            at = waiting.pop()
            if len(seen) > _MOST_WEAK:
                return True  # nobody looks through all that large documents refer to
            if id(at) in seen or isinstance(at, bool):
                continue
            seen.add(id(at))
            if at.keys() & _NEVER_EXECUTED:
                return True
            waiting += subschemas(at)
            if (target := definition_of(at, self.definitions)) is not None:
                waiting.append(target)
        return False


class _OutOfWork(Exception):
    """The check has spent its units of work."""


class _Check:
    """Checks one value.

    Args:
        rules: The schema.
        work: How many units of work it may take.
    """

    def __init__(self, rules: SchemaRules, work: int) -> None:
        self.is_weak = rules.is_weak
        self._definitions = rules.definitions
        self._left = work

    def faults(self, value: Any, schema: Any, place: Path) -> list[SchemaFault]:
        """Return the faults of a part of the value."""
        self._left -= 1
        if self._left < 0:
            raise _OutOfWork
        if not schema or schema is True:
            return [] if schema is not False else [SchemaFault("other", place, "no value may be here")]
        found: list[SchemaFault] = []
        if (target := definition_of(schema, self._definitions)) is not None:
            found += self.faults(value, target, place)
        for key, said in schema.items():
            judge = _JUDGES.get(key)
            if judge is not None and len(found) <= MAX_FAULTS:
                found += islice(judge(self, value, said, place, schema), MAX_FAULTS)
        return found

    def fits(self, value: Any, schema: Schema | bool) -> bool:
        """Whether a part of the value fits a schema."""
        return not self.faults(value, schema, ())

    def spend(self, units: int) -> None:
        """Take units of work for one larger operation."""
        self._left -= units
        if self._left < 0:
            raise _OutOfWork

    def admits(self, schema: Schema | bool, value: Any) -> bool:
        """Whether the type that a schema names is the type of the value; if it names none, it may be."""
        while isinstance(schema, Mapping) and (target := definition_of(schema, self._definitions)) is not None:
            schema = target
        return not isinstance(schema, Mapping) or "type" not in schema or _has_type(value, schema["type"])


# The keywords --------------------------------------------------------------------------------------------------------

Found = Iterable[SchemaFault]
Judge = Callable[[_Check, Any, Any, Path, Schema], Found]


def _type(check: _Check, value: Any, said: Any, place: Path, schema: Schema) -> Found:
    if not _has_type(value, said):
        yield SchemaFault("other", place, f"it should be {words(frozenset([said] if isinstance(said, str) else said))}")


def _has_type(value: Any, said: Any) -> bool:
    return any(_TYPES[name](value) for name in ((said,) if isinstance(said, str) else said))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TYPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: _is_number(value) and (isinstance(value, int) or value.is_integer()),
    "number": _is_number,
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def _enum(check: _Check, value: Any, said: Any, place: Path, schema: Schema) -> Found:
    check.spend(len(said) // 8)
    if not any(_same(check, value, known) for known in said):
        yield SchemaFault("other", place, f"it should be one of {_shown(said)}")


def _const(check: _Check, value: Any, said: Any, place: Path, schema: Schema) -> Found:
    if not _same(check, value, said):
        yield SchemaFault("other", place, f"it should be {_shown([said])}")


def _shown(values: list[Any]) -> str:
    return ", ".join(shorten(repr(value), 40) for value in values[:10]) + (", …" if len(values) > 10 else "")


def _same(check: _Check, one: Any, other: Any) -> bool:
    """Whether two values are equal JSON: 1 and 1.0 are, 1 and true are not."""
    if isinstance(one, dict) and isinstance(other, dict):
        check.spend(len(one))
        return one.keys() == other.keys() and all(_same(check, part, other[key]) for key, part in one.items())
    if isinstance(one, list) and isinstance(other, list):
        check.spend(len(one))
        return len(one) == len(other) and all(_same(check, *pair) for pair in zip(one, other, strict=True))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _bound(text: str, holds: Callable[[Any, Any], bool]) -> Judge:
    def judge(check: _Check, value: Any, said: Any, place: Path, schema: Schema) -> Found:
        if _is_number(value) and not holds(value, said):
            yield SchemaFault("other", place, f"it should be {text} {said}")

    return judge


def _is_multiple(value: Any, said: Any) -> bool:
    try:
        return Decimal(repr(value)) % Decimal(repr(said)) == 0
    except InvalidOperation:  # a quotient of more digits than can be told
        return True


def _length(kind: type[str | list[Any] | dict[str, Any]], word: str, *, is_least: bool) -> Judge:
    def judge(check: _Check, value: Any, said: Any, place: Path, schema: Schema) -> Found:
        if isinstance(value, kind) and (len(value) < said if is_least else len(value) > said):
            yield SchemaFault("other", place, f"it should have {'at least' if is_least else 'at most'} {said} {word}")

    return judge


def _prefix_items(check: _Check, value: Any, said: Any, place: Path, schema: Schema) -> Found:
    if isinstance(value, list):
        for number, (part, rule) in enumerate(zip(value, said, strict=False)):
            yield from check.faults(part, rule, (*place, number))


def _items(check: _Check, value: Any, said: Any, place: Path, schema: Schema) -> Found:
    if isinstance(value, list):
        first = len(schema.get("prefixItems", ()))
        for number, part in enumerate(value[first:], first):
            yield from check.faults(part, said, (*place, number))


def _contains(check: _Check, value: Any, said: Any, place: Path, schema: Schema) -> Found:
    if not isinstance(value, list):
        return
    least, most = schema.get("minContains", 1), schema.get("maxContains")
    count = sum(check.fits(part, said) for part in value)
    if count < least:
        yield SchemaFault(
            "other", place, f"it should have at least {least} elements of the kind that the schema asks for"
        )
    if most is not None and count > most and not check.is_weak(said):
        yield SchemaFault("other", place, f"it should have at most {most} elements of the kind that the schema names")


def _properties(check: _Check, value: Any, said: Any, place: Path, schema: Schema) -> Found:
    if isinstance(value, dict):
        for name, rule in said.items():
            if name in value:
                yield from check.faults(value[name], rule, (*place, name))


def _required(check: _Check, value: Any, said: Any, place: Path, schema: Schema) -> Found:
    if isinstance(value, dict):
        yield from (SchemaFault("missing", (*place, name), "it is missing") for name in said if name not in value)


def _additional_properties(check: _Check, value: Any, said: Any, place: Path, schema: Schema) -> Found:
    if not isinstance(value, dict) or said is True or "patternProperties" in schema:
        return  # a pattern is never executed, so nobody knows which fields are left
    known = schema.get("properties", {})
    for name in sorted(value.keys() - known.keys()):
        if said is False:
            yield SchemaFault("unknown", (*place, name), "there is no such field")
        else:
            yield from check.faults(value[name], said, (*place, name))


def _property_names(check: _Check, value: Any, said: Any, place: Path, schema: Schema) -> Found:
    if isinstance(value, dict):
        wrong = [name for name in value if not check.fits(name, said)]
        if wrong:
            yield SchemaFault(
                "other", place, f"its field {shorten(repr(wrong[0]), 60)} has a name that the schema refuses"
            )


def _dependent_required(check: _Check, value: Any, said: Any, place: Path, schema: Schema) -> Found:
    if isinstance(value, dict):
        pairs = [(name, other) for name in said.keys() & value.keys() for other in said[name] if other not in value]
        yield from (SchemaFault("other", place, f"with {name}, it should have {other}") for name, other in pairs)


def _dependent_schemas(check: _Check, value: Any, said: Any, place: Path, schema: Schema) -> Found:
    if isinstance(value, dict):
        for name in said.keys() & value.keys():
            yield from check.faults(value, said[name], place)


def _all_of(check: _Check, value: Any, said: Any, place: Path, schema: Schema) -> Found:
    for part in said:
        yield from check.faults(value, part, place)


def _any_of(check: _Check, value: Any, said: Any, place: Path, schema: Schema) -> Found:
    tried: list[list[SchemaFault]] = []
    for part in said:
        tried.append(check.faults(value, part, place))
        if not tried[-1]:
            return []
    return _none_fits(check, value, tried, said, place)


def _one_of(check: _Check, value: Any, said: Any, place: Path, schema: Schema) -> Found:
    tried = [check.faults(value, part, place) for part in said]
    fitting = tried.count([])
    weak = fitting > 1 and any(check.is_weak(part) for part, found in zip(said, tried, strict=True) if not found)
    # One that fits only because its pattern was not executed may well be none.
    if fitting > 1 and not weak:
        return [SchemaFault("other", place, f"it fits {fitting} of the forms that exclude each other")]
    return [] if fitting else _none_fits(check, value, tried, said, place)


def _none_fits(
    check: _Check, value: Any, tried: list[list[SchemaFault]], said: list[Any], place: Path
) -> list[SchemaFault]:
    """Return the faults of a value that fits none of its forms; they name the nearest form and its faults."""
    forms = [(number, found) for number, found in enumerate(tried) if check.admits(said[number], value)]
    if len(forms) == 1 or len(said) == 1:
        return forms[0][1] if forms else tried[0]  # the only form of the value's type, so its faults are the value's
    if not forms:
        reasons = list(dict.fromkeys(found[0].text.removeprefix("it should be ") for found in tried))
        return [SchemaFault("other", place, f"it should be {' or '.join(reasons[:_MOST_FORMS])}")]
    number, nearest = min(forms, key=lambda form: (len(form[1]), -max(len(fault.place) for fault in form[1])))
    name = said[number].get("$ref", f"form {number + 1}").removeprefix("#/$defs/")
    text = f"it fits none of its {len(said)} forms (nearest is {shorten(name, 60)}: {'; '.join(map(str, nearest[:3]))})"
    return [SchemaFault("other", place, text)]


def _not(check: _Check, value: Any, said: Any, place: Path, schema: Schema) -> Found:
    if not said:
        yield SchemaFault("other", place, "no value may be here")
    elif not check.is_weak(said) and check.fits(value, said):
        yield SchemaFault("other", place, "it has the form that the schema excludes")


def _if(check: _Check, value: Any, said: Any, place: Path, schema: Schema) -> Found:
    if check.is_weak(said):
        return
    branch = schema.get("then" if check.fits(value, said) else "else")
    found = check.faults(value, branch, place) if branch is not None else []
    # One fault, of the whole: which branch counts depends on other parts of the value.
    if found:
        yield SchemaFault("other", place, f"its fields do not go together ({found[0]})")


_JUDGES: Final[Mapping[str, Judge]] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "minimum": _bound("at least", lambda value, said: value >= said),
    "maximum": _bound("at most", lambda value, said: value <= said),
    "exclusiveMinimum": _bound("more than", lambda value, said: value > said),
    "exclusiveMaximum": _bound("less than", lambda value, said: value < said),
    "multipleOf": _bound("a multiple of", _is_multiple),
    "minLength": _length(str, "characters", is_least=True),
    "maxLength": _length(str, "characters", is_least=False),
    "minItems": _length(list, "elements", is_least=True),
    "maxItems": _length(list, "elements", is_least=False),
    "minProperties": _length(dict, "fields", is_least=True),
    "maxProperties": _length(dict, "fields", is_least=False),
    "prefixItems": _prefix_items,
    "items": _items,
    "contains": _contains,
    "properties": _properties,
    "required": _required,
    "additionalProperties": _additional_properties,
    "propertyNames": _property_names,
    "dependentRequired": _dependent_required,
    "dependentSchemas": _dependent_schemas,
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
    "if": _if,
}

_NEVER_EXECUTED: Final = frozenset(
    ("pattern", "format", "patternProperties", "uniqueItems", "unevaluatedItems", "unevaluatedProperties")
)
