"""Read JSON strictly: the depth is limited before parsing, and no fault is silently ignored.

Two faults have no place in plain JSON: a number that no plan may hold, and a key that stands twice in an object. So
parsing leaves a mark for each, `BadNumber` or `RepeatedKeys`, and `take_out_marks` turns the marks into problems with
their places.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from dagrun.errors import PlanRefused, Problem, shorten
from dagrun.kernel.checks.plain_json import MAX_DIGITS, text_fault
from dagrun.kernel.model.reference import path_text
from dagrun.kernel.model.value import Path

# The most levels that a host can allow. Recursive parsers and walkers in Python fail at a few hundred levels.
MAX_READ_DEPTH: Final = 100


class BadNumber:
    """The mark for a number that no plan may hold."""

    def __init__(self, text: str) -> None:
        self.text = text if len(text) <= 40 else f"a number of {len(text)} characters"


class RepeatedKeys(dict[str, Any]):
    """The mark of an object with a repeated key."""

    def __init__(self, pairs: Iterable[tuple[str, Any]]) -> None:
        pairs = list(pairs)
        super().__init__(pairs)
        self.repeated = [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]


def make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of its fields, or a mark if a key stands twice."""
    fields = dict(pairs)
    return fields if len(fields) == len(pairs) else RepeatedKeys(pairs)


def make_int(text: str) -> int | BadNumber:
    """Read a whole number."""
    return int(text) if len(text) <= MAX_DIGITS else BadNumber(text)


def make_float(text: str) -> float | BadNumber:
    """Read a number with a fraction or an exponent."""
    number = float(text)
    return number if math.isfinite(number) and len(text) <= MAX_DIGITS else BadNumber(text)


class CleanObject(dict[str, Any]):
    """The outermost object of a text without marks, and without characters that no plan may hold."""

    __slots__ = ()


class MarkingHooks:
    """The hooks of the JSON parser: they make objects, numbers and marks.

    Attributes:
        has_marked: Whether they have made a mark.
    """

    __slots__ = ("has_marked",)

    def __init__(self) -> None:
        self.has_marked = False

    def of_pairs(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Make an object of its fields."""
        fields = dict(pairs)
        if len(fields) == len(pairs):
            return fields
        self.has_marked = True
        return RepeatedKeys(pairs)

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
        """Make a mark for NaN or infinity, which are not JSON."""
        self.has_marked = True
        return BadNumber(text)


def depth_refusal(limit: int) -> PlanRefused:
    """Return the refusal of a text that is nested deeper than *limit*."""
    return PlanRefused([Problem("DR006", "", {"limit": str(limit)})])


def take_out_marks(tree: Any) -> list[Problem]:
    """Replace every mark in a parsed plan by a harmless value, so that the rest can be checked; return the problems."""
    if type(tree) is CleanObject:
        return []
    problems: list[Problem] = []
    _visit(tree, (), problems)
    return problems


def _visit(tree: Any, path: Path, problems: list[Problem]) -> None:
    if isinstance(tree, dict):
        if isinstance(tree, RepeatedKeys):
            problems += (_problem("DR007", path, key=repr(shorten(key))) for key in tree.repeated)
        has_plain_keys = _are_plain_texts(tree)
        for key, value in tree.items():
            if not has_plain_keys and (fault := _stored_fault(key)):
                problems.append(_problem("DR013", path, reason=f"{fault} in a key"))
            if type(value) is not str or not value.isascii() or "\0" in value:  # saves a call for most values
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
    """Whether all of *values* are plain ASCII texts, which a record can hold. Fast, also for a very long list."""
    try:
        text = "".join(values)
    except TypeError:
        return False
    return text.isascii() and "\0" not in text


def _stored_fault(text: str) -> str | None:
    return "the character NUL" if "\0" in text else text_fault(text)


def _problem(code: str, path: Path, **facts: object) -> Problem:
    return Problem(code, path_text(path).removeprefix("."), {name: str(fact) for name, fact in facts.items()})


# The next bracket, or the end. Texts are skipped as a whole, an unclosed text to the end. Possessive, so that no
# character is tried twice. The end is a match, so that the search does not fail at each character of a long tail.
_BRACKET: Final = re.compile(r'[^"\[\]{}]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"?[^"\[\]{}]*+)*+([\[\]{}]|\Z)', re.DOTALL)
_ROUNDS: Final = 8  # enough for nearly every plan
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b'"[]{}'))


def parse_json(text: str, max_depth: int) -> Any:
    """Parse *text*.

    Returns:
        Plain JSON, with a `RepeatedKeys` for each object in which a key stands twice, and a `BadNumber` for each number
        that no plan may hold. An object without marks and without characters that no plan may hold is a `CleanObject`.

    Raises:
        PlanRefused: The text is not JSON, or nested deeper than *max_depth*.
    """
    # Before parsing: Python's parser fails with a RecursionError, at a depth that depends on the depth of the caller.
    if _is_deeper(text, max_depth):
        raise depth_refusal(max_depth)
    hooks = MarkingHooks()
    try:
        tree = json.loads(
            text,
            object_pairs_hook=hooks.of_pairs,
            parse_int=hooks.integer,
            parse_float=hooks.fraction,
            parse_constant=hooks.constant,
        )
    except json.JSONDecodeError as error:
        raise PlanRefused([syntax_problem("JSON", error.lineno, error.colno, _reason(error.msg))]) from None
    # Every character of its texts is written in *text* itself, or as an escape with "\u".
    if type(tree) is dict and not hooks.has_marked and "\\u" not in text and text_fault(text) is None:
        return CleanObject(tree)
    return tree


def syntax_problem(syntax: str, line: int, column: int, reason: str) -> Problem:
    """Return the problem of a text with an error of syntax."""
    return Problem("DR003", "", {"syntax": syntax, "line": str(line), "column": str(column), "reason": reason})


def _is_deeper(text: str, limit: int) -> bool:
    if text.count("[") + text.count("{") <= limit:
        return False
    outline = _outline(text)
    if outline is not text and _is_flat(outline, limit):
        return False
    depth = 0
    for match in _BRACKET.finditer(outline):
        bracket = match[1]
        if bracket in ("[", "{"):
            depth += 1
            if depth > limit:
                return True
        elif bracket:
            depth -= 1
    return False


def _outline(text: str) -> str:
    """Return the brackets and quotes of *text*, with unchanged depth; fast, also for very many texts."""
    if "\\" in text:
        return text  # a quote may be escaped, so nothing can be removed
    signs = text.encode(errors="surrogatepass").translate(None, _NO_BRACKETS)
    # Two quotes side by side can be removed: whether brackets are inside or outside of texts does not change.
    return signs.replace(b'""', b"").decode()


def _is_flat(outline: str, limit: int) -> bool:
    """Whether *outline* is certainly no deeper than *limit*; false if that cannot be found out in a few fast rounds."""
    # Of two brackets side by side, both are in a text or none is. Each round removes two levels at most.
    for _ in range(min(limit // 2, _ROUNDS)):
        outline = outline.replace("[]", "").replace("{}", "").replace('""', "")
        if not outline:
            return True
    return False


def _reason(message: str) -> str:
    return "there is more text after the end" if message == "Extra data" else message[:1].lower() + message[1:]
