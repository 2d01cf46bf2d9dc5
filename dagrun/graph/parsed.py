"""What the readers of JSON and YAML share: how they mark what a plan may not hold, and how the marks are found."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from dagrun.errors import PlanRefused, Problem, shorten
from dagrun.graph.plain_json import MAX_DIGITS, text_fault
from dagrun.model.reference import path_text
from dagrun.model.value import Path

# However deep a host lets plans be: Python's own parsers and walkers give up at a few hundred levels.
MAX_READ_DEPTH: Final = 100


class BadNumber:
    """Stands in a parsed plan for a number that no plan may hold."""

    def __init__(self, text: str) -> None:
        self.text = text if len(text) <= 40 else f"a number of {len(text)} characters"


class Repeated(dict[str, Any]):
    """An object in which a key stood twice."""

    def __init__(self, pairs: Iterable[tuple[str, Any]]) -> None:
        pairs = list(pairs)
        super().__init__(pairs)
        self.repeated = [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]


def make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of its fields; where a key stands twice, nobody could say which one counts."""
    made = dict(pairs)
    return made if len(made) == len(pairs) else Repeated(pairs)


def make_int(text: str) -> int | BadNumber:
    """Read a whole number."""
    return int(text) if len(text) <= MAX_DIGITS else BadNumber(text)


def make_float(text: str) -> float | BadNumber:
    """Read a number with a fraction or an exponent."""
    number = float(text)
    return number if math.isfinite(number) and len(text) <= MAX_DIGITS else BadNumber(text)


class Clean(dict[str, Any]):
    """The outermost object of a text that holds no mark, and no character that no plan may hold."""

    __slots__ = ()


class Maker:
    """Makes the parts of a parsed text, and keeps in mind whether any of them is a mark.

    Attributes:
        has_marked: Whether one is.
    """

    __slots__ = ("has_marked",)

    def __init__(self) -> None:
        self.has_marked = False

    def of_pairs(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Make an object of its fields."""
        made = dict(pairs)
        if len(made) == len(pairs):
            return made
        self.has_marked = True
        return make_object(pairs)

    def integer(self, text: str) -> int | BadNumber:
        """Read a whole number."""
        number = make_int(text)
        self.has_marked = self.has_marked or type(number) is BadNumber
        return number

    def fraction(self, text: str) -> float | BadNumber:
        """Read a number with a fraction or an exponent."""
        number = make_float(text)
        self.has_marked = self.has_marked or type(number) is BadNumber
        return number

    def constant(self, text: str) -> BadNumber:
        """Mark a number that JSON has no word for."""
        self.has_marked = True
        return BadNumber(text)


def too_deep(limit: int) -> PlanRefused:
    """The refusal of a text that is nested deeper than *limit*."""
    return PlanRefused([Problem("DR006", "", {"limit": str(limit)})])


def take_out_marks(tree: Any) -> list[Problem]:
    """Find every mark in a parsed plan, and put harmless values there, so that the rest can be checked too."""
    if type(tree) is Clean:
        return []
    problems: list[Problem] = []
    _visit(tree, (), problems)
    return problems


def _visit(tree: Any, path: Path, problems: list[Problem]) -> None:
    if isinstance(tree, dict):
        if isinstance(tree, Repeated):
            problems += (_problem("DR007", path, key=repr(shorten(key))) for key in tree.repeated)
        has_plain_keys = _are_plain_texts(tree)
        for key, value in tree.items():
            if not has_plain_keys and (fault := _stored_fault(key)):
                problems.append(_problem("DR013", path, reason=f"{fault} in a key"))
            if type(value) is not str or not value.isascii() or "\0" in value:  # most are such: spares a call
                tree[key] = _cleaned(value, (*path, key), problems)
    elif isinstance(tree, list) and not _are_plain_texts(tree):
        for number, value in enumerate(tree):
            tree[number] = _cleaned(value, (*path, number), problems)


def _cleaned(value: Any, path: Path, problems: list[Problem]) -> Any:
    if isinstance(value, str):
        fault = _stored_fault(value)
        if fault is None:
            return value
        problems.append(_problem("DR013", path, reason=fault))
        return ""
    if isinstance(value, BadNumber):
        problems.append(_problem("DR008", path, number=value.text, limit=MAX_DIGITS))
        return 1
    _visit(value, path, problems)
    return value


def _are_plain_texts(values: Iterable[Any]) -> bool:
    """Whether all of *values* are texts with nothing wrong in them: said at once of lists of millions."""
    try:
        text = "".join(values)
    except TypeError:
        return False
    return text.isascii() and "\0" not in text


def _stored_fault(text: str) -> str | None:
    return "the character NUL" if "\0" in text else text_fault(text)


def _problem(code: str, path: Path, **facts: object) -> Problem:
    return Problem(code, path_text(path).removeprefix("."), {name: str(fact) for name, fact in facts.items()})
