"""Lines broken by the number of cells that they take on a terminal."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

# East Asian letters may be separated from each other; all others belong to their words.
_EAST: Final = r"[\u2e80-\u9fff\uac00-\ud7a3\uff00-\uff60]"
_BREAKABLE: Final = rf"(?:{_EAST}|(?:(?!{_EAST}|\s).)+)\s*"

BAR: Final = "| "  # stands before text from outside, so that it cannot look like a line of dagrun


def cells(text: str) -> int:
    """Return how many cells *text* takes; it must not hold control characters."""
    return len(text) if text.isascii() else sum(map(_width, text))


def wrap(text: str, width: int, head: str, again: str | None = None) -> list[str]:
    """Break *text* into lines of at most *width* cells, at any character, so that nothing is lost.

    Args:
        text: One line, without control characters.
        width: The width of a line in cells; more than *head* takes.
        head: The beginning of the first line.
        again: The beginning of the other lines; by default *head*, if it ends with a bar, or else its indent and a bar.
    """
    if again is None:
        again = head if head.endswith(BAR) else " " * (len(head) - len(head.lstrip())) + BAR
    lines: list[str] = []
    before, start = head, 0
    while not lines or start < len(text):
        end = _end(text, start, width - len(before))
        lines.append(f"{before}{text[start:end]}")
        before, start = again, end
    return lines


def wrap_words(text: str, width: int, head: str, again: str) -> list[str]:
    """Break *text* between its words into lines of at most *width* cells; blanks at a break are left out.

    A word that is wider than a line, such as JSON without blanks, is broken at any character, and East Asian text
    between its letters.

    Args:
        text: One line, without control characters.
        width: The width of a line in cells; more than *head* takes.
        head: The beginning of the first line.
        again: The beginning of the other lines.
    """
    lines: list[str] = []
    line, is_empty = head, True
    for word in _words(text, width - len(again)):
        if not is_empty and cells(line) + cells(word.rstrip()) > width:
            lines.append(line.rstrip())
            line, is_empty = again, True
        line += word
        is_empty = False
    return [*lines, line.rstrip()]


def _words(text: str, room: int) -> Iterator[str]:
    """Yield the parts of *text* that may not be broken, with the blanks behind them."""
    for word in re.findall(r" *[^ ]+ *|^ *$", text):
        if cells(word.strip()) > room:
            start = 0
            while start < len(word):
                end = _end(word, start, room)
                yield word[start:end]
                start = end
        else:
            yield from re.findall(_BREAKABLE, word) if not word.isascii() else (word,)


def _end(text: str, start: int, room: int) -> int:
    """Return the end of the part of *text* from *start* that fits into *room* cells; at least one character."""
    part = text[start : start + room]
    if part.isascii():
        return start + max(1, len(part))
    taken = 0
    for at in range(start, len(text)):
        taken += _width(text[at])
        if taken > room:
            return max(start + 1, at)
    return len(text)


def _width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
