"""Texts for terminals, escaped and without the secrets of the command; and the standard output, reserved for data."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from dagrun.errors import visible

if TYPE_CHECKING:
    from dagrun import Secrets


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


def terminal_of(stream: TextIO | None) -> int | None:
    """Return the descriptor of a stream, if it is a terminal that the event loop can wait for; otherwise `None`."""
    if sys.platform == "win32" or stream is None or stream.closed:
        return None
    try:
        return stream.fileno() if stream.isatty() else None
    except (OSError, ValueError, AttributeError):
        return None


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
        from dagrun.kernel.model.redaction.redactor import Redactor
        from dagrun.kernel.model.secrets import NO_SECRETS

        return Redactor(self.secrets or NO_SECRETS).text(text)

    def forget(self) -> None:
        """Forget the secrets at the end of the command."""
        self.secrets = None
        sys.excepthook = sys.__excepthook__


SECRETS: Final = _HiddenSecrets()


class Data:
    """Writes data to a stream. If the reader closes its end (``| head``), the rest is dropped without an error.

    Args:
        stream: Takes the data.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_closed = False
        self.fault = ""  # why nothing more can be written; empty if the reader has closed its end
        self._is_terminal = stream.isatty()

    def json(self, value: Any) -> None:
        """Write *value* as a JSON document of several lines."""
        self._write(to_json(value, indent=2) + "\n")

    def line(self, value: Any) -> None:
        """Write *value* as JSON on one line, without buffering."""
        self._write(to_json(value) + "\n")

    def text(self, text: str) -> None:
        """Write a text: unchanged to a file or a pipe, escaped to a terminal."""
        shown = printable(text) if self._is_terminal else text
        self._write(shown if shown.endswith("\n") else shown + "\n")

    def value(self, value: Any) -> None:
        """Write the answer of a run: a text unchanged, anything else as JSON."""
        if isinstance(value, str):
            self.text(value)
        else:
            self.json(value)

    def _write(self, text: str) -> None:
        if self.is_closed:
            return
        try:
            self._stream.write(SECRETS.hide(text))
            self._stream.flush()
        except OSError as error:
            self.is_closed = True
            if not isinstance(error, BrokenPipeError):
                self.fault = f"cannot write to the standard output: {error.strerror}"
            self._forget()

    def _forget(self) -> None:
        # At its end, Python would write the rest of the buffer, and fail again; so the stream goes to the null device.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, self._stream.fileno())
        except (OSError, io.UnsupportedOperation):
            return
        finally:
            os.close(nowhere)


@contextmanager
def data_output() -> Iterator[Data]:
    """Reserve the standard output for data.

    Inside, whatever others write to the standard output, C code and other processes included, goes to the standard
    error.
    """
    real = sys.stdout
    if real is None:  # it was closed before the process started
        with open(os.devnull, "w", encoding="utf-8") as nowhere:
            yield Data(nowhere)
        return
    if not _is_descriptor_1(real):
        yield Data(real)  # the stream of a test or a notebook: there is nothing to redirect
        return
    real.flush()
    original = os.dup(1)  # other processes do not inherit it
    _send_1_to_2()
    with os.fdopen(original, "w", encoding=real.encoding, errors="backslashreplace") as stream:
        data = Data(stream)
        try:
            yield data
        finally:
            real.flush()
            os.dup2(original, 1)
        if data.fault:  # the caller must not take a part of the data for all of it
            raise click.ClickException(data.fault)


def _is_descriptor_1(stream: TextIO) -> bool:
    try:
        return stream.fileno() == 1
    except (OSError, ValueError):
        return False


def _send_1_to_2() -> None:
    try:
        os.dup2(2, 1)
    except OSError:  # there is no standard error
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
