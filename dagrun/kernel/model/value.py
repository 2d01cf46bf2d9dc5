"""Values that are passed between steps: encoded once at the producer, decoded for each consumer.

A stored value is a JSON scalar as it is, or the canonical JSON text of an object or a list as ``bytes``. So no tool
ever gets an object that the plan, the record or another step holds. Data that is too large or too binary for JSON is
an `Artifact`. The one exception are `HeldObjects`: what a tool returns as an object in memory is passed on as it is.
"""

from __future__ import annotations

import json
import math
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, Final, Protocol, TypeAlias

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import from_json, to_jsonable_python

from dagrun.errors import ValueRefused, ValueTooLarge, short_repr, shorten
from dagrun.kernel.model.contracts.held_objects import NOT_RECORDED, HeldObjects, held, owner_of


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A value that is gone: it is not in the record of the run, or was released from memory.

    Attributes:
        reason: Why, in a sentence; for example, the policy does not allow it in the record.
    """

    __repr__ = short_repr

    reason: str


RELEASED: Final = Unavailable("no step needed it, and the policy releases such outputs")
"""Stands for an output that was released during the run; see `Policy.release_outputs`."""

RELEASED_OBJECT: Final = Unavailable("no step needed it, and objects in memory are then released")
"""Stands for an output with objects in memory that was released during the run, as all of them are."""

Stored: TypeAlias = bool | int | float | str | bytes | Unavailable | HeldObjects | None
Path: TypeAlias = tuple[str | int, ...]

MAX_VALUE_BYTES: Final = 1 << 20  # of the output of one call, unless its tool says more
MAX_ARGUMENT_BYTES: Final = 16 << 20  # of the arguments of one call, unless the policy says otherwise
MAX_SPILL_BYTES: Final = 64 << 20  # of an output that becomes an artifact, unless the policy says otherwise
MAX_DEPTH: Final = 64
# Python refuses to print an integer of more than 4,300 digits, some 14,000 bits; other JSON readers stop earlier.
MAX_INT_BITS: Final = 4096

_ADVICE: Final = "; return an Artifact for large data"
BYTES_ADVICE: Final = "declare bytes in the return type, or return an Artifact"


def plain_scalar(value: object) -> object:
    """Return the plain text, number or boolean that *value* is: of a subclass, or a scalar of numpy.

    Numpy is not imported: its scalars are known by their base class. Anything else is returned as it is.
    """
    if type(value) in _SCALARS:
        return value
    if is_numpy_scalar(value):
        kind = value.dtype.kind  # type: ignore[attr-defined]
        if kind == "f":
            return float(value)  # type: ignore[arg-type]  # the item of a long double is one again
        # The item of a time may be an integer of nanoseconds, which says something else.
        return value.item() if kind in "biuU" else value  # type: ignore[attr-defined]
    if isinstance(value, str):
        return str.__str__(value)  # whatever the subclass makes of itself
    if isinstance(value, int):
        return int.__int__(value)
    return float.__float__(value) if isinstance(value, float) else value


def is_numpy_scalar(value: object) -> bool:
    """Whether *value* is a NumPy scalar, such as a number from an array."""
    return any(base.__module__ == "numpy" and base.__name__ == "generic" for base in type(value).__mro__)


def _named(value: object) -> str:
    """Return the type of a value, with its article."""
    kind = type(value).__name__
    return f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"


def numpy_fallback(value: object) -> object:
    """Return the plain scalar that a scalar of numpy is, for a serializer of pydantic.

    Raises:
        TypeError: *value* is no number, text or boolean of numpy.
    """
    plain = plain_scalar(value)
    if plain is value:
        raise TypeError(f"{_named(value)} is not a JSON value")
    return plain


def without_numpy(value: Any, depth: int = 0) -> Any:
    """Return *value* with NumPy scalars converted to plain ones, in its lists and dicts and as their keys."""
    if depth > MAX_DEPTH:
        return value
    kind = type(value)
    if kind is dict:
        return {
            plain_scalar(key) if is_numpy_scalar(key) else key: without_numpy(item, depth + 1)
            for key, item in value.items()
        }
    if kind is list or kind is tuple:
        return kind(without_numpy(item, depth + 1) for item in value)
    return plain_scalar(value) if is_numpy_scalar(value) else value


def _to_plain(value: object) -> object:
    if isinstance(value, Unavailable):  # pydantic would turn it into an object
        raise ValueRefused(_missing(value))
    if isinstance(value, bytes | bytearray | memoryview):
        raise ValueRefused(f"bytes are not a JSON value; {BYTES_ADVICE}")
    if (number := plain_scalar(value)) is not value:
        return number
    kind = _named(value)
    if isinstance(value, Iterator):  # it may never end, and pydantic would read it until the memory is full
        raise ValueRefused(f"{kind} is not a JSON value; return a list")
    try:
        return to_jsonable_python(value, inf_nan_mode="constants", fallback=numpy_fallback)
    except UnicodeDecodeError as error:
        raise ValueRefused(f"{kind} with bytes that are no UTF-8 is not a JSON value; {BYTES_ADVICE}") from error
    except Exception as error:
        raise ValueRefused(f"{kind} is not a JSON value; return plain data, or an Artifact") from error


_encoder: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_to_plain)


def _make_encode() -> Callable[[object], str]:
    """Return `_encoder.encode` with one C encoder for all calls: making one takes longer than a small value."""
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:  # an interpreter other than CPython
        return _encoder.encode
    # Without the check for circles: `check_size` has walked the value before, and refuses circles.
    text_of: Any = json.encoder.encode_basestring
    pieces: Any = make(None, _to_plain, text_of, None, ":", ",", False, False, False)
    return lambda value: "".join(pieces(value, 0))


_encode_text: Final = _make_encode()


def encode_plain(value: object) -> str:
    """Return the JSON text of plain data of any size.

    Raises:
        ValueRefused: *value* is not JSON.
    """
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError) as error:
        if isinstance(error, ValueRefused):
            raise
        raise ValueRefused(f"not a JSON value: {shorten(str(error))}") from error


def encode(value: object, limit: int = MAX_VALUE_BYTES) -> Stored:
    """Turn the result of a tool into a stored value.

    Args:
        value: Any value that JSON can represent; dates, dataclasses and pydantic models are turned into JSON.
        limit: The most bytes of JSON that the value may take.

    Raises:
        ValueRefused: The value is not JSON, holds NaN or a lone surrogate, or is too deep.
        ValueTooLarge: Its JSON takes over *limit* bytes; numbers always fit.
    """
    kind = type(value)
    if value is None or kind is bool:
        return value  # type: ignore[return-value]
    if kind is int:
        if value.bit_length() > MAX_INT_BITS:  # type: ignore[attr-defined]
            raise ValueRefused(f"an integer of more than {MAX_INT_BITS} bits is not a value that JSON readers take")
        return value  # type: ignore[return-value]
    if kind is float:
        if not math.isfinite(value):  # type: ignore[arg-type]
            raise ValueRefused(_not_finite(value, ()))  # type: ignore[arg-type]
        return value  # type: ignore[return-value]
    if kind is str:
        return _checked_text(value, limit)  # type: ignore[arg-type]
    return _encode_container(value, limit)


def _checked_text(text: str, limit: int) -> str:
    if not text.isascii():
        _utf8(text)
    # A character takes at most six bytes, so only a text near the limit has to be measured.
    if len(text) * 6 + 2 > limit:
        size = len(text) + 2 if len(text) > limit else len(to_json(text))
        if size > limit:
            raise ValueTooLarge(
                f"a text of {len(text)} characters takes {size} bytes of JSON, over the ceiling of {limit}{_ADVICE}"
            )
    return text


def _encode_container(value: object, limit: int) -> Stored:
    check_size(value, limit)
    try:
        data = _utf8(_json_text(value))
    except RecursionError:
        raise ValueRefused(f"the value is nested deeper than {MAX_DEPTH} levels or holds itself") from None
    except (TypeError, ValueError) as error:
        if isinstance(error, ValueRefused):
            raise
        if found := _find_not_finite(value, ()):
            raise ValueRefused(found) from None
        raise ValueRefused(f"not a JSON value: {shorten(str(error))}") from error
    if len(data) > limit:
        raise ValueTooLarge(f"{len(data)} bytes of JSON are over the ceiling of {limit}{_ADVICE}")
    if data[0] not in b'{["':
        return encode(json.loads(data), limit)  # a scalar after all, for example an enum or a subclass of int
    if data[0] == 0x22:
        return str(json.loads(data))
    return data


def _json_text(value: object) -> str:
    try:
        return _encode_text(value)
    except TypeError:  # a key that is a number of numpy, perhaps, which the encoder refuses by itself
        return _encode_text(without_numpy(value))


def _find_not_finite(value: object, place: Path) -> str:
    """Return the place of a number that JSON cannot hold, in plain data; empty if there is none."""
    if len(place) > MAX_DEPTH:
        return ""
    parts: Iterable[tuple[Any, object]] = ()
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list | tuple):
        parts = enumerate(value)
    else:
        number = plain_scalar(value)
        return _not_finite(number, place) if isinstance(number, float) and not math.isfinite(number) else ""
    return next((found for key, part in parts if (found := _find_not_finite(part, (*place, key)))), "")


def _not_finite(number: float, place: Path) -> str:
    at = "".join(f"[{part}]" if isinstance(part, int) else f".{shorten(str(part), 60)}" for part in place)
    return f"{number}{at and f' at {at}'} is not a JSON value; return None (null) in its place"


def check_size(value: object, limit: int, max_depth: int = MAX_DEPTH) -> None:
    """Refuse *value* as soon as it certainly exceeds *limit* bytes of JSON or *max_depth* levels.

    The walk ends at the limit, so an endless or gigantic structure costs a bounded time.
    """
    size = 0
    level: Iterable[Any] = (value,)
    for _ in range(max_depth + 1):
        below: list[object] = []
        for item in level:
            kind = type(item)
            if kind is str:
                size += len(item)
                continue
            if kind in _NO_LENGTH:
                continue
            size += _BYTES[kind] * len(item) if kind in _BYTES else _min_size(item)
            if size > limit:  # before its elements are collected
                break
            below += item.values() if kind is dict else item if kind is list else _elements(item)
        if size > limit:
            raise ValueTooLarge(f"the value takes over {limit} bytes of JSON{_ADVICE}")
        if not below:
            return
        level = below
    raise ValueRefused(f"the value is nested deeper than {max_depth} levels or holds itself")


_LISTS: Final = (list, tuple, set, frozenset)
# JSON types are found in a table: asking whether an object is a `Mapping` takes longer than the rest together.
_NO_LENGTH: Final = frozenset((int, float, bool, type(None)))
_BYTES: Final[Mapping[type, int]] = {list: 2, dict: 4}  # the least bytes of JSON for each element


def _min_size(item: object) -> int:
    """Return the least bytes of JSON that *item* takes, without its elements."""
    if isinstance(item, str):
        return len(item)
    if isinstance(item, Mapping):
        return 4 * len(item)
    return 2 * len(item) if isinstance(item, _LISTS) else 0


def _elements(item: object) -> Iterable[object]:
    """Return the elements of *item*, no more than its length: an object from a tool may iterate endlessly."""
    if isinstance(item, Mapping):
        return islice(item.values(), len(item))
    return islice(item, len(item)) if isinstance(item, _LISTS) else ()


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueRefused(f"the text holds half a character (a lone surrogate) at {error.start}") from None


def store_text(data: bytes, limit: int = MAX_VALUE_BYTES) -> Stored:
    """Turn JSON text from outside into a stored value.

    Raises:
        ValueRefused: The text is longer than *limit* bytes, or is not JSON.
    """
    if len(data) > limit:
        raise ValueTooLarge(f"{len(data)} bytes of JSON are over the ceiling of {limit}{_ADVICE}")
    try:
        return encode(from_json(data, allow_inf_nan=False), limit)
    except ValueError as error:
        raise ValueRefused(f"not a JSON value: {shorten(str(error))}") from error


def decode(stored: Stored) -> Any:
    """Return a new copy of a stored value, for one consumer; each object in memory stays a token.

    Raises:
        ValueRefused: The value is gone; see `Unavailable`.
    """
    if type(stored) is bytes:
        return from_json(stored)
    if type(stored) is Unavailable:
        raise ValueRefused(_missing(stored))
    return from_json(stored.text) if type(stored) is HeldObjects else stored


def decode_with_objects(stored: Stored) -> Any:
    """Return a stored value for the host program: like `decode`, but with objects for their tokens.

    Raises:
        ValueRefused: The value is gone; see `Unavailable`.
    """
    return stored.value if type(stored) is HeldObjects else decode(stored)


def _missing(stored: Unavailable) -> str:
    if is_released(stored):
        return f"the value was released: {stored.reason}"
    return f"the value is not in the record of the run: {shorten(stored.reason)}"


def is_released(stored: Stored) -> bool:
    """Whether the value was released during the run, because no step needed it."""
    return stored is RELEASED or stored is RELEASED_OBJECT


def is_lost_object(stored: Stored) -> bool:
    """Whether the value had objects in memory and was read from a record, which holds none."""
    return type(stored) is Unavailable and stored.reason.startswith(NOT_RECORDED)


def for_record(stored: Stored) -> Stored:
    """Return a stored value as it may be recorded: without objects in memory, but for those that are in files."""
    if type(stored) is not HeldObjects:
        return stored
    return stored.text if stored.is_filed else Unavailable(stored.reason)


def decode_or_reason(stored: Stored) -> Any:
    """Return a copy of a stored value, for display; if the value is gone, an object with the reason.

    An object in memory is shown by its token, which names its type.
    """
    return {"unavailable": stored.reason} if type(stored) is Unavailable else decode(stored)


def to_json(stored: Stored) -> bytes:
    """Return the JSON text of a stored value, without decoding it.

    Raises:
        ValueRefused: The value is gone; see `Unavailable`.
    """
    if type(stored) is bytes:
        return stored
    return stored.text if type(stored) is HeldObjects else _encoder.encode(stored).encode()


def join_stored(items: list[Stored], limit: int = MAX_VALUE_BYTES) -> Stored:
    """Join stored values into one stored list, without decoding them.

    Raises:
        ValueRefused: The list would take more than *limit* bytes.
    """
    data = b"[" + b",".join([to_json(item) for item in items]) + b"]"
    if len(data) > limit:
        raise ValueTooLarge(f"{len(data)} bytes of JSON are over the ceiling of {limit}{_ADVICE}")
    parts = [item for item in items if type(item) is HeldObjects]
    if not parts:
        return data
    objects = {key: thing for part in parts for key, thing in part.objects.items()}
    return HeldObjects(data, objects, all(part.is_filed for part in parts))


def select_part(stored: Stored, path: Path) -> Stored:
    """Return the part of a stored value at *path*, keys and indices on plain JSON, as a stored value.

    Raises:
        LookupError: There is no value at that path; the message names the part of the path that fails.
    """
    if not path:
        return stored
    if type(stored) is HeldObjects:
        return _part_of_held(stored, path)
    value = value_at(decode(stored), path)
    return value if type(value) in _SCALARS else _encoder.encode(value).encode()


def _part_of_held(stored: HeldObjects, path: Path) -> Stored:
    value = from_json(stored.text)
    for part in path:
        if owner_of(value) in stored.objects:
            raise LookupError(f"{part} is a part of an object in memory, which a plan can only pass on whole")
        value = value_at(value, (part,))
    if type(value) in _SCALARS:
        return value  # type: ignore[no-any-return]
    return held(value, _encoder.encode(value).encode(), stored.objects)


def value_at(value: Any, path: Path) -> Any:
    """Return the part of a decoded value at *path*.

    Raises:
        LookupError: There is no value at that path; the message names the part of the path that fails.
    """
    for part in path:
        if type(part) is int:
            if type(value) is not list:
                raise LookupError(f"[{part}] asks for an element of {describe(value)}")
            if part >= len(value):
                raise LookupError(f"[{part}] is beyond the end of {describe(value)}")
        elif type(value) is not dict:
            raise LookupError(f".{part} asks for a field of {describe(value)}")
        elif part not in value:
            raise LookupError(f"there is no field {shorten(str(part), 60)}")
        value = value[part]
    return value


_SCALARS: Final = frozenset((type(None), bool, int, float, str))


def describe(value: object) -> str:
    """Name the kind of a JSON value in words, without showing its content."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return f"a text of {len(value)} characters"
        case list() | tuple():
            return f"a list of {len(value)}"
        case dict():
            return f"an object of {len(value)} fields"
        case _:
            return f"a {type(value).__name__}"


# Artifacts ------------------------------------------------------------------------------------------------------------


SHA256_PATTERN: Final = r"^[0-9a-f]{64}$"


class Artifact(BaseModel):
    """A read-only file in the folder of the run, named by its hash: for data too large or too binary for JSON.

    Attributes:
        sha256: The hash of its bytes, in hex.
        media_type: For example ``text/csv``.
        name: A file name for people; it is never used to find the file.
        size: In bytes.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    sha256: Annotated[str, Field(pattern=SHA256_PATTERN)]
    media_type: Annotated[str, Field(max_length=200)] = "application/octet-stream"
    name: Annotated[str, Field(max_length=200)] = ""
    size: Annotated[int, Field(ge=0)] = 0


class ArtifactStore(Protocol):
    """Stores the artifacts of a run."""

    def save(self, data: bytes | str | pathlib.Path, *, media_type: str = ..., name: str = ...) -> Artifact:
        """Store *data* (bytes, text as UTF-8, or the file at a path), and return its artifact."""

    def path(self, artifact: Artifact) -> pathlib.Path:
        """Return the path of the file of *artifact*.

        Raises:
            FileNotFoundError: The run has no such artifact.
        """
