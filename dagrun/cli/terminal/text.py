"""Texts on their way to a terminal: nothing that a plan or a tool says may steer it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TextIO

from dagrun.errors import visible

SCHEMA_VERSION: Final = 1  # of everything that is printed as JSON


def printable(text: str) -> str:
    """Escape what cannot be seen in a text of several lines, or steers a terminal; line ends and tabs stay."""
    return visible(text, keep="\n\t")


def to_json(value: Any, *, indent: int | None = None) -> str:
    """Write *value* as JSON that is safe to show: what a terminal could take for a command is escaped."""
    separators = (",", ":") if indent is None else None
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent, separators=separators)
    # Outside of its texts, JSON holds nothing but printable ASCII and line ends.
    return text if text.isascii() and "\x7f" not in text else _UNPRINTABLE.sub(_json_escape, text)


_UNPRINTABLE: Final = re.compile(r"[^\x20-\x7e\n]")


def _json_escape(match: re.Match[str]) -> str:
    char = match.group()
    return char if visible(char) == char else json.dumps(char)[1:-1]


def columns(rows: Sequence[Sequence[str]], head: Sequence[str] = ()) -> str:
    """Lay out *rows* in columns as wide as what is in them; the last one is as long as it likes."""
    lines = [list(map(visible, row)) for row in ([head, *rows] if head else rows)]
    if not lines:
        return ""
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]) - 1)]
    return "".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]).rstrip() + "\n"
        for line in lines
    )


def bounded(lines: Sequence[str], limit: int, tail: Callable[[int], str]) -> list[str]:
    """The first *limit* of *lines*, and what *tail* says about the number of the others."""
    return [*lines[:limit], tail(len(lines) - limit)] if len(lines) > limit else list(lines)


def is_drawable(stream: TextIO | None) -> bool:
    """Whether *stream* is a terminal on which a line can be drawn anew."""
    return stream is not None and stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")


def has_colour(stream: TextIO | None) -> bool:
    """Whether text on *stream* may be coloured: on a terminal, or if FORCE_COLOR says so; never with NO_COLOR."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or is_drawable(stream)


def coloured(text: str, colour: int, stream: TextIO | None) -> str:
    """Put *text* in a colour (by its ANSI number) if *stream* takes it."""
    return f"\x1b[{colour}m{text}\x1b[0m" if has_colour(stream) else text


def columns_of(stream: TextIO | None) -> int:
    """How wide the terminal is that *stream* is, in cells."""
    try:
        return int(
            os.environ.get("COLUMNS") or os.get_terminal_size(stream.fileno() if stream is not None else -1).columns
        )
    except (OSError, ValueError, AttributeError):
        return 80
