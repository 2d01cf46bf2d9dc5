"""A golden task that ``dagrun eval from`` makes of a recorded run, and carries out once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import click

from dagrun import Event
from dagrun.cli.jobs.case_runs import host_of, quiet_logs
from dagrun.cli.records.resume_command import as_recorded, label, quoted, tools_again
from dagrun.cli.records.run_store import RunStore, open_runs
from dagrun.cli.setup.secrets import record_key
from dagrun.cli.setup.settings import Configuration
from dagrun.cli.setup.tool_modules import names_tools
from dagrun.cli.terminal.text import SCHEMA_VERSION, Data, printable
from dagrun.cli.terminal.user_errors import FAILED, BadInput
from dagrun.errors import CasesRefused, shorten, visible
from dagrun.evaluate.cases.evaluation import Evaluation, evaluate
from dagrun.evaluate.cases.recorded_case import playable_events, recorded_case
from dagrun.kernel.model.event import RunEnded, RunStarted
from dagrun.plans.plan_text import as_yaml

_OPEN_LEVELS: Final = 3  # the file, its cases, and the fields of each
_MAX_MISSES: Final = 10
_TOOL_OPTIONS: Final = frozenset(("--tools", "--openapi", "--include", "--openapi-url", "--mcp", "--mcp-pins"))
_LONG: Final = "The answer is too long to be expected word for word: only its schema is, which says its kind and size."
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
    records = open_runs(configuration)
    name = records.find(run)
    shown = None if flags["output"] is None else _free(Path(flags["output"]), is_forced=flags["force"])
    here, target = Path.cwd(), None if shown is None else shown.absolute()
    recorded = _events(records, name)
    configuration, flags = _with_tools(configuration, records, name, recorded, flags)
    case = recorded_case(name, recorded)
    if flags["case_id"] is not None:
        case = {**case, "id": flags["case_id"]}
    named = _named_tools(configuration, here if target is None else target.parent)
    notes = [_LONG] if "schema" in case["expect"] else []  # no other case of a run has one
    notes += [_NOT_APPLIED] if _is_of_program(recorded) else []
    for note in notes:
        click.echo(note, err=True)
    tree = {**({"tools": named[0] if len(named) == 1 else named} if named else {}), "cases": [case]}
    text = _head(name, recorded, notes) + as_yaml(tree, open_levels=_OPEN_LEVELS)
    if shown is None or target is None:
        if flags["as_json"]:
            data.json({"schema_version": SCHEMA_VERSION, "case": tree})
        else:
            data.text(text.rstrip("\n"))
        return 0
    evaluation = _carried_out(target, text, configuration)
    _report(data, shown, case, evaluation, as_json=flags["as_json"])
    if not flags["as_json"]:
        words = _arguments_of_eval(configuration, flags, shown, target, named, is_elsewhere=Path.cwd() != here)
        told = f"carry it out: {quoted(['dagrun', 'eval', *words])}"
        kept = f"{shown} is there to be changed; dagrun eval from writes over it with --force"
        click.echo(printable(told if evaluation.holds else kept), err=True)
    return 0 if evaluation.holds else FAILED


def _arguments_of_eval(
    configuration: Configuration,
    flags: Mapping[str, Any],
    shown: Path,
    target: Path,
    named: Sequence[str],
    *,
    is_elsewhere: bool,
) -> list[str]:
    """Return the arguments of the command that runs the file: the tools that it cannot name, and their folder."""
    options = [] if named else tools_again(configuration, flags)
    if options or (is_elsewhere and not (named and all(_is_path(tool) for tool in named))):
        return [str(target), "-C", str(Path.cwd()), *options]
    return [str(shown)]


def _events(records: RunStore, name: str) -> list[Event]:
    lines = records.lines(name)
    if not lines:
        raise BadInput(f"run {name} was ended before its first record, so nothing is known of it")
    key = record_key()
    if key is None:
        return playable_events(name, lines)
    from dagrun.features.redacted_records.sealing import Sealer

    return playable_events(name, lines, Sealer(key, name).open)


# The tools ------------------------------------------------------------------------------------------------------------


def _with_tools(
    configuration: Configuration, records: RunStore, name: str, recorded: Sequence[Event], flags: Mapping[str, Any]
) -> tuple[Configuration, Mapping[str, Any]]:
    """Return the settings with the tools that the run was begun with, if none are named now; and the flags for them.

    Raises:
        BadInput: No tools are named, or others may have written the record that names some.
    """
    if names_tools(configuration):
        return configuration, flags
    first = recorded[0]
    assert isinstance(first, RunStarted)
    labels: Mapping[str, Any] = {} if first.opening is None else first.opening.labels
    found = as_recorded(flags, records, name, labels, lambda again: quoted(_of_tools(again)))
    if found is None or not names_tools(found[0]):
        raise BadInput("no tools are named, and the record names none: name those of the run by --tools")
    return found


def _of_tools(words: Sequence[str]) -> list[str]:
    """Return those options of a command that name tools."""
    return [word for option, value in pairwise(words) if option in _TOOL_OPTIONS for word in (option, value)]


def _is_path(tool: str) -> bool:
    path = tool.partition(":")[0]
    return path.endswith(".py") or "/" in path or os.sep in path


def _named_tools(configuration: Configuration, folder: Path) -> list[str]:
    """Return the tools as the file names them: files by their path from there; empty if some are of services."""
    settings = configuration.settings
    if settings.openapi or settings.mcp_files:
        return []
    base = configuration.origins["tools"].folder
    return [_from(folder, base, tool) if _is_path(tool) else tool for tool in settings.tools]


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


def _carried_out(target: Path, text: str, configuration: Configuration) -> Evaluation:
    """Carry a case out, and put it into its file then; there is no file of a case that cannot be used.

    Raises:
        BadInput: The file cannot be written.
        CasesRefused: The case cannot be used.
    """
    draft = target.with_name(f".{os.getpid()}-{target.name}")  # beside it: the tools are named by their path from there
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(text, encoding="utf-8")
        with quiet_logs(is_quiet=True):
            evaluation = evaluate([draft], host=host_of(configuration))
        draft.replace(target)
    except CasesRefused as error:
        raise CasesRefused([fault.replace(str(draft), str(target)) for fault in error.faults]) from error
    except OSError as error:
        raise BadInput(f"cannot write {target}: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)
    return evaluation


def _head(name: str, recorded: Sequence[Event], notes: Sequence[str]) -> str:
    """Return the comment at the top of a file."""
    first, last = recorded[0], recorded[-1]
    assert isinstance(first, RunStarted)
    assert isinstance(last, RunEnded)
    began = datetime.fromtimestamp(first.wall_time, UTC)
    lines = [
        f"Run {name} of {began:%Y-%m-%d %H:%M} UTC, which ended {last.status}: {shorten(last.reason, 300)}",
        "Made by dagrun eval from. The world is what the run heard from its tools; expected is what came of it.",
        "Change what is expected to what should have come of it, and keep the case.",
        *notes,
    ]
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
        return
    data.text("it does not come to the same as on record:")
    for miss in result.misses[:_MAX_MISSES]:
        data.text(printable(f"  {miss}"))


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or f'{one}s'}"
