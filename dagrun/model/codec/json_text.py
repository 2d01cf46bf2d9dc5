"""JSON text, piece by piece: one value written in UTF-8, and one value read at a place in a text.

What is read here comes from outside: whatever is not JSON, not of the wanted type, or too deep is refused.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable
from json.encoder import encode_basestring
from json.scanner import make_scanner
from typing import Any, Final, NoReturn, TypeAlias, cast

from dagrun.errors import RecordRefused, ValueRefused, shorten
from dagrun.model.value import Stored, describe, encode_plain

ReadResult: TypeAlias = tuple[Any, int]
"""What was read, and where the text goes on."""

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
    """Read a text that is to be one JSON value and nothing else."""
    value, end = scan(text, 0)
    if end != len(text):
        raise RecordRefused("not JSON")
    return value


def expect(text: str, at: int, mark: str) -> int:
    """Go past *mark*, which must stand at *at*."""
    if not text.startswith(mark, at):
        wanted = "an object" if mark == "{" else "a list" if mark == "[" else mark
        raise RecordRefused(f"expected {wanted}, got {rest(text, at)}")
    return at + len(mark)


def rest(text: str, at: int) -> str:
    """What stands at a place in a text, for messages."""
    return repr(shorten(text[at : at + 20])) if at < len(text) else "the end of the text"


def reader(is_fit: Callable[[Any], bool], wanted: str) -> Callable[[str, int], ReadResult]:
    """A reader of values for which *is_fit* holds; *wanted* names them for messages."""

    def read(text: str, at: int) -> ReadResult:
        value, end = scan(text, at)
        if not is_fit(value):
            raise RecordRefused(f"expected {wanted}, got {describe(value)}")
        return value, end

    return read


def read_stored(text: str, at: int) -> ReadResult:
    """Read a stored value: the text of an object or a list stays as it is."""
    value, end = scan(text, at)
    return (text[at:end].encode() if type(value) in (dict, list) else value), end


# Writing -------------------------------------------------------------------------------------------------------------


def write_text(value: str) -> bytes:
    """A text, in quotes."""
    # Half a character, which UTF-8 does not know, is written as the escape that JSON has for it.
    return encode_basestring(value).encode("utf-8", "backslashreplace")


def write_number(value: Any) -> bytes:
    """A number as it is; one of a type of its own, that a tool has reported, as the plain one that it stands for."""
    try:
        return b"%d" % operator.index(value)
    except TypeError:
        number = float(value)
    if math.isnan(number):
        raise ValueRefused("a record cannot hold NaN")
    # JSON has no word for infinity, but any number of digits.
    return float.__repr__(number).encode() if math.isfinite(number) else b"1e999" if number > 0 else b"-1e999"


def write_whole(value: Any) -> bytes:
    """A whole number; of half a token, which a tool may report, the next one."""
    return write_number(value if hasattr(value, "__index__") else math.ceil(value))


def write_bool(value: Any) -> bytes:
    """True or false."""
    return b"true" if value else b"false"


def write_stored(value: Stored) -> bytes:
    """The JSON text of a stored value; that of an object or a list is there already."""
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
    """Any plain data."""
    return encode_plain(value).encode("utf-8", "backslashreplace")
