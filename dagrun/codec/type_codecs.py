"""Codecs made from type hints, which write the values in a record as JSON text and read them back.

A codec is made once for each type. It reads the text from left to right, and expects exactly what it would write: all
fields of an object, in their order, and no others. So the text of a stored value is copied without decoding it. A field
that was added after the first release is not written while it has its default, so that older records can be read
(`dagrun.kernel.model.event.later`).
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

from dagrun.codec.json_text import (
    ReadResult,
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
from dagrun.errors import ContractError, RecordRefused, shorten
from dagrun.kernel.model.outcome import LATER, UNRECORDED
from dagrun.kernel.model.patch import Add, Drop, Edit, Replace, Rewire, edit_as_dict
from dagrun.kernel.model.signature import explain
from dagrun.kernel.model.value import Stored, Unavailable

UNAVAILABLE: Final = "unavailable"  # the field in place of a value that is not in the record
_UNAVAILABLE_KEY: Final = f'"{UNAVAILABLE}":'
_SURROGATE: Final = "\\ud"  # the beginning of the escape of a surrogate
_EDITS: Final = frozenset((Add, Drop, Replace, Rewire))


@dataclass(frozen=True, slots=True)
class TypeCodec:
    """How values of one type are written and read.

    Attributes:
        write: Returns the JSON text of a value, in UTF-8.
        read: Takes a text and a position in it; returns the value at this position, and the position after it. Raises
            `RecordRefused`.
    """

    write: Callable[[Any], bytes]
    read: Callable[[str, int], ReadResult]


@cache
def codec_of(hint: Any) -> TypeCodec:
    """Return the codec for a type hint."""
    if hint == Stored:
        return _STORED
    if hint in _LEAVES:
        return _LEAVES[hint]
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return _EDIT if _EDITS.issuperset(inside) else _optional(inside)
    if origin is tuple:
        return _list_of(codec_of(inside[0])) if inside[-1] is Ellipsis else _row_of([codec_of(part) for part in inside])
    if origin is Literal:
        return _one_of({word: word for word in inside})
    if origin is not None and issubclass(origin, Mapping):
        return _mapping_of(codec_of(inside[1]))
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
    """Writes and reads the fields of a dataclass as the fields of a JSON object.

    Args:
        kind: The dataclass.
        left_out: Fields that are not recorded; they are `None` when they are read.
    """

    def __init__(self, kind: type[Any], left_out: tuple[str, ...] = ()) -> None:
        hints = typing.get_type_hints(kind)
        fields = kind.__dataclass_fields__
        names = [name for name in fields if name not in left_out and not fields[name].metadata.get(UNRECORDED)]
        self.kind = kind
        self.names = names
        self._left_out = dict.fromkeys(left_out)
        self._codecs = [(name, f'"{name}":', codec_of(hints[name])) for name in names]
        self._later = {name: _default_of(fields[name]) for name in names if fields[name].metadata.get(LATER)}
        self._is_checked = hasattr(kind, "__post_init__")
        # With two stored values, `unavailable` would not say which one it stands for.
        assert sum(codec is _STORED for _, _, codec in self._codecs) <= 1, kind

    def write(self, value: Any) -> bytes:
        """Return the fields of *value* as JSON, without the braces around them."""
        parts, later = [], self._later
        for name, key, codec in self._codecs:
            part = getattr(value, name)
            if later and name in later and part == later[name]:
                continue
            if codec is _STORED and type(part) is Unavailable:
                parts.append(_UNAVAILABLE_KEY.encode() + write_text(part.reason))
            else:
                parts.append(key.encode() + codec.write(part))
        return b",".join(parts)

    def read_object(self, text: str, at: int) -> ReadResult:
        """Read an object, including both braces."""
        return self.read(text, expect(text, at, "{"))

    def read(self, text: str, at: int) -> ReadResult:
        """Read the fields of an object, and the closing brace."""
        start, values = at, dict(self._left_out)
        for number, (name, key, codec) in enumerate(self._codecs):
            if name in self._later and not text.startswith(key, at + 1):
                values[name] = self._later[name]
                continue
            if number:
                at = self._expect(text, at, ",", start)
            if codec is _STORED and text.startswith(_UNAVAILABLE_KEY, at):
                reason, at = _LEAVES[str].read(text, at + len(_UNAVAILABLE_KEY))
                values[name] = Unavailable(reason)
                continue
            at = self._expect(text, at, key, start)
            try:
                values[name], at = codec.read(text, at)
            except RecordRefused as error:
                raise RecordRefused(error.reason, f"{name}.{error.place}".rstrip(".")) from None
            if name in self._later and values[name] == self._later[name]:
                raise RecordRefused("it is its default, which is not written", name)
        return self._make(values), self._expect(text, at, "}", start)

    def _expect(self, text: str, at: int, mark: str, start: int) -> int:
        if not text.startswith(mark, at):
            self._refuse(text, start)
        return at + len(mark)

    def _make(self, values: dict[str, Any]) -> Any:
        if not self._is_checked:
            return self.kind(**values)
        try:
            made = self.kind(**values)
        except ContractError as error:
            raise RecordRefused(shorten(str(error))) from None
        for name, value in values.items():  # a text that was shortened before must not be shortened again
            object.__setattr__(made, name, value)
        return made

    def _refuse(self, text: str, start: int) -> NoReturn:
        """Raise the error that names the missing, unknown or misplaced fields of an object."""
        fields, _ = scan("{" + text[start:], 0)
        stored = next((name for name, _, codec in self._codecs if codec is _STORED), "")
        names = [stored if stored and name == UNAVAILABLE else name for name in fields]
        if missing := [name for name in self.names if name not in names and name not in self._later]:
            raise RecordRefused(f"the field {missing[0]} is missing")
        if extra := [name for name in names if name not in self.names]:
            raise RecordRefused(f"there is no field {shorten(extra[0], 60)}")
        raise RecordRefused(f"its fields are not just these, in this order: {', '.join(self.names)}")


# Codecs --------------------------------------------------------------------------------------------------------------


def _optional(inside: tuple[Any, ...]) -> TypeCodec:
    kinds = [kind for kind in inside if kind is not type(None)]
    assert len(kinds) == 1, inside
    codec = codec_of(kinds[0])

    def read(text: str, at: int) -> ReadResult:
        return (None, at + 4) if text.startswith("null", at) else codec.read(text, at)

    return TypeCodec(lambda value: b"null" if value is None else codec.write(value), read)


def _one_of(words: Mapping[str, Any]) -> TypeCodec:
    def read(text: str, at: int) -> ReadResult:
        word, end = _LEAVES[str].read(text, at)
        if word not in words:
            raise RecordRefused(f"{shorten(word, 60)!r} is none of {', '.join(words)}")
        return words[word], end

    return TypeCodec(lambda value: write_text(str(value)), read)


def _list_of(codec: TypeCodec) -> TypeCodec:
    def read(text: str, at: int) -> ReadResult:
        at = expect(text, at, "[")
        values: list[Any] = []
        while not text.startswith("]", at):
            at = expect(text, at, ",") if values else at
            value, at = codec.read(text, at)
            values.append(value)
        return tuple(values), at + 1

    return TypeCodec(lambda values: b"[" + b",".join([codec.write(value) for value in values]) + b"]", read)


def _row_of(codecs: list[TypeCodec]) -> TypeCodec:
    """Return the codec of a tuple of fixed length, with one codec for each position."""

    def read(text: str, at: int) -> ReadResult:
        values = []
        for number, codec in enumerate(codecs):
            value, at = codec.read(text, expect(text, at, "," if number else "["))
            values.append(value)
        return tuple(values), expect(text, at, "]")

    def write(values: Any) -> bytes:
        return b"[" + b",".join([codec.write(value) for codec, value in zip(codecs, values, strict=True)]) + b"]"

    return TypeCodec(write, read)


def _mapping_of(codec: TypeCodec) -> TypeCodec:
    def read(text: str, at: int) -> ReadResult:
        at = expect(text, at, "{")
        values: dict[str, Any] = {}
        while not text.startswith("}", at):
            key, at = _LEAVES[str].read(text, expect(text, at, ",") if values else at)
            if key in values:
                raise RecordRefused(f"the key {shorten(key, 60)!r} occurs twice in one object")
            values[key], at = codec.read(text, expect(text, at, ":"))
        return values, at + 1

    def write(values: Mapping[str, Any]) -> bytes:
        return b"{" + b",".join([write_text(key) + b":" + codec.write(value) for key, value in values.items()]) + b"}"

    return TypeCodec(write, read)


def _validated(write: Callable[[Any], bytes], adapter: Callable[[], TypeAdapter[Any]]) -> TypeCodec:
    """Return a codec whose values are checked by pydantic."""

    def read(text: str, at: int) -> ReadResult:
        value, end = scan(text, at)
        piece = text[at:end]
        try:
            if _SURROGATE in piece:  # pydantic's own JSON parser refuses a lone surrogate
                return adapter().validate_python(value), end
            return adapter().validate_json(piece), end
        except ValidationError as error:
            raise RecordRefused(explain(error)) from None

    return TypeCodec(write, read)


def _model(kind: type[BaseModel]) -> TypeCodec:
    # Without fields that were not set: whether a field was set makes a difference to a plan.
    how: Final = {"by_alias": True, "exclude_unset": True, "fallback": repr}

    def write(value: Any) -> bytes:
        try:
            text: bytes = value.__pydantic_serializer__.to_json(value, **how)
        except PydanticSerializationError:  # a lone surrogate, which cannot be encoded in UTF-8
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
