"""Compare plain JSON with an expectation: equal, or equal in the named parts."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, Final

from dagrun.texts import shorten

_CLOSE: Final = 1e-9  # of numbers, relative; sums of floats differ by less
_MAX_SHOWN: Final = 300


def differences(found: Any, expected: Any, place: str, *, is_part: bool = False) -> Iterator[str]:
    """Yield where *found* differs from *expected*, a line each.

    Args:
        found: Plain JSON.
        expected: Plain JSON.
        place: The name of the value, to begin lines with.
        is_part: Whether objects may have more fields than expected.
    """
    if isinstance(found, dict) and isinstance(expected, dict):
        for key in expected:
            if key in found:
                yield from differences(found[key], expected[key], f"{place}.{key}", is_part=is_part)
            else:
                yield f"{place}.{key} is missing"
        if not is_part:
            yield from (f"{place}.{key} is not expected: it is {shown(found[key])}" for key in found.keys() - expected)
    elif isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            yield from differences(one, other, f"{place}[{number}]", is_part=is_part)
    elif not _same(found, expected):
        yield f"{place} is {shown(found)}, not {shown(expected)}"


def fits(found: Any, expected: Any) -> bool:
    """Whether the named parts of *found* are as *expected*: objects may have more fields."""
    return next(differences(found, expected, "", is_part=True), None) is None


def shown(value: Any) -> str:
    """Return *value* as JSON on one line, shortened."""
    return shorten(json.dumps(value, ensure_ascii=False, default=str), _MAX_SHOWN)


def distance(found: Any, expected: Any) -> int:
    """Return how many parts of *found* differ from *expected*."""
    return sum(1 for _ in differences(found, expected, ""))


def _same(found: Any, expected: Any) -> bool:
    if isinstance(found, bool) or isinstance(expected, bool):
        return found is expected
    if isinstance(found, int | float) and isinstance(expected, int | float):
        return math.isclose(found, expected, rel_tol=_CLOSE, abs_tol=1e-12)
    return type(found) is type(expected) and bool(found == expected)
