"""Write one JSON value as UTF-8, and read one JSON value at a position in a text.

Text that is read here comes from outside: it is refused if it is not JSON, not of the wanted type, or too deep.
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
from dagrun.kernel.model.value import Stored, describe, encode_plain

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
