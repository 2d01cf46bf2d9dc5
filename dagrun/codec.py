"""The codec of records: an event as one line of JSON, and back.

A record looks like this: ``{"v":1,"event":"StepExpanded","seq":7,"at":0.5,"step":"load","items":[1,2]}``, in UTF-8. It
contains the format, the name of the event, and all fields of the event in their order. Every event except `Progress`
and `Gap` is recorded. The record of an event that was redacted ends with its `Marks`, for example
``,"redacted":["plan"],"sealed":"gAAA…"}``.

1. The text of a record comes from outside, and is read strictly: it is refused if it is not JSON, not of the wanted
   type, or too deep. The name of the event is looked up in the closed list of events, and no other name in the text is
   looked up anywhere. Nothing is unpickled, imported or evaluated.
2. Writers and readers are made from type hints, once for each type. They read the text from left to right, and expect
   exactly what they would write: all fields of an object, in their order, and no others. So the text of a stored value
   is copied without decoding it.
3. A field that was added after the first release is not written while it has its default, so that older records can be
   read (`dagrun.kernel.model.event.later`).

The file goes from single JSON values to types to events: `encode_event`, `decode_event` and `events_of` are at its end.
"""

from __future__ import annotations

import json
import math
import operator
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, is_dataclass
from enum import StrEnum
from functools import cache
from json.encoder import encode_basestring
from json.encoder import encode_basestring as quote
from json.scanner import make_scanner
from typing import Any, Final, Literal, NoReturn, TypeAlias, cast

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from dagrun.errors import (
    ContractError,
    JournalDamaged,
    RecordRefused,
    RunNotFound,
    UnknownFormat,
    ValueRefused,
    shorten,
)
from dagrun.kernel.model import event as events
from dagrun.kernel.model.event import AttemptEnded, AttemptStarted, Event, RunStarted, event_types
from dagrun.kernel.model.journal import FORMAT, Line
from dagrun.kernel.model.outcome import LATER, PROCEED, UNRECORDED, State
from dagrun.kernel.model.patch import Add, Drop, Edit, Replace, Rewire, edit_as_dict
from dagrun.kernel.model.signature import explain
from dagrun.kernel.model.value import Stored, Unavailable, describe, encode_plain

ReadResult: TypeAlias = tuple[Any, int]
"""The value that was read, and the position after it."""

# Reading -------------------------------------------------------------------------------------------------------------


def _refuse_constant(name: str) -> NoReturn:
    raise RecordRefused(f"{name} is not JSON")


_scan_once: Final = make_scanner(cast(Any, json.JSONDecoder(parse_constant=_refuse_constant)))


def scan(text: str, at: int) -> ReadResult:
    """Read any JSON value."""
    try:
        return _scan_once(text, at)
    except StopIteration:
        raise RecordRefused(f"expected a value, got {rest(text, at)}") from None
    except RecordRefused:
        raise
    except RecursionError:
        raise RecordRefused(f"nested too deep at character {at}") from None
    except ValueError as error:  # not JSON, or an integer that no Python reads
        raise RecordRefused(f"broken JSON: {shorten(str(error))}") from None


def scan_whole(text: str) -> Any:
    """Read a text that must be one JSON value and nothing else."""
    value, end = scan(text, 0)
    if end != len(text):
        raise RecordRefused("not JSON")
    return value


def expect(text: str, at: int, mark: str) -> int:
    """Return the position after *mark*, which must be at *at*."""
    if not text.startswith(mark, at):
        wanted = "an object" if mark == "{" else "a list" if mark == "[" else mark
        raise RecordRefused(f"expected {wanted}, got {rest(text, at)}")
    return at + len(mark)


def rest(text: str, at: int) -> str:
    """Return the beginning of the text at a position, for messages."""
    return repr(shorten(text[at : at + 20])) if at < len(text) else "the end of the text"


def reader(is_fit: Callable[[Any], bool], wanted: str) -> Callable[[str, int], ReadResult]:
    """Return a reader of values that pass *is_fit*; *wanted* names them in error messages."""

    def read(text: str, at: int) -> ReadResult:
        value, end = scan(text, at)
        if not is_fit(value):
            raise RecordRefused(f"expected {wanted}, got {describe(value)}")
        return value, end

    return read


def read_stored(text: str, at: int) -> ReadResult:
    """Read a stored value: an object or a list as its JSON text, anything else decoded."""
    value, end = scan(text, at)
    return (text[at:end].encode() if type(value) in (dict, list) else value), end


# Writing -------------------------------------------------------------------------------------------------------------


def write_text(value: str) -> bytes:
    """Return a text as JSON, in quotes."""
    # A lone surrogate cannot be encoded in UTF-8, so it is written as a JSON escape.
    return encode_basestring(value).encode("utf-8", "backslashreplace")


def write_number(value: Any) -> bytes:
    """Return a number as JSON; a number of a special type, which a tool may report, becomes a plain one."""
    try:
        return b"%d" % operator.index(value)
    except TypeError:
        number = float(value)
    if math.isnan(number):
        raise ValueRefused("a record cannot hold NaN")
    # JSON has no infinity, but a number that is too large for a float reads as infinity.
    return float.__repr__(number).encode() if math.isfinite(number) else b"1e999" if number > 0 else b"-1e999"


def write_whole(value: Any) -> bytes:
    """Return a whole number as JSON, rounding a fraction up (a tool may report half a token)."""
    return write_number(value if hasattr(value, "__index__") else math.ceil(value))


def write_bool(value: Any) -> bytes:
    """Return true or false as JSON."""
    return b"true" if value else b"false"


def write_stored(value: Stored) -> bytes:
    """Return the JSON text of a stored value; an object or a list is stored as JSON text already."""
    match value:
        case bytes():
            return value
        case str():
            return write_text(value)
        case None:
            return b"null"
        case bool():
            return write_bool(value)
        case int() | float():
            return write_number(value)
        case _:
            raise ValueRefused("only a field can say that its value is not in the record")


def write_json(value: Any) -> bytes:
    """Return any plain data as JSON."""
    return encode_plain(value).encode("utf-8", "backslashreplace")


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


_NOT_RECORDED: Final = frozenset((events.Progress, events.Gap))
RECORDED: Final = {name: kind for name, kind in event_types.items() if kind not in _NOT_RECORDED}

# No event has a field of the first name, and only a key can stand between a comma and a colon: so these are the last
# fields of the record itself, never a part of a value.
_MARK: Final = ',"redacted":['
_MARKS: Final = re.compile(r',"redacted":\[((?:"[a-z]+"(?:,"[a-z]+")*)?)\](?:,"sealed":"([A-Za-z0-9_=-]+)")?\}')

_START: Final = f'{{"v":{FORMAT},"event":"'
_SUCCEEDED: Final = State.SUCCEEDED
# The rest of the record after the value, for an attempt that has simply succeeded, as nearly all attempts do.
_SUCCESS_TAIL: Final = (
    b',"failure":null,"tokens":0,"cost":null,"surprise":""},'
    b'"decision":{"recovery":"proceed","reason":"","delay":0.0,"trigger":null}}'
)


@cache
def _fields(name: str) -> Fields:
    kind = RECORDED[name]
    return Fields(kind, ("checked",) if kind is events.Spliced else ())  # `checked` follows from the other fields


@dataclass(frozen=True, slots=True)
class Marks:
    """The redaction marks of a record whose event was redacted before it was written.

    Attributes:
        lost: The parts with which the run computes and that are redacted: ``plan``, ``inputs``, ``patch``.
        sealed: The original record, encrypted with the key of the host, as a token; empty if there was no key.
    """

    lost: tuple[str, ...] = ()
    sealed: str = ""


def with_marks(text: bytes, marks: Marks) -> bytes:
    """Return the record *text* of a redacted event with its marks."""
    lost = ",".join(f'"{part}"' for part in marks.lost)
    sealed = f',"sealed":"{marks.sealed}"' if marks.sealed else ""
    return b"%b%b%b]%b}" % (text[:-1], _MARK.encode(), lost.encode(), sealed.encode())


def marks_of(text: bytes) -> Marks | None:
    """Return the marks of a record; `None` if its event was not redacted."""
    return _without_marks(text.decode("utf-8", "replace"))[1]


def _without_marks(line: str) -> tuple[str, Marks | None]:
    if not line.endswith(("]}", '"}')):
        return line, None
    at = line.rfind(_MARK)
    found = _MARKS.fullmatch(line, at) if at >= 0 else None
    if found is None:
        return line, None
    lost, sealed = found.groups()
    return f"{line[:at]}}}", Marks(tuple(lost.replace('"', "").split(",")) if lost else (), sealed or "")


def encode_event(event: Event) -> bytes:
    """Return the text of the record of *event*.

    Raises:
        ContractError: The event is of a type that is not recorded.
        ValueRefused: The event holds a value that is not JSON, for example NaN.
    """
    write = _FAST_ENCODERS.get(type(event))
    return _encode_fields(event) if write is None else write(event)


def _encode_fields(event: Event) -> bytes:
    name = type(event).__name__
    if name not in RECORDED:
        raise ContractError(f"{name} is not recorded")
    return b'%b%b",%b}' % (_START.encode(), name.encode(), _fields(name).write(event))


def decode_event(text: bytes) -> Event:
    """Return the event of a record.

    Raises:
        UnknownFormat: A later release of dagrun has written the record.
        RecordRefused: The text is not a record as `encode_event` writes it.
    """
    try:
        line = text.decode()
    except UnicodeDecodeError as error:
        raise RecordRefused(f"not UTF-8: {error.reason} at byte {error.start}") from None
    if "\n" in line:
        raise RecordRefused("a record is one line")
    line, _ = _without_marks(line)
    name = line[len(_START) : line.find('"', len(_START))]
    if name not in RECORDED or not line.startswith(_START):
        raise _refusal(line)
    event, end = _fields(name).read(line, len(_START) + len(name) + 2)
    if end != len(line):
        raise RecordRefused(f"there is more after the end of the record: {shorten(line[end:], 40)!r}")
    assert isinstance(event, Event)
    return event


def _refusal(line: str) -> RecordRefused:
    """Return the error for a text that does not begin like a record."""
    value = scan_whole(line)
    if not isinstance(value, dict) or "v" not in value:
        return RecordRefused("not a record of a run")
    version, name = value["v"], value.get("event")
    if type(version) is not int or version < 1:
        return RecordRefused("expected the number of a format", "v")
    if version != FORMAT:
        return UnknownFormat(f"format {shorten(str(version), 20)} is unknown here; this release knows {FORMAT}", "v")
    if isinstance(name, str) and name in RECORDED:
        return RecordRefused("a record begins with v, event, seq and at, and has no blanks between its fields")
    return RecordRefused(f"{shorten(str(name), 60)!r} is no event that is recorded", "event")


# `AttemptStarted` and `AttemptEnded` are written for every step, so they have fast encoders, with the same result as
# `Fields`. In the range that is checked for, pydantic writes a float as `repr` does, in a third of the time.


def _encode_start(event: AttemptStarted) -> bytes:
    at = event.at
    when = to_json(at) if 1e-4 <= at < 1e15 else write_number(at)
    return (
        f'{_START}AttemptStarted","seq":{event.seq},"at":{when.decode()},'
        f'"step":{quote(event.step)},"attempt":{event.attempt},"tool":{quote(event.tool)}}}'
    ).encode("utf-8", "backslashreplace")


def _encode_end(event: AttemptEnded) -> bytes:
    outcome = event.outcome
    value = outcome.value
    if (
        event.decision is not PROCEED
        or event.state is not _SUCCEEDED
        or outcome.state is not _SUCCEEDED
        or outcome.tokens
        or outcome.cost is not None
        or outcome.surprise
        or outcome.shared is not None
        or outcome.failure is not None
        or type(value) is Unavailable
    ):
        return _encode_fields(event)
    at = event.at
    when = to_json(at) if 1e-4 <= at < 1e15 else write_number(at)
    head = (
        f'{_START}AttemptEnded","seq":{event.seq},"at":{when.decode()},'
        f'"step":{quote(event.step)},"attempt":{event.attempt},"state":"succeeded",'
        f'"outcome":{{"state":"succeeded","value":{"" if type(value) is bytes else _scalar(value)}'
    ).encode("utf-8", "backslashreplace")
    return b"%b%b%b" % (head, value, _SUCCESS_TAIL) if type(value) is bytes else head + _SUCCESS_TAIL


def _scalar(value: Stored) -> str:
    kind = type(value)
    if kind is str:
        return quote(value)  # type: ignore[arg-type]
    if kind is int or kind is float:
        return repr(value)
    return "null" if value is None else "true" if value else "false"


_FAST_ENCODERS: Final[dict[type[Event], Callable[[Any], bytes]]] = {
    AttemptStarted: _encode_start,
    AttemptEnded: _encode_end,
}


def events_of(run_id: str, lines: Sequence[Line], unseal: Callable[[str], bytes] | None = None) -> list[Event]:
    """Return the events of the records of a run.

    Args:
        run_id: The run.
        lines: Its records.
        unseal: Opens the sealed originals of redacted events; `None` for the redacted events.

    Raises:
        RunNotFound: There are no records, because the run was killed before it wrote the first.
        JournalDamaged: A record has an unknown format, or is not possible in a run.
    """
    decoded: list[Event] = []
    for line in lines:
        try:
            event = decode_event(line.text if unseal is None else _original(line.text, unseal))
        except ValueError as error:
            raise JournalDamaged(run_id, line.seq, str(error)) from error
        if event.seq != line.seq:
            raise JournalDamaged(run_id, line.seq, f"it says that it is record {event.seq}")
        decoded.append(event)
    if not decoded:
        raise RunNotFound(f"run {run_id} was killed before its first record was written; start it again")
    if not isinstance(decoded[0], RunStarted) or decoded[0].opening is None:
        raise JournalDamaged(run_id, 1, "the first record does not say what the run was opened with")
    return decoded


def _original(text: bytes, unseal: Callable[[str], bytes]) -> bytes:
    """Return the unredacted record; *text* itself if it was not redacted, or was not sealed."""
    marks = marks_of(text)
    return text if marks is None or not marks.sealed else unseal(marks.sealed)
