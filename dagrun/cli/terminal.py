"""What the terminal is like, without loading rich for it."""

from __future__ import annotations

import os
from typing import TextIO


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
