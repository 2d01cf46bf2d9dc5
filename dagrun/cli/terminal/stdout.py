"""The standard output is for data: what tools print while they run must not get into it."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import click

from dagrun.cli.terminal.hidden_secrets import STATE
from dagrun.cli.terminal.text import printable, to_json


class Data:
    """Writes data to a stream. A reader who leaves (``| head``) is no error: what he would have got is dropped.

    Args:
        stream: Where data goes.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_closed = False
        self.fault = ""  # why nothing more can be written, if nobody left on purpose
        self._is_terminal = stream.isatty()

    def json(self, value: Any) -> None:
        """Write *value* as one JSON document over several lines."""
        self._write(to_json(value, indent=2) + "\n")

    def line(self, value: Any) -> None:
        """Write *value* as JSON on one line, at once."""
        self._write(to_json(value) + "\n")

    def text(self, text: str) -> None:
        """Write a text: unchanged into a file or a pipe; to a terminal, with its control characters escaped."""
        shown = printable(text) if self._is_terminal else text
        self._write(shown if shown.endswith("\n") else shown + "\n")

    def value(self, value: Any) -> None:
        """Write what a run answers: a text as it is, anything else as JSON."""
        if isinstance(value, str):
            self.text(value)
        else:
            self.json(value)

    def _write(self, text: str) -> None:
        if self.is_closed:
            return
        try:
            self._stream.write(STATE.hidden(text))
            self._stream.flush()
        except OSError as error:
            self.is_closed = True
            if not isinstance(error, BrokenPipeError):
                self.fault = f"cannot write to the standard output: {error.strerror}"
            self._forget()

    def _forget(self) -> None:
        # What is left in the buffer would be written, and fail again, when Python ends.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, self._stream.fileno())
        except (OSError, io.UnsupportedOperation):
            return
        finally:
            os.close(nowhere)


@contextmanager
def data_output() -> Iterator[Data]:
    """Keep the standard output for data alone, also from what C code and other processes print.

    Inside, everything that is written to the standard output by others goes to the standard error.
    """
    real = sys.stdout
    if real is None:  # it was closed before we were started
        with open(os.devnull, "w", encoding="utf-8") as nowhere:
            yield Data(nowhere)
        return
    if not _is_descriptor_1(real):
        yield Data(real)  # a test's, or a notebook's: there is nothing to turn round
        return
    real.flush()
    kept = os.dup(1)  # not inherited by other processes
    _send_1_to_2()
    with os.fdopen(kept, "w", encoding=real.encoding, errors="backslashreplace") as stream:
        data = Data(stream)
        try:
            yield data
        finally:
            real.flush()
            os.dup2(kept, 1)
        if data.fault:  # whoever reads on must not take half of it for all
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
