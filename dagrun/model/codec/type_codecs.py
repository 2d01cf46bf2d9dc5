"""Forms: how what belongs to a record is written as JSON text, and read back from it as the very same.

They follow from the type hints of the vocabulary, and are made once for each type. Reading goes through the text from
left to right and expects what writing gives: the fields of an object in their order, all of them and no others. So the
text of a stored value can be taken out as it stands. A field that came after the first release is not written while it
has its default, so that older records can be read (`dagrun.model.event.later`).
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Final, Literal, NoReturn, cast

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from dagrun.errors import ContractError, RecordRefused, shorten
from dagrun.model.codec.json_text import (
    Found,
    expect,
    read_stored,
    reader,
    scan,
    write_bool,
    write_json,
    write_number,
    write_stored,
    write_text,
    write_whole,
)
from dagrun.model.event import LATER
from dagrun.model.patch import Add, Drop, Edit, Replace, Rewire, edit_as_dict
from dagrun.model.signature import explain
from dagrun.model.value import Stored, Unavailable

ELSEWHERE: Final = "unavailable"  # the field that stands in the place of a value that is not in the record
_ELSEWHERE_KEY: Final = f'"{ELSEWHERE}":'
_HALF: Final = "\\ud"  # how the escape of half a character begins
_EDITS: Final = frozenset((Add, Drop, Replace, Rewire))


@dataclass(frozen=True, slots=True)
class TypeCodec:
    """How values of one type are written and read.

    Attributes:
        write: Gives JSON text in UTF-8.
        read: Takes a text and a place in it; gives the value that stands there, and the place behind it. Raises
            `RecordRefused`.
    """

    write: Callable[[Any], bytes]
    read: Callable[[str, int], Found]


@cache
def form_of(hint: Any) -> TypeCodec:
    """The form of the values that a type hint stands for."""
    if hint == Stored:
        return _STORED
    if hint in _LEAVES:
        return _LEAVES[hint]
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return _EDIT if _EDITS.issuperset(inside) else _optional(inside)
    if origin is tuple:
        return _list_of(form_of(inside[0])) if inside[-1] is Ellipsis else _row_of([form_of(part) for part in inside])
    if origin is Literal:
        return _one_of({word: word for word in inside})
    if origin is not None and issubclass(origin, Mapping):
        return _mapping_of(form_of(inside[1]))
    if issubclass(hint, StrEnum):
        return _one_of({str(member): member for member in hint})
    if issubclass(hint, BaseModel):
        return _model(hint)
    assert is_dataclass(hint), hint
    fields = Fields(typing.cast("type[Any]", hint))
    return TypeCodec(lambda value: b"{" + fields.write(value) + b"}", fields.read_object)


def _default_of(field: Field[Any]) -> Any:
    return field.default if field.default is not MISSING else cast("Callable[[], Any]", field.default_factory)()


class Fields:
    """The fields of a class of ours, as they stand in an object.

    Args:
        kind: A dataclass.
        left_out: Fields that are not recorded; they come back as `None`.
    """

    def __init__(self, kind: type[Any], left_out: tuple[str, ...] = ()) -> None:
        hints = typing.get_type_hints(kind)
        names = [name for name in kind.__dataclass_fields__ if name not in left_out]
        self.kind = kind
        self.names = names
        self._left_out = dict.fromkeys(left_out)
        self._forms = [(name, f'"{name}":', form_of(hints[name])) for name in names]
        fields = kind.__dataclass_fields__
        self._later = {name: _default_of(fields[name]) for name in names if fields[name].metadata.get(LATER)}
        self._is_checked = hasattr(kind, "__post_init__")
        assert sum(form is _STORED for _, _, form in self._forms) <= 1, f"{kind}: which of them would be unavailable?"

    def write(self, value: Any) -> bytes:
        """The fields of *value*, without the braces around them."""
        parts, later = [], self._later
        for name, key, form in self._forms:
            found = getattr(value, name)
            if later and name in later and found == later[name]:
                continue
            if form is _STORED and type(found) is Unavailable:
                parts.append(_ELSEWHERE_KEY.encode() + write_text(found.reason))
            else:
                parts.append(key.encode() + form.write(found))
        return b",".join(parts)

    def read_object(self, text: str, at: int) -> Found:
        """Read an object, with the braces around it."""
        return self.read(text, expect(text, at, "{"))

    def read(self, text: str, at: int) -> Found:
        """Read the fields of an object, and the brace behind them."""
        start, values = at, dict(self._left_out)
        for number, (name, key, form) in enumerate(self._forms):
            if name in self._later and not text.startswith(key, at + 1):
                values[name] = self._later[name]
                continue
            if number:
                at = self._expect(text, at, ",", start)
            if form is _STORED and text.startswith(_ELSEWHERE_KEY, at):
                reason, at = _LEAVES[str].read(text, at + len(_ELSEWHERE_KEY))
                values[name] = Unavailable(reason)
                continue
            at = self._expect(text, at, key, start)
            try:
                values[name], at = form.read(text, at)
            except RecordRefused as error:
                raise RecordRefused(error.reason, f"{name}.{error.place}".rstrip(".")) from None
            if name in self._later and values[name] == self._later[name]:
                raise RecordRefused("it is its default, which is not written", name)
        return self._make(values), self._expect(text, at, "}", start)

    def _expect(self, text: str, at: int, mark: str, start: int) -> int:
        if not text.startswith(mark, at):
            self._misfit(text, start)
        return at + len(mark)

    def _make(self, values: dict[str, Any]) -> Any:
        if not self._is_checked:
            return self.kind(**values)
        try:
            made = self.kind(**values)
        except ContractError as error:
            raise RecordRefused(shorten(str(error))) from None
        for name, value in values.items():  # a text that was shortened once must not be shortened again
            object.__setattr__(made, name, value)
        return made

    def _misfit(self, text: str, start: int) -> NoReturn:
        """Say what is wrong with the fields of an object."""
        found, _ = scan("{" + text[start:], 0)
        stored = next((name for name, _, form in self._forms if form is _STORED), "")
        names = [stored if stored and name == ELSEWHERE else name for name in found]
        if missing := [name for name in self.names if name not in names and name not in self._later]:
            raise RecordRefused(f"the field {missing[0]} is missing")
        if extra := [name for name in names if name not in self.names]:
            raise RecordRefused(f"there is no field {shorten(extra[0], 60)}")
        raise RecordRefused(f"its fields are not just these, in this order: {', '.join(self.names)}")


# Forms ---------------------------------------------------------------------------------------------------------------


def _optional(inside: tuple[Any, ...]) -> TypeCodec:
    kinds = [kind for kind in inside if kind is not type(None)]
    assert len(kinds) == 1, inside
    form = form_of(kinds[0])

    def read(text: str, at: int) -> Found:
        return (None, at + 4) if text.startswith("null", at) else form.read(text, at)

    return TypeCodec(lambda value: b"null" if value is None else form.write(value), read)


def _one_of(words: Mapping[str, Any]) -> TypeCodec:
    def read(text: str, at: int) -> Found:
        word, end = _LEAVES[str].read(text, at)
        if word not in words:
            raise RecordRefused(f"{shorten(word, 60)!r} is none of {', '.join(words)}")
        return words[word], end

    return TypeCodec(lambda value: write_text(str(value)), read)


def _list_of(form: TypeCodec) -> TypeCodec:
    def read(text: str, at: int) -> Found:
        at = expect(text, at, "[")
        found: list[Any] = []
        while not text.startswith("]", at):
            at = expect(text, at, ",") if found else at
            value, at = form.read(text, at)
            found.append(value)
        return tuple(found), at + 1

    return TypeCodec(lambda values: b"[" + b",".join([form.write(value) for value in values]) + b"]", read)


def _row_of(forms: list[TypeCodec]) -> TypeCodec:
    """A tuple of so many values, each of a type of its own."""

    def read(text: str, at: int) -> Found:
        found = []
        for number, form in enumerate(forms):
            value, at = form.read(text, expect(text, at, "," if number else "["))
            found.append(value)
        return tuple(found), expect(text, at, "]")

    def write(values: Any) -> bytes:
        return b"[" + b",".join([form.write(value) for form, value in zip(forms, values, strict=True)]) + b"]"

    return TypeCodec(write, read)


def _mapping_of(form: TypeCodec) -> TypeCodec:
    def read(text: str, at: int) -> Found:
        at = expect(text, at, "{")
        found: dict[str, Any] = {}
        while not text.startswith("}", at):
            key, at = _LEAVES[str].read(text, expect(text, at, ",") if found else at)
            if key in found:
                raise RecordRefused(f"the key {shorten(key, 60)!r} stands twice in one object")
            found[key], at = form.read(text, expect(text, at, ":"))
        return found, at + 1

    def write(values: Mapping[str, Any]) -> bytes:
        return b"{" + b",".join([write_text(key) + b":" + form.write(value) for key, value in values.items()]) + b"}"

    return TypeCodec(write, read)


def _validated(write: Callable[[Any], bytes], adapter: Callable[[], TypeAdapter[Any]]) -> TypeCodec:
    """What pydantic checks."""

    def read(text: str, at: int) -> Found:
        value, end = scan(text, at)
        piece = text[at:end]
        try:
            if _HALF in piece:  # half a character, which pydantic's own reader of JSON does not know
                return adapter().validate_python(value), end
            return adapter().validate_json(piece), end
        except ValidationError as error:
            raise RecordRefused(explain(error)) from None

    return TypeCodec(write, read)


def _model(kind: type[BaseModel]) -> TypeCodec:
    # What was not said stays unsaid: it makes a difference to a plan.
    how: Final = {"by_alias": True, "exclude_unset": True, "fallback": repr}

    def write(value: Any) -> bytes:
        try:
            text: bytes = value.__pydantic_serializer__.to_json(value, **how)
        except PydanticSerializationError:  # half a character, which UTF-8 does not know
            text = write_json(value.model_dump(mode="json", **how))
        return text

    return _validated(write, cache(lambda: TypeAdapter(kind)))


@cache
def _edit_adapter() -> TypeAdapter[Any]:
    return TypeAdapter(Edit)


_EDIT: Final = _validated(lambda edit: write_json(edit_as_dict(edit)), _edit_adapter)
_STORED: Final = TypeCodec(write_stored, read_stored)
_LEAVES: Final[Mapping[Any, TypeCodec]] = {
    str: TypeCodec(write_text, reader(lambda value: type(value) is str, "a text")),
    bool: TypeCodec(write_bool, reader(lambda value: type(value) is bool, "true or false")),
    int: TypeCodec(write_whole, reader(lambda value: type(value) is int, "a whole number")),
    float: TypeCodec(write_number, reader(lambda value: type(value) in (int, float), "a number")),
    Any: TypeCodec(write_json, scan),
}
