"""JSON, read strictly: bounded in depth before it is parsed, and nothing in it passed over in silence."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from dagrun.errors import PlanRefused, Problem
from dagrun.graph.parsed import Clean, Maker, too_deep
from dagrun.graph.plain_json import text_fault

# The next bracket, or the end. Texts are skipped whole, unclosed ones to the end; possessive, so that nothing is ever
# tried twice, and with the end as a match, so that a tail without brackets is not tried at each of its characters.
_BRACKET: Final = re.compile(r'[^"\[\]{}]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"?[^"\[\]{}]*+)*+([\[\]{}]|\Z)', re.DOTALL)
_ROUNDS: Final = 8  # enough for nearly every plan
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b'"[]{}'))


def parse_json(text: str, max_depth: int) -> Any:
    """Parse *text*.

    Returns:
        Plain JSON, with a `Repeated` for each object in which a key stands twice, and a `BadNumber` for each number
        that no plan may hold. An object in which there is none of that, and no text that no plan may hold, is `Clean`.

    Raises:
        PlanRefused: The text is not JSON, or nested deeper than *max_depth*.
    """
    # Before parsing: Python's parser fails on depth in a way of its own, at a depth that depends on the caller's.
    if _is_deeper(text, max_depth):
        raise too_deep(max_depth)
    maker = Maker()
    try:
        tree = json.loads(
            text,
            object_pairs_hook=maker.of_pairs,
            parse_int=maker.integer,
            parse_float=maker.fraction,
            parse_constant=maker.constant,
        )
    except json.JSONDecodeError as error:
        raise PlanRefused([broken("JSON", error.lineno, error.colno, _reason(error.msg))]) from None
    if type(tree) is dict and not maker.has_marked and "\\u" not in text and text_fault(text) is None:
        return Clean(tree)  # what is in its texts stands in *text* itself, or behind a backslash and a "u"
    return tree


def broken(syntax: str, line: int, column: int, reason: str) -> Problem:
    """The problem of a text that is not what it should be."""
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
    """What the depth of *text* depends on, in a hundredth of the time where millions of texts are in it."""
    if "\\" in text:
        return text  # a quote may stand for itself: nothing can be left out
    marks = text.encode(errors="surrogatepass").translate(None, _NO_BRACKETS)
    # Two quotes side by side begin and end nothing, whichever they are: what was inside a text stays inside one.
    return marks.replace(b'""', b"").decode()


def _is_flat(outline: str, limit: int) -> bool:
    """Whether *outline* is certainly no deeper than *limit*: found out at the speed of searching, or not at all."""
    # Two brackets side by side are both in a text, or neither is. Each round takes away two levels at most.
    for _ in range(min(limit // 2, _ROUNDS)):
        outline = outline.replace("[]", "").replace("{}", "").replace('""', "")
        if not outline:
            return True
    return False


def _reason(message: str) -> str:
    return "there is more text after the end" if message == "Extra data" else message[:1].lower() + message[1:]
