"""A golden task that ``dagrun eval from`` makes of a recorded run, and carries out once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import click

from dagrun.cli.jobs.evaluate.eval_job import host_of, quiet_logs
from dagrun.cli.records.record_place import Records
from dagrun.cli.records.resume_command import label
from dagrun.cli.records.run_records import open_records
from dagrun.cli.setup.secrets import record_key
from dagrun.cli.setup.settings import Configuration, configure
from dagrun.cli.setup.tool_modules import load_toolbox, names_tools
from dagrun.cli.terminal.stdout import Data
from dagrun.cli.terminal.text import SCHEMA_VERSION, printable
from dagrun.cli.terminal.user_errors import FAILED, BadInput
from dagrun.errors import shorten, visible
from dagrun.evaluate.cases.evaluation import Evaluation, evaluate
from dagrun.evaluate.cases.recorded_case import playable_events, recorded_case
from dagrun.model.event import Event, RunEnded, RunStarted
from dagrun.model.python_plans.plan_text import as_yaml

_OPEN_LEVELS: Final = 3  # the file, its cases, and the fields of each
_MAX_MISSES: Final = 10
_NOT_APPLIED: Final = "A redact function of the program that ran it is not applied: check the file before you share it."


def make_case(configuration: Configuration, data: Data, run: str, flags: Mapping[str, Any]) -> int:
    """Make a case of a run, write it, play it, and return the exit code.

    Args:
        configuration: The settings that hold.
        data: Takes what is said of it; or the case, if no file is named.
        run: The run, as the user has typed it.
        flags: The flags of the command line.

    Raises:
        BadInput: There is no such run, its tools are not known, or the file cannot be written.
        CasesRefused: The run cannot become a case.
    """
    records = open_records(configuration)
    name = records.find(run)
    target = None if flags["output"] is None else _free(Path(flags["output"]), is_forced=flags["force"])
    recorded = _events(records, name)
    configuration = _with_tools(configuration, records, recorded, flags)
    toolbox = load_toolbox(configuration)
    case = recorded_case(name, recorded, toolbox, is_brief=True)
    if flags["case_id"] is not None:
        case = {**case, "id": flags["case_id"]}
    named = _named_tools(configuration, target)
    if _is_of_program(recorded):
        click.echo(_NOT_APPLIED, err=True)
    tree = {**({"tools": named} if named else {}), "cases": [case]}
    text = _head(name, recorded) + as_yaml(tree, open_levels=_OPEN_LEVELS)
    if target is None and flags["as_json"]:
        data.json({"schema_version": SCHEMA_VERSION, "case": tree})
    elif target is None:
        data.text(text.rstrip("\n"))
    if target is None:
        return 0
    _write(target, text)
    with quiet_logs(is_quiet=True):
        evaluation = evaluate([target], host=host_of(configuration))
    _report(data, target, case, evaluation, as_json=flags["as_json"])
    return 0 if evaluation.holds else FAILED


def _events(records: Records, name: str) -> list[Event]:
    lines = records.lines(name)
    if not lines:
        raise BadInput(f"run {name} was ended before its first record, so nothing is known of it")
    key = record_key()
    if key is None:
        return playable_events(name, lines)
    from dagrun.runtime.record.sealing import Sealer

    return playable_events(name, lines, Sealer(key, name).open)


# The tools ------------------------------------------------------------------------------------------------------------


def _with_tools(
    configuration: Configuration, records: Records, recorded: Sequence[Event], flags: Mapping[str, Any]
) -> Configuration:
    """Return the settings with the tools that the user named when the run began, if none are named now.

    Raises:
        BadInput: No tools are named, or others may have written the record that names some.
    """
    if names_tools(configuration):
        return configuration
    first = recorded[0]
    assert isinstance(first, RunStarted)
    labels: Mapping[str, Any] = {} if first.opening is None else first.opening.labels
    words, directory = label(labels, "again"), labels.get("directory")
    tools = [after for before, after in pairwise(words) if before == "--tools"]
    if not tools or not isinstance(directory, str) or "\0" in directory:
        raise BadInput("no tools are named, and the record names none: name those of the run by --tools")
    if not records.is_own:
        raise BadInput(
            f"others may have written the records in {records.where}, so no code that they name is imported; name the"
            f" tools: {' '.join(f'--tools {tool}' for tool in tools)}"
        )
    places = tuple(os.path.join(directory, tool) if _is_path(tool) else tool for tool in tools)
    return configure({**flags, "tools": places})


def _is_path(tool: str) -> bool:
    path = tool.partition(":")[0]
    return path.endswith(".py") or "/" in path or os.sep in path


def _named_tools(configuration: Configuration, target: Path | None) -> str | list[str]:
    """Return the tools as the file names them: files by their path from there; empty if some are of services."""
    settings = configuration.settings
    if settings.openapi or settings.mcp_files:
        return []
    folder, origin = (target.absolute().parent if target is not None else Path.cwd()), configuration.origins["tools"]
    named = [_from(folder, origin.folder, tool) if _is_path(tool) else tool for tool in settings.tools]
    return named[0] if len(named) == 1 else named


def _from(folder: Path, base: Path | None, tool: str) -> str:
    path, sign, name = tool.partition(":")
    whole = os.path.join(base or Path.cwd(), path)
    try:
        return os.path.relpath(whole, folder).replace(os.sep, "/") + sign + name
    except ValueError:  # on another drive
        return whole + sign + name


# The file -------------------------------------------------------------------------------------------------------------


def _free(path: Path, *, is_forced: bool) -> Path:
    if path.exists() and not is_forced:
        raise BadInput(f"{path} is there already; --force writes over it")
    if path.suffix not in (".yaml", ".yml"):
        raise BadInput(f"{path}: a file of cases is called .yaml")
    return path


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}") from error


def _head(name: str, recorded: Sequence[Event]) -> str:
    """Return the comment at the top of a file."""
    first, last = recorded[0], recorded[-1]
    assert isinstance(first, RunStarted)
    assert isinstance(last, RunEnded)
    began = datetime.fromtimestamp(first.wall_time, UTC)
    lines = [
        f"Run {name} of {began:%Y-%m-%d %H:%M} UTC, which ended {last.status}: {shorten(last.reason, 300)}",
        "Made by dagrun eval from. The world is what the run heard from its tools; expected is what came of it.",
        "Change what is expected to what should have come of it, and keep the case.",
    ]
    if _is_of_program(recorded):
        lines.append(_NOT_APPLIED)
    return "".join(f"# {visible(line)}\n" for line in lines)


def _is_of_program(recorded: Sequence[Event]) -> bool:
    """Whether a program of the user's own ran it: a run of the command line has no function that redacts."""
    opening = recorded[0].opening if isinstance(recorded[0], RunStarted) else None
    return opening is None or not label(opening.labels, "again")


def _report(data: Data, target: Path, case: Mapping[str, Any], evaluation: Evaluation, *, as_json: bool) -> None:
    (result,) = evaluation.files[0].cases
    if as_json:
        facts = {"file": str(target), "id": case["id"], "status": "ok" if evaluation.holds else "failed"}
        data.json({"schema_version": SCHEMA_VERSION, **facts, "misses": result.misses})
        return
    acts = sum(len(one) if isinstance(one, list) else 1 for one in case["world"].values())
    counts = [
        _count(acts, "act"),
        _count(len(case["world"]), "tool"),
        *([_count(len(case["planner"]), "reply", "replies") + " of the planner"] if "planner" in case else []),
    ]
    data.text(printable(f"{target}: {case['id']}, {', '.join(counts)}"))
    if evaluation.holds:
        data.text("it comes to the same as on record")
        click.echo(printable(f"carry it out: dagrun eval {target}"), err=True)
        return
    data.text("it does not come to the same as on record:")
    for miss in result.misses[:_MAX_MISSES]:
        data.text(printable(f"  {miss}"))


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or f'{one}s'}"
