"""The commands that resume, retry or answer a run: made for people to copy, and read from its record."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from dagrun.cli.records.run_store import RunStore
from dagrun.cli.setup.settings import PROVIDERS, Configuration, configure, variable
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.journal.base import without_password

if TYPE_CHECKING:
    from dagrun import Question


_PATHS: Final = ("runs", "policy", "output", "mcp_pins", "artifacts")
_PLAIN: Final = ("journal", "max_running", "durability", "deps")
_MODEL: Final = ("model", "fast_model", "base_url", "api", "structure", "dialect", "max_output_tokens")
_MAX_TOKEN: Final = 2_000  # characters


def options_again(configuration: Configuration, planner: str | None, flags: Mapping[str, Any]) -> list[str]:
    """Return the options to resume a run: the settings from the command line and the environment.

    Settings from files need no option: the command starts in the same folder, and finds them again.

    Args:
        configuration: The settings that hold.
        planner: The name of the planner; `None` for no planner.
        flags: The flags of the command line: ``critics``, ``compose``, and the options of services.
    """
    settings = configuration.settings
    options = ["-C", str(Path.cwd()), *tools_again(configuration, flags)]
    options += _pairs("--secret", settings.secrets if _is_lost(configuration, "secrets") else ())
    others = [name for name in _PATHS if name != "mcp_pins"]  # those are with the tools
    for name in (*others, *_PLAIN, *(_MODEL if planner is not None else ())):
        options += _setting(configuration, name)
    if settings.mode == "sequential" and settings.max_running != 1:
        options += ["--max-running", "1"]  # the recorded policy of a sequential run
    compose = flags["compose"]
    if compose == "model" and planner is None:  # else they are there already
        options += [part for name in _MODEL for part in _setting(configuration, name)]
    options += _pairs("--planner", () if planner is None else (planner,)) + _pairs("--critic", flags["critics"])
    return options + _pairs("--compose", () if compose is None else (compose,))


def tools_again(configuration: Configuration, flags: Mapping[str, Any]) -> list[str]:
    """Return the options that name the tools, for a command in this folder."""
    settings = configuration.settings
    options = _pairs("--tools", settings.tools if _is_lost(configuration, "tools") else ())
    options += _services(flags) if _is_lost(configuration, "openapi") else []
    options += _pairs("--mcp", settings.mcp_files if _is_lost(configuration, "mcp_files") else ())
    return options + _setting(configuration, "mcp_pins")


def _services(flags: Mapping[str, Any]) -> list[str]:
    url = flags.get("openapi_url")
    return [
        *_pairs("--openapi", flags.get("openapi", ())),
        *_pairs("--include", flags.get("include", ())),
        *_pairs("--openapi-url", (url,) if url else ()),
    ]


def where_is(configuration: Configuration) -> list[str]:
    """Return the options that lead to the records, if they are not in the default folder."""
    return _setting(configuration, "runs") + _setting(configuration, "journal")


def _setting(configuration: Configuration, name: str) -> list[str]:
    value = configuration.path(name) if name in _PATHS else getattr(configuration.settings, name)
    if value is None or not _is_lost(configuration, name):
        return []
    if name == "max_running" and configuration.settings.mode == "sequential":
        return []
    text = os.path.abspath(value) if name in _PATHS else without_password(str(value))
    return [f"--{name.replace('_', '-')}", text]


def _is_lost(configuration: Configuration, name: str) -> bool:
    """Whether a setting comes from the command line or the environment, and would be lost without an option."""
    return configuration.origins[name].name in {"command line", variable(name), *PROVIDERS.values()}


def _pairs(option: str, values: Sequence[str]) -> list[str]:
    return [part for value in values for part in (option, value)]


def command_again(verb: str, run_id: str, options: Sequence[str]) -> list[str]:
    """Return the whole command, as a list of words."""
    named = os.environ.get("DAGRUN_CONFIG")
    settings = ["env", f"DAGRUN_CONFIG={os.path.abspath(named)}"] if named else []
    return [*settings, "dagrun", verb, run_id, *options]


def quoted(words: Sequence[str]) -> str:
    """Return a command as one line for a shell."""
    return shlex.join(words)


def labels_of(arguments: Sequence[str], configuration: Configuration, again: Sequence[str]) -> dict[str, Any]:
    """Return the labels of a run: they name its command later, also after its process was killed.

    Args:
        arguments: The command line. The values of inputs are left out, as the record has them.
        configuration: The settings that hold.
        again: The options to resume the run.
    """
    output = configuration.path("output")
    return {
        "command": [_text(without_password(word)) for word in _without_values(arguments)],
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
    """Return *word* as JSON can hold it: file names may be any bytes."""
    return word[:_MAX_TOKEN].encode("utf-8", "backslashreplace").decode()


def label(labels: Mapping[str, Any], name: str) -> list[str]:
    """Return a label that is a list of words; an empty list if it is anything else, as others may have written it."""
    value = labels.get(name)
    return value if isinstance(value, list) and all(isinstance(word, str) for word in value) else []


def output_of(labels: Mapping[str, Any]) -> Path | None:
    """Return the output folder of a run, if it has one. Never write there: others may have written the label."""
    value = labels.get("output")
    return Path(value) if isinstance(value, str) and value and "\0" not in value else None


def answer_command(run_id: str, question: Question, where: Iterable[str] = ()) -> str:
    """Return the shell command that answers *question*."""
    from dagrun import Asked

    about = question.step or question.id
    if question.kind not in (Asked.INPUT, Asked.EFFECT):
        return quoted(["dagrun", "answer", run_id, about, *where])
    # Both are placeholders, and harmless if they are pasted into a shell; "took_effect|did_not" would not be.
    value = "VALUE" if question.kind is Asked.INPUT else "took_effect/did_not/unknown"
    return quoted(["dagrun", "answer", run_id, about]) + f" {value}" + "".join(f" {quoted([w])}" for w in where)


def waits_for(questions: Mapping[str, Question] | Iterable[Question]) -> list[str]:
    """Return the steps of the open questions, or the texts of questions without a step."""
    listed = questions.values() if isinstance(questions, Mapping) else questions
    return list(dict.fromkeys(question.step or question.text for question in listed))


def as_recorded(
    flags: Mapping[str, Any],
    records: RunStore,
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
        labels: The facts of its command on record.
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
