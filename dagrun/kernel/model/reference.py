"""References to the outputs of other steps, templates that are filled in when a step starts, and conditions of steps.

The grammar is closed: a step id, then keys and indices on plain JSON. Nothing is ever evaluated. The output of a tool
is put in as data, and is never searched for references.

A condition (`when`, `success`) is a comparison such as ``{"ref": "clean.rows", "op": ">", "value": 0}``, or ``all``,
``any`` or ``not`` of conditions. Richer rules are critics.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from dagrun.errors import ValueTooLarge, fields_repr, short_repr, shorten
from dagrun.kernel.model.value import MAX_VALUE_BYTES, Path, Stored, describe, to_json

ID_PATTERN: Final = r"[A-Za-z0-9_-]{1,48}"
RESERVED: Final[Mapping[str, str]] = {
    "input": "${input…} stands for the inputs of the run",
    "item": "${item…} stands for the element in a step with for_each",
}
_ID: Final = re.compile(ID_PATTERN)
_PART: Final = re.compile(r"\.([A-Za-z0-9_-]+)|\[(0|[1-9][0-9]{0,8})\]|\[(\"(?:[^\"\\\x00-\x1f]|\\.)*\")\]")
HOLE: Final = re.compile(r"\$\$\{|\$\{([^}]*)\}?")  # the escape, or a reference with its inside as group 1
# `json.dumps` with options makes a new encoder at each call, which takes longer than the encoding.
_dumps: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode

_ESCAPED_KEY: Final = re.compile(r"\$+\$step")  # in a plan, it stands for the key with one "$" less

MAX_PATH_PARTS: Final = 32
_MAX_INDEX: Final = 999_999_999


class BadReference(ValueError):
    """A text is not a reference; the message has the reason."""


@dataclass(slots=True, unsafe_hash=True)  # not frozen because a check makes one or more per step; never changed
class Reference:
    """A part of the output of a step: ``load.rows[0].total``.

    Attributes:
        step: The id of the producer; ``input`` for the inputs of the run, ``item`` for the element of a for_each.
        path: Keys and indices into the output.
    """

    step: str
    path: Path = ()

    __repr__ = short_repr

    def __str__(self) -> str:
        return "${" + self.step + path_text(self.path) + "}"


def path_text(path: Path) -> str:
    """Write a path in the syntax of references: ``.rows[0]["a key"]``."""
    parts = []
    for part in path:
        if isinstance(part, int):
            parts.append(f"[{part}]")
        else:
            parts.append(f".{part}" if re.fullmatch(r"[A-Za-z0-9_-]+", part) else f"[{json.dumps(part)}]")
    return "".join(parts)


def parse_reference(text: str) -> Reference:
    """Read ``load.rows[0].total``, with or without ``${`` and ``}`` around it.

    Raises:
        BadReference: *text* is not a reference.
    """
    body = text[2:-1] if text.startswith("${") and text.endswith("}") else text
    head = _ID.match(body)
    if head is None:
        raise BadReference("it must begin with the id of a step")
    if _ID.match(body, head.end()):  # the id goes on
        raise BadReference("an id has at most 48 characters")
    return Reference(head.group(), _parse_path(body, head.end()))


def leading_id(text: str) -> str:
    """Return the id at the beginning of a reference without braces; empty if there is none."""
    head = _ID.match(text)
    return head.group() if head is not None else ""


def references_in(value: Any) -> Iterator[str]:
    """Yield the references in a value, as text without braces, such as ``load.rows[0]``; malformed ones are omitted."""
    if isinstance(value, str):
        for match in HOLE.finditer(value) if "${" in value else ():
            if match.group(1) is not None and match.group().endswith("}"):
                yield match.group()[2:-1]
    elif isinstance(value, Mapping):
        if isinstance(value.get("$step"), str):
            yield text_of_reference(value)
        else:
            for part in value.values():
                yield from references_in(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from references_in(part)


def text_of_reference(value: Mapping[str, Any]) -> str:
    """Return a reference that is written as an object as text without braces."""
    path = value.get("path", "")
    if isinstance(path, list | tuple):
        path = "".join(f"[{json.dumps(part)}]" for part in path)
    return f"{value['$step']}{'.' if path and not path.startswith('[') else ''}{path}"


def parse_path(text: str) -> Path:
    """Parse a path such as ``rows[0].total``.

    Raises:
        BadReference: *text* is not a path.
    """
    return _parse_path(text if text.startswith("[") or not text else f".{text}", 0)


def read_path(path: object) -> Path:
    """Read the path of a reference that is written as an object: ``"rows[0].total"`` or ``["rows", 0, "total"]``.

    Raises:
        BadReference: It is neither.
    """
    if isinstance(path, str):
        return parse_path(path)
    if not isinstance(path, list | tuple):
        raise BadReference("its path is neither a text nor a list")
    if len(path) > MAX_PATH_PARTS:
        raise BadReference(f"it has more than {MAX_PATH_PARTS} parts")
    for part in path:
        if type(part) is not str and not (type(part) is int and 0 <= part <= _MAX_INDEX):
            raise BadReference(f"{shorten(repr(part), 40)} is neither a key nor an index")
    return tuple(path)


def _parse_path(text: str, at: int) -> Path:
    parts: list[str | int] = []
    while at < len(text):
        match = _PART.match(text, at)
        if match is None:
            raise BadReference(f"{shorten(text[at:], 40)!r} is neither .key nor [index]")
        key, index, quoted = match.groups()
        parts.append(key if key is not None else int(index) if index is not None else _unquote(quoted))
        at = match.end()
        if len(parts) > MAX_PATH_PARTS:
            raise BadReference(f"it has more than {MAX_PATH_PARTS} parts")
    return tuple(parts)


def _unquote(quoted: str) -> str:
    try:
        return str(json.loads(quoted))
    except ValueError:
        raise BadReference(f"{shorten(quoted, 40)} is not a quoted key") from None


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A place in a template where the output of a step is put in.

    Attributes:
        reference: The output, or the part of it, that is put in.
        place: The path of the hole in the template.
        is_text: Whether the hole is a part of a longer text; else it is a value of its own.
    """

    reference: Reference
    place: Path
    is_text: bool = False


@dataclass(slots=True, unsafe_hash=True)  # not frozen because a check makes one per step; never changed
class Template:
    """A JSON value with holes, stored as pieces of JSON text: ``pieces[0] hole[0] pieces[1] …``.

    Attributes:
        pieces: The JSON text around the holes.
        references: The outputs that are put in, one for each hole.
        places: The path of each hole in the template.
        texts: The numbers of the holes that are parts of longer texts.
    """

    pieces: tuple[bytes, ...]
    references: tuple[Reference, ...] = ()
    places: tuple[Path, ...] = ()
    texts: frozenset[int] = frozenset()

    @property
    def holes(self) -> tuple[Placeholder, ...]:
        """The placeholders, made at each call: a plan has many, and few are needed one by one."""
        pairs = zip(self.references, self.places, strict=True)
        return tuple(
            Placeholder(reference, place, number in self.texts) for number, (reference, place) in enumerate(pairs)
        )

    def fill(self, look_up: Callable[[Reference], Stored], limit: int = MAX_VALUE_BYTES) -> bytes:
        """Build the JSON text, with the value from *look_up* for each placeholder.

        Raises:
            ValueTooLarge: The text would take more than *limit* bytes.
        """
        first, texts = self.pieces[0], self.texts
        size = len(first)
        if not self.references:
            if size > limit:
                raise ValueTooLarge(f"{size} bytes of JSON are over the limit of {limit}")
            return first
        parts: list[bytes] = [first]
        for reference, piece in zip(self.references, self.pieces[1:], strict=True):
            value = look_up(reference)
            data = value if type(value) is bytes else to_json(value)  # saves a call for most values
            if texts and len(parts) // 2 in texts:
                data = _as_text(value, data)
            size += len(data) + len(piece)
            if size > limit:  # checked in the loop: references that double their text would fill the memory first
                raise ValueTooLarge(f"over {limit} bytes of JSON")
            parts += (data, piece)
        return b"".join(parts)

    @property
    def sources(self) -> frozenset[str]:
        """The ids of the steps whose outputs are put in."""
        return frozenset(reference.step for reference in self.references)


def _as_text(value: Stored, as_json: bytes) -> bytes:
    """Return the inside of a JSON string that shows *value*: a text unchanged, any other value as compact JSON."""
    quoted = as_json if isinstance(value, str) else _dumps(as_json.decode()).encode()
    return quoted[1:-1]


@dataclass(frozen=True, slots=True)
class ReferenceFault:
    """A text in a template that looks like a reference, but is not one."""

    place: Path
    text: str
    reason: str


def compile_template(value: Any) -> tuple[Template, list[ReferenceFault]]:
    """Turn a JSON value of a plan into a template.

    Args:
        value: Plain JSON, at most as deep as a plan may be. The caller has checked that.

    Returns:
        The template, and every malformed reference in it. If there is one, the template must not be used.
    """
    writer = _Writer()
    writer.value(value, ())
    return writer.template(), writer.faults


def escaped_key(key: str) -> str:
    """Return *key* as a plan writes it: ``$step`` would make a reference of its object, so it is written ``$$step``."""
    return f"${key}" if key == "$step" or _ESCAPED_KEY.fullmatch(key) else key


def plain_key(key: str) -> str:
    """Return the key that a plan writes as *key*; see `escaped_key`."""
    return key[1:] if key.endswith("$step") and _ESCAPED_KEY.fullmatch(key) else key


def quote_template(text: str) -> str:
    """Escape *text* so that a plan takes it literally: ``${`` becomes ``$${``."""
    return text.replace("${", "$${")


class _Writer:
    """Writes JSON text, and cuts it at every hole."""

    def __init__(self) -> None:
        self.faults: list[ReferenceFault] = []
        self._done: list[bytes] = []
        self._references: list[Reference] = []
        self._places: list[Path] = []
        self._texts: set[int] = set()
        self._text: list[str] = []

    def template(self) -> Template:
        self._cut()
        return Template(tuple(self._done), tuple(self._references), tuple(self._places), frozenset(self._texts))

    def value(self, value: Any, place: Path) -> None:
        match value:
            case str():
                self._string(value, place)
            case Mapping() if "$step" in value:
                self._object_reference(value, place)
            case Mapping():
                self._fields(value, place)
            case Sequence():
                self._elements(value, place)
            case _:
                self._text.append(_dumps(value))

    def _fields(self, fields: Mapping[str, Any], place: Path) -> None:
        self._text.append("{")
        for number, (key, value) in enumerate(fields.items()):
            self._text.append(("," if number else "") + _dumps(plain_key(key)) + ":")
            self.value(value, (*place, key))
        self._text.append("}")

    def _elements(self, elements: Sequence[Any], place: Path) -> None:
        self._text.append("[")
        for number, value in enumerate(elements):
            if number:
                self._text.append(",")
            self.value(value, (*place, number))
        self._text.append("]")

    def _object_reference(self, value: Mapping[str, Any], place: Path) -> None:
        step, path = value["$step"], value.get("path", "")
        if not isinstance(step, str) or value.keys() - {"$step", "path"}:
            forms = 'a reference object is {"$step": "id"} or {"$step": "id", "path": "a.b[0]"}'
            self._fault(place, str(step), f'{forms}; for a key "$step" that is data, write "$$step"')
            return
        try:
            if not _ID.fullmatch(step):
                raise BadReference("$step must be the id of a step")
            self._hole(Reference(step, read_path(path)), place)
        except BadReference as error:
            self._fault(place, f"{step}.{path}", str(error))

    def _string(self, text: str, place: Path) -> None:
        if "${" not in text:
            self._text.append(_dumps(text))
            return
        whole = HOLE.fullmatch(text)
        if whole is not None and whole.group(1) is not None:
            self._reference(text, place)
            return
        self._text.append('"')
        for literal, reference in _split(text):
            if reference is None:
                self._text.append(_dumps(literal)[1:-1])
            else:
                self._reference(reference, place, is_text=True)
        self._text.append('"')

    def _reference(self, text: str, place: Path, *, is_text: bool = False) -> None:
        try:
            if not text.endswith("}"):
                raise BadReference("the closing brace is missing ('$${' writes a literal '${')")
            self._hole(parse_reference(text), place, is_text=is_text)
        except BadReference as error:
            self._fault(place, text, str(error))

    def _hole(self, reference: Reference, place: Path, *, is_text: bool = False) -> None:
        self._cut()
        if is_text:
            self._texts.add(len(self._references))
        self._references.append(reference)
        self._places.append(place)

    def _fault(self, place: Path, text: str, reason: str) -> None:
        self.faults.append(ReferenceFault(place, text, reason))

    def _cut(self) -> None:
        self._done.append("".join(self._text).encode())
        self._text.clear()


def _split(text: str) -> Iterator[tuple[str, str | None]]:
    """Cut *text* into pairs: a literal part and `None`, or an empty text and a reference."""
    at = 0
    for match in HOLE.finditer(text):
        yield text[at : match.start()], None
        if match.group(1) is None:
            yield "${", None
        else:
            yield "", match.group()
        at = match.end()
    yield text[at:], None


Op = Literal["==", "!=", "<", "<=", ">", ">=", "in", "contains", "exists", "min_length", "max_length"]

_ORDER: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class ConditionMismatch(Exception):
    """A condition compares values that cannot be compared; the step fails."""


class Condition(BaseModel):
    """One predicate: either ``ref``, ``op`` and ``value``, or one of ``all``, ``any``, ``not``.

    ``in`` and ``contains`` search lists, texts and the keys of objects. ``exists`` takes true or false. Numbers compare
    with numbers, and texts with texts. Any other comparison is a mismatch: a failure, not "false".
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True, populate_by_name=True)

    ref: str | None = None
    op: Op | None = None
    value: Any = None
    all: list[Condition] | None = None
    any: list[Condition] | None = None
    not_: Condition | None = Field(default=None, alias="not")

    def __repr__(self) -> str:
        said = [name for name in type(self).model_fields if name in self.model_fields_set]
        return fields_repr(self, [(name, getattr(self, name)) for name in said])

    @model_validator(mode="after")
    def _is_one_kind(self) -> Self:
        kinds = [name for name in ("ref", "all", "any", "not_") if getattr(self, name) is not None]
        if len(kinds) != 1:
            raise ValueError("a condition has exactly one of ref, all, any, not")
        if (kinds == ["ref"]) != (self.op is not None):
            raise ValueError("op goes with ref, and ref with op")
        if kinds == ["ref"] and "value" not in self.model_fields_set and self.op != "exists":
            raise ValueError(f"{self.op} needs a value")
        return self

    def leaves(self) -> Iterator[Condition]:
        """Yield every comparison in the condition."""
        left = [self]  # not recursive: a condition that the host builds may be nested too deeply for that
        while left:
            part = left.pop()
            if part.ref is not None:
                yield part
            inner = (*(part.all or ()), *(part.any or ()), *((part.not_,) if part.not_ else ()))
            left += reversed(inner)

    def looks_at(self, source: str) -> bool:
        """Whether a comparison refers to *source*: the id of a step, ``input`` or ``item``."""
        return any(re.split(r"[.\[]", leaf.ref or "", maxsplit=1)[0] == source for leaf in self.leaves())

    @property
    def reference(self) -> Reference:
        """The value that a comparison looks at.

        Raises:
            BadReference: *ref* is not a reference.
        """
        return parse_reference(self.ref or "")


def holds(condition: Condition, look_up: Callable[[Reference], Any]) -> bool:
    """Evaluate *condition*.

    Args:
        condition: The predicate.
        look_up: Returns the decoded value of a reference; raises `LookupError` if there is none.

    Raises:
        ConditionMismatch: The types do not fit, or a value is missing.
    """
    if condition.all is not None:
        return all(holds(part, look_up) for part in condition.all)
    if condition.any is not None:
        return any(holds(part, look_up) for part in condition.any)
    if condition.not_ is not None:
        return not holds(condition.not_, look_up)
    return _compare(condition, look_up)


def _compare(condition: Condition, look_up: Callable[[Reference], Any]) -> bool:
    reference = condition.reference
    try:
        value = look_up(reference)
    except LookupError as error:
        if condition.op == "exists":
            return condition.value is False
        raise ConditionMismatch(f"{reference}: {error}") from error
    wanted = condition.value
    match condition.op:
        case "exists":
            return wanted is not False
        case "==":
            return _equal(value, wanted)
        case "!=":
            return not _equal(value, wanted)
        case "in":
            return _contains(wanted, value, reference)
        case "contains":
            return _contains(value, wanted, reference)
        case "min_length" | "max_length":
            return _fits_length(condition.op, value, wanted, reference)
        case _:
            return _fits_order(str(condition.op), value, wanted, reference)


def _equal(left: Any, right: Any) -> bool:
    # JSON's true is not 1, whatever Python says.
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def _contains(where: Any, what: Any, reference: Reference) -> bool:
    if isinstance(where, str) and isinstance(what, str):
        return what in where
    if isinstance(where, dict):
        return what in where if isinstance(what, str) else False
    if isinstance(where, list):
        return any(_equal(element, what) for element in where)
    raise ConditionMismatch(f"{reference}: nothing can be looked for in {describe(where)}")


def _fits_length(op: str, value: Any, wanted: Any, reference: Reference) -> bool:
    if not isinstance(value, str | list | dict):
        raise ConditionMismatch(f"{reference}: {describe(value)} has no length")
    if not isinstance(wanted, int) or isinstance(wanted, bool):
        raise ConditionMismatch(f"{reference}: {op} needs a whole number, got {describe(wanted)}")
    return len(value) >= wanted if op == "min_length" else len(value) <= wanted


def _fits_order(op: str, left: Any, right: Any, reference: Reference) -> bool:
    numbers = all(isinstance(side, int | float) and not isinstance(side, bool) for side in (left, right))
    if not numbers and not (isinstance(left, str) and isinstance(right, str)):
        raise ConditionMismatch(f"{reference}: {describe(left)} {op} {describe(right)} cannot be compared")
    return _ORDER[op](left, right)
