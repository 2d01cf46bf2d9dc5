"""The standard output, reserved for data: the output of tools must not get into it."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import click

from dagrun.cli.terminal.text import SECRETS, printable, to_json


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
