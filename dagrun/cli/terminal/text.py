"""Texts for terminals: escaped, laid out, coloured, and without the secrets of the command."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TextIO

from dagrun.errors import visible

if TYPE_CHECKING:
    from dagrun.model.secrets.secret import Secrets

SCHEMA_VERSION: Final = 1  # the version of all JSON that is printed


def printable(text: str) -> str:
    """Escape invisible characters, and those that steer a terminal; keep line ends and tabs."""
    return visible(text, keep="\n\t")


def to_json(value: Any, *, indent: int | None = None) -> str:
    """Return *value* as JSON that is safe to show: characters that could steer a terminal are escaped."""
    separators = (",", ":") if indent is None else None
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent, separators=separators)
    # Outside of strings, JSON has only printable ASCII and line ends.
    return text if text.isascii() and "\x7f" not in text else _UNPRINTABLE.sub(_json_escape, text)


_UNPRINTABLE: Final = re.compile(r"[^\x20-\x7e\n]")


def _json_escape(match: re.Match[str]) -> str:
    char = match.group()
    return char if visible(char) == char else json.dumps(char)[1:-1]


def columns(rows: Sequence[Sequence[str]], head: Sequence[str] = ()) -> str:
    """Lay out *rows* in columns that are as wide as their widest cell; the last column is not limited."""
    lines = [list(map(visible, row)) for row in ([head, *rows] if head else rows)]
    if not lines:
        return ""
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]) - 1)]
    return "".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]).rstrip() + "\n"
        for line in lines
    )


def bounded(lines: Sequence[str], limit: int, tail: Callable[[int], str]) -> list[str]:
    """Return the first *limit* of *lines*, and, if there are more, the line that *tail* makes of their number."""
    return [*lines[:limit], tail(len(lines) - limit)] if len(lines) > limit else list(lines)


def is_drawable(stream: TextIO | None) -> bool:
    """Whether *stream* is a terminal that can redraw a line."""
    return stream is not None and stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")


def is_ascii(stream: TextIO | None) -> bool:
    """Whether *stream* is limited to ASCII, without box-drawing characters."""
    return not str(getattr(stream, "encoding", "")).lower().startswith("utf")


def has_colour(stream: TextIO | None) -> bool:
    """Whether text on *stream* may be coloured: on a terminal, or if FORCE_COLOR is set; never if NO_COLOR is set."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or is_drawable(stream)


def coloured(text: str, colour: int, stream: TextIO | None) -> str:
    """Return *text* in a colour (an ANSI number), if text on *stream* may be coloured."""
    return f"\x1b[{colour}m{text}\x1b[0m" if has_colour(stream) else text


def columns_of(stream: TextIO | None) -> int:
    """Return the width of the terminal behind *stream*, in cells; 80 if it is not known."""
    try:
        return int(
            os.environ.get("COLUMNS") or os.get_terminal_size(stream.fileno() if stream is not None else -1).columns
        )
    except (OSError, ValueError, AttributeError):
        return 80


class _HiddenSecrets:
    """The secrets of the command, for everything that writes. A process runs one command, so there is one of these.

    Attributes:
        secrets: The secrets; `None` as long as the command has none.
    """

    def __init__(self) -> None:
        self.secrets: Secrets | None = None

    def hide(self, text: str) -> str:
        """Return *text* without the values of the secrets."""
        return text if self.secrets is None else self.secrets.replaced_in(text)

    def clean(self, text: str) -> str:
        """Return *text*, which a tool has printed or logged, without the secrets and whatever looks like one."""
        from dagrun.model.redaction.redactor import Redactor
        from dagrun.model.secrets.secret import NO_SECRETS

        return Redactor(self.secrets or NO_SECRETS).text(text)

    def forget(self) -> None:
        """Forget the secrets at the end of the command."""
        self.secrets = None
        sys.excepthook = sys.__excepthook__


SECRETS: Final = _HiddenSecrets()
