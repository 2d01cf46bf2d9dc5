"""Breaking lines by the cells that they take on a terminal."""

from __future__ import annotations

import unicodedata
from typing import Final

BAR: Final = "| "  # before what others wrote, so that it cannot pass for a line of ours


def cells(text: str) -> int:
    """How many cells *text* takes; it holds no control characters."""
    return len(text) if text.isascii() else sum(map(_width, text))


def wrap(text: str, width: int, head: str, again: str | None = None) -> list[str]:
    """Break *text* into lines of at most *width* cells, anywhere, so that nothing of it is lost.

    Args:
        text: On one line, without control characters.
        width: In cells; more than *head* takes.
        head: Before the first line.
        again: Before the others; by default *head*, if that ends with a bar, and else its indent with a bar.
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
    """Where the part of *text* ends that begins at *start* and fits into *room* cells; it has at least a character."""
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
