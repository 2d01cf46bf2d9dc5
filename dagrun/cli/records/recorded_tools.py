"""The tools that a recorded run was begun with, for a command on that run which names none."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import click

from dagrun.cli.records.record_place import Records
from dagrun.cli.records.resume_command import label
from dagrun.cli.setup.settings import Configuration, configure
from dagrun.cli.terminal.user_errors import BadInput

_PATHS = ("policy", "output", "runs", "mcp_pins", "artifacts")


def as_recorded(
    flags: Mapping[str, Any],
    records: Records,
    name: str,
    labels: Mapping[str, Any],
    command: Callable[[Sequence[str]], str],
) -> tuple[Configuration, Mapping[str, Any]] | None:
    """Return the settings with the tools on record, which the user named when the run began; and the flags for them.

    From here on, the command works in the folder where the run began, as the command does that a run prints for its
    resumption. Tools that the settings of a project have named are named by them again, and need the user's trust.

    Args:
        flags: The flags of the command line.
        records: The records.
        name: The run.
        labels: What its record says of its command.
        command: Makes the command to type, of the options of that command.

    Returns:
        `None` if no tools are on record.

    Raises:
        BadInput: Others may have written the record, or that folder is gone; the error has the command to type.
    """
    again, directory = label(labels, "again"), labels.get("directory")
    named = {name: _after(again, f"--{name.replace('_', '-')}") for name in ("tools", "openapi", "include")}
    named["mcp_files"] = _after(again, "--mcp")
    url, pins = (next(iter(_after(again, option)), None) for option in ("--openapi-url", "--mcp-pins"))
    if not isinstance(directory, str) or "\0" in directory or not (any(named.values()) or directory != os.getcwd()):
        return None
    if not records.is_own:
        raise BadInput(
            f"others may have written the records in {records.where}, so no code that they name is imported; name"
            f" the tools: {command(again)}"
        )
    absolute = _absolute(flags)
    try:
        click.get_current_context().with_resource(contextlib.chdir(directory))
    except OSError as error:
        raise BadInput(f"run {name} was started in {directory}: {error.strerror}; name its tools by --tools") from error
    whole = {**absolute, **named, "openapi_url": url, "mcp_pins": flags.get("mcp_pins") or pins}
    return configure(whole), whole


def _after(words: Sequence[str], option: str) -> tuple[str, ...]:
    """Return the words that stand after an option."""
    return tuple(word for before, word in pairwise(words) if before == option)


def _absolute(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return *flags* with paths that hold in every folder."""
    paths = {name: os.path.abspath(flags[name]) for name in _PATHS if flags.get(name)}
    secrets = tuple(_absolute_secret(text) for text in flags.get("secrets", ()))
    return {**flags, **paths, "secrets": secrets}


def _absolute_secret(text: str) -> str:
    name, sign, path = text.partition("=file:")
    return f"{name}{sign}{os.path.abspath(path)}" if sign else text
