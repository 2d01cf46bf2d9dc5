"""Lines broken by the number of cells that they take on a terminal."""

from __future__ import annotations

import unicodedata
from typing import Final

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
