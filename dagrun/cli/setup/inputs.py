"""Inputs of a run from the option ``--input name=value``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import ValueRefused, shorten
from dagrun.model.toolbox import hint
from dagrun.model.value import MAX_ARGUMENT_BYTES, encode

# Of a file, and of all inputs: the policy is asked when the run is started.
_LIMIT: Final = MAX_ARGUMENT_BYTES


def read_inputs(given: Sequence[str]) -> dict[str, Any]:
    """Return inputs by name, from texts of the form ``name=value``.

    A value that is JSON is read as JSON, any other as a text. ``@file`` stands for the contents of a file, and ``@@``
    begins a text that begins with ``@``.

    Raises:
        BadInput: Inputs cannot be used; the error has a line for each.
    """
    inputs: dict[str, Any] = {}
    faults: list[str] = []
    for text in given:
        name, sign, value = text.partition("=")
        if not sign or not name:
            faults.append(f"--input {shorten(text, 80)!r} has not the form name=value")
        elif name in inputs:
            faults.append(f"--input {shorten(name, 80)} is given twice")
        else:
            try:
                inputs[name] = _value(value)
            except (ValueRefused, OSError, UnicodeDecodeError) as error:
                faults.append(f"--input {shorten(name, 80)}: {_reason(error)}")
    if faults:
        raise BadInput(*faults)
    return _fitting(inputs)


def _fitting(inputs: dict[str, Any]) -> dict[str, Any]:
    try:
        encode(inputs, _LIMIT)
    except ValueRefused as error:
        raise BadInput(f"--input: all of them together: {error}") from None
    return inputs


def _value(text: str) -> Any:
    if text.startswith("@@"):
        return text[1:]
    if text.startswith("@"):
        text = _read(Path(text[1:]))
    try:
        value = json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueRefused("it is nested too deeply") from None
    except ValueError:  # not JSON, so a text: paths and names need no quotes
        value = text
    encode(value, _LIMIT)
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _read(path: Path) -> str:
    with path.open("rb") as file:
        data = file.read(_LIMIT + 1)
    if len(data) > _LIMIT:
        raise ValueRefused(f"{path} has more than {_LIMIT} bytes")
    return data.decode("utf-8-sig")


def _reason(error: Exception) -> str:
    match error:
        case OSError():
            return f"cannot read {error.filename}: {error.strerror}{_neighbour(str(error.filename))}"
        case UnicodeDecodeError():
            return f"the file is not text: byte {error.start} is not UTF-8"
        case _:
            return str(error)


def _neighbour(name: str) -> str:
    folder = Path(name).parent
    try:
        return hint(Path(name).name, [entry.name for entry in folder.iterdir()])
    except OSError:
        return ""
