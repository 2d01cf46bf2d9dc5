"""The command that goes on with a run: complete, quoted for a shell, and good in whichever folder it is called."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dagrun.cli.setup.settings import PROVIDERS, Configuration, variable

_PATHS: Final = ("runs", "policy", "output")
_PLAIN: Final = ("max_running", "durability")
_MODEL: Final = ("model", "fast_model", "base_url", "api", "structure", "dialect", "max_output_tokens")
_MAX_TOKEN: Final = 2_000


def options_again(configuration: Configuration, planner: str | None, critics: Sequence[str]) -> list[str]:
    """The options that a run needs to go on: what the command line and the environment have said about it.

    What stands in a file of settings is found again, as the command begins in the same folder.

    Args:
        configuration: The settings that hold.
        planner: Who is asked; `None` for nobody.
        critics: Who looks at what steps give.
    """
    settings = configuration.settings
    given = ["-C", str(Path.cwd())]
    given += _pairs("--tools", settings.tools if _is_said(configuration, "tools") else ())
    given += _pairs("--secret", settings.secrets if _is_said(configuration, "secrets") else ())
    for name in (*_PATHS, *_PLAIN, *(_MODEL if planner is not None else ())):
        given += _setting(configuration, name)
    if settings.mode == "sequential" and settings.max_running != 1:
        given += ["--max-running", "1"]  # that is how it is on record
    return given + _pairs("--planner", () if planner is None else (planner,)) + _pairs("--critic", critics)


def where_is(configuration: Configuration) -> list[str]:
    """The options that lead to the records, if they are not where they always are."""
    return _setting(configuration, "runs")


def _setting(configuration: Configuration, name: str) -> list[str]:
    value = configuration.path(name) if name in _PATHS else getattr(configuration.settings, name)
    if value is None or not _is_said(configuration, name):
        return []
    if name == "max_running" and configuration.settings.mode == "sequential":
        return []
    return [f"--{name.replace('_', '-')}", os.path.abspath(value) if name in _PATHS else str(value)]


def _is_said(configuration: Configuration, name: str) -> bool:
    """Whether a setting comes from the command line or the environment, and would be lost."""
    return configuration.origins[name].name in {"command line", variable(name), *PROVIDERS.values()}


def _pairs(option: str, values: Sequence[str]) -> list[str]:
    return [part for value in values for part in (option, value)]


def command_again(verb: str, run_id: str, options: Sequence[str]) -> list[str]:
    """The whole command, word by word."""
    named = os.environ.get("DAGRUN_CONFIG")
    settings = ["env", f"DAGRUN_CONFIG={os.path.abspath(named)}"] if named else []
    return [*settings, "dagrun", verb, run_id, *options]


def quoted(words: Sequence[str]) -> str:
    """The command as one line for a shell."""
    return shlex.join(words)


def labels_of(arguments: Sequence[str], configuration: Configuration, again: Sequence[str]) -> dict[str, Any]:
    """What is kept with a run, so that it can be named later, also after its process was killed.

    Args:
        arguments: The command line; the values of inputs are left out, as the record has them.
        configuration: The settings that hold.
        again: The options to go on with.
    """
    output = configuration.path("output")
    return {
        "command": [_text(word) for word in _without_values(arguments)],
        "directory": _text(str(Path.cwd())),
        "output": None if output is None else _text(os.path.abspath(output)),
        "again": [_text(word) for word in again],
    }


def _without_values(arguments: Sequence[str]) -> Iterator[str]:
    is_input = False
    for word in arguments:
        for option in ("--input=", "--input", "-i"):
            if word.startswith(option) and word != option:
                yield f"{option}{word[len(option) :].partition('=')[0]}=…"
                break
        else:
            yield f"{word.partition('=')[0]}=…" if is_input else word
        is_input = word in {"--input", "-i"}


def _text(word: str) -> str:
    """*word* as JSON can hold it: file names may be any bytes."""
    return word[:_MAX_TOKEN].encode("utf-8", "backslashreplace").decode()


def label(labels: Mapping[str, Any], name: str) -> list[str]:
    """A label that is a list of words; what else may stand there was not written by us, and is none."""
    found = labels.get(name)
    return found if isinstance(found, list) and all(isinstance(word, str) for word in found) else []


def output_of(labels: Mapping[str, Any]) -> Path | None:
    """The folder that a run leaves its files in, if that is not its record's; only ever to be compared, or read."""
    found = labels.get("output")
    return Path(found) if isinstance(found, str) and found and "\0" not in found else None
