"""What a planner sees of values: their shape, or what they say, capped and without what looks like a secret."""

from __future__ import annotations

import re
from typing import Any, Final

from dagrun.model.redaction import NOTHING, Redactor
from dagrun.model.value import Stored, Unavailable, decode, readable, to_json

MAX_KEYS: Final = 50
MAX_PARTS: Final = 200  # of one view; 50 keys at each of six levels would be more than anybody reads
MAX_VIEW_DEPTH: Final = 6

# A key may be data too. One that could be a sentence is counted, not shown.
_NAME: Final = re.compile(r"[\w.-]{1,40}")


def shape_of(stored: Stored) -> Any:
    """Describe a value by its types, sizes and keys, without a word of what it says.

    An object becomes an object of shapes, a list the shape of its first element and its length, a text its length; a
    number or a truth value stands as its type, because figures are results. Keys that look like sentences, and those
    beyond the first few, are counted. Of a value that is not there any more, it is said why.
    """
    if isinstance(stored, Unavailable):
        return readable(stored)
    return _shape(decode(stored), 0, [MAX_PARTS])


def _shape(value: Any, depth: int, left: list[int]) -> Any:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return f"text of {len(value)} characters"
        case _ if depth >= MAX_VIEW_DEPTH:
            return "list" if isinstance(value, list) else "object"
        case list():
            return {"list of": len(value), "first": _shape(value[0], depth + 1, left)} if value else {"list of": 0}
        case _:
            return _shape_of_object(value, depth, left)


def _shape_of_object(value: dict[str, Any], depth: int, left: list[int]) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for key, part in value.items():
        if len(shown) >= MAX_KEYS or left[0] <= 0:
            break
        if _NAME.fullmatch(key):
            left[0] -= 1
            shown[key] = _shape(part, depth + 1, left)
    others = len(value) - len(shown)
    return {**shown, "(other keys)": others} if others else shown


def excerpt_of(stored: Stored, limit: int, redactor: Redactor = NOTHING) -> Any:
    """Give a value as it may be shown, fields with secret names hidden; one of over *limit* bytes as its shape."""
    if isinstance(stored, Unavailable):
        return readable(stored)
    if len(to_json(stored)) > limit:
        return {"too large to show": shape_of(stored)}
    return redactor.value(decode(stored))
