"""Write the pages of docs/reference that are made of the code: commands, problems, plans, settings, events, exit codes.

The drawing of the transitions of a step in docs/explanation/states.md is made here, too.

    python docs/make/make_reference.py [--check]

``--check`` writes nothing, and fails if a page is not what would be written; a test does so, too. Change the code, not
the pages. Pages of the public API are not made here: the site shows the docstrings there.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields as fields_of
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

import dagrun
from dagrun import Event, State, Status
from dagrun.cli.command_table import COMMANDS, LazyCommand
from dagrun.cli.setup.setting_fields import Settings
from dagrun.cli.setup.settings import _PARSERS, variable
from dagrun.cli.terminal.user_errors import REFUSED, USAGE
from dagrun.kernel.graph.changes import OTHER_TRANSITIONS, STEP_TRANSITIONS
from dagrun.kernel.model.outcome import SETTLED
from dagrun.observe.view.shape import view_schema
from dagrun.problem_texts import SENTENCES

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "docs" / "reference"
STATES: Final = "../explanation/states.md"
BEGIN: Final = "<!-- drawn by `make reference`; change the tables in the code, not this -->"
END: Final = "<!-- end of the drawing -->"
NOTE: Final = "<!-- made by `make reference`; change the code, not this page -->"

GOALS: Final = ("do", "plan")
WAITING: Final = ("resume", "retry", "answer")
QUEUED: Final = ("submit", "worker")
STOPPING: Final = ("stop",)
RECORDS: Final = ("runs", "serve", "inspect", "report", "prune")
MEASURING: Final = ("metrics", "learn")
MCP: Final = ("mcp",)
JUDGING: Final = ("eval", "compare")
TRYING: Final = ("sim", "bench")
SCHEMAS: Final = ("schema",)
SETUP: Final = ("new", "tools", "config", "completion")


def pages() -> dict[str, str]:
    """Return the text of every page by its file name."""
    others = {*GOALS, *WAITING, *QUEUED, *STOPPING, *RECORDS, *MEASURING, *JUDGING, *TRYING, *MCP, *SCHEMAS, *SETUP}
    rest = [name for name in COMMANDS if name not in others]
    return {
        "cli-plans.md": _commands("Commands that check, show and run plans", rest),
        "cli-goals.md": _commands("Commands that plan for a goal", GOALS),
        "cli-resume.md": _commands("Commands that answer and resume runs", WAITING),
        "cli-workers.md": _commands("Commands that leave runs to workers", QUEUED),
        "cli-stop.md": _commands("Commands that stop runs", STOPPING),
        "cli-records.md": _commands("Commands that look at recorded runs", RECORDS),
        "cli-metrics.md": _commands("Commands that measure recorded runs, and learn from them", MEASURING),
        "cli-evaluate.md": _commands("Commands that carry out golden tasks", JUDGING),
        "cli-simulate.md": _commands("Commands that try plans out", TRYING),
        "cli-mcp.md": _commands("Commands for the Model Context Protocol", MCP),
        "cli-schema.md": _commands("Commands that print schemas", SCHEMAS),
        "cli-setup.md": _commands("Commands for tools, settings and new projects", SETUP),
        "problems.md": _problems(),
        "plan-format.md": _plan_format(),
        "policy.md": _policy(),
        "settings.md": _settings(),
        "events.md": _events(),
        "view.md": _view(),
        "exit-codes.md": _exit_codes(),
        STATES: _states(),
    }


# Commands ------------------------------------------------------------------------------------------------------------


def _commands(title: str, names: Iterable[str]) -> str:
    text = (
        "`--help-all` says the same, `--help` the usual part. Answers go to the standard output, everything else to the"
        " standard error."
    )
    parts = [f"# {title}", NOTE, text]
    for name in names:
        parts += _command(LazyCommand(name, *COMMANDS[name]).load(), f"dagrun {name}", "##")
    return _joined(parts)


def _command(command: click.Command, path: str, mark: str) -> Iterator[str]:
    context = click.Context(command, info_name=path, max_content_width=100)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    yield f"{mark} {path}"
    yield f"`{usage}`"
    yield from _paragraphs(command.help or "")
    records = [record for param in command.get_params(context) if (record := param.get_help_record(context))]
    rows = [(f"`{_code(names)}`", _cell(text)) for names, text in records if text and "--help" not in names]
    if rows:
        yield _table(("option", "meaning"), rows)
    yield from _paragraphs(command.epilog or "")
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            part = command.get_command(context, name)
            if part is not None:
                yield from _command(part.load() if isinstance(part, LazyCommand) else part, f"{path} {name}", "###")


def _paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text; what click must not wrap (after a backspace) becomes a block of text."""
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text).split("\f")[0]):
        lines = paragraph.strip().splitlines()
        if lines and lines[0] == "\b":
            yield "\n".join(["```text", *lines[1:], "```"])
        elif lines:
            yield "\n".join(lines)


# Problems ------------------------------------------------------------------------------------------------------------

KINDS: Final[Mapping[str, str]] = {
    "DR0": "Reading: the text of a plan, before there is a plan",
    "DR1": "Structure: steps and their dependencies",
    "DR2": "Tools and their arguments",
    "DR3": "References and conditions",
    "DR4": "Patches: edits of a plan that is running",
    "DR5": "The trust boundary",
    "DR8": "Tools: what `dagrun tools --check` finds",
    "DR9": "Advice: the plan runs anyway",
}


def _problems() -> str:
    parts = [
        "# Problem codes",
        NOTE,
        "`dagrun check`, `dagrun.check` and `PlanRefused.problems` name every problem of a plan or a patch at once, "
        "each with a code, a place (`steps[2].args.rows`) and a sentence. A code keeps its meaning from release to "
        "release; the words in braces are filled in. Planners get the same sentences.",
    ]
    for kind, title in KINDS.items():
        rows = [
            (f"`{code}`", _cell(text).replace("{{", "{").replace("}}", "}"))
            for code, text in SENTENCES.items()
            if code.startswith(kind)
        ]
        parts += [f"## {title}", _table(("code", "sentence"), rows)]
    return _joined(parts)


# Fields --------------------------------------------------------------------------------------------------------------


def _plan_format() -> str:
    parts = [
        "# The format of plans",
        NOTE,
        "A plan is one object, as JSON, as YAML, or as `dagrun.Plan`. `dagrun schema` prints its JSON Schema. "
        '`"${load}"` refers to the output of the step `load`, `"${load.rows[0]}"` for a part of it, `"${input.path}"` '
        'for an input of the run; inside a longer text, a reference stands for its text. The object `{"$step": "load", '
        '"path": "rows[0]"}` says the same, with a path that may be a list: `["rows", 0]`. `$${` writes a literal `${`,'
        ' and the key `"$$step"` a literal `"$step"`.',
    ]
    for model in (dagrun.Plan, dagrun.Step, dagrun.RetryRule):
        parts += [
            f"## {model.__name__}",
            _first_sentences(model),
            _fields(model, lambda field: field.description or ""),
        ]
    parts += ["## Condition", _first_sentences(dagrun.Condition), "```json"]
    parts[-1] += (
        '\n{"all": [{"ref": "clean.rows", "op": ">", "value": 0}, {"not": {"ref": "input.dry_run", "op": "==", '
        '"value": true}}]}\n```'
    )
    operators = dagrun.Condition.model_json_schema()["$defs"]["Condition"]["properties"]["op"]["anyOf"][0]["enum"]
    parts.append("The operators are " + ", ".join(f"`{operator}`" for operator in operators) + ".")
    return _joined(parts)


def _policy() -> str:
    parts = [
        "# The policy",
        NOTE,
        "The limits and rules of a run: `policy=dagrun.Policy(…)` in code, a TOML file with the same names in "
        "`dagrun run --policy FILE`. Tables of the file are mappings and rules: `[max_running_by_tool]`, "
        "`[pools.NAME]`, `[retry]`, `[planning]`, `[[approve]]`.",
    ]
    boundary = (dagrun.Flow, dagrun.GuardRule, dagrun.EndorseRule)
    groups = (dagrun.PoolLimits, dagrun.PlanningRule, dagrun.QuestionRule, dagrun.WorkerLimits)
    for model in (dagrun.Policy, *groups, dagrun.ApprovalRule, dagrun.HedgeRule, *boundary, dagrun.PlanLimits):
        meanings = _attributes(model)
        parts += [f"## {model.__name__}", _first_sentences(model)]
        if issubclass(model, BaseModel):
            parts.append(_fields(model, meanings))
        else:
            rows = [
                (f"`{field.name}`", f"`{field.default}`", _cell(meanings[field.name]))
                for field in fields_of(cast("Any", model))
            ]
            parts.append(_table(("field", "default", "meaning"), rows))
    return _joined(parts)


def _settings() -> str:
    meanings = _attributes(Settings)
    rows = [
        (f"`{name}`", f"`{variable(name)}`" if name in _PARSERS else "", _shown(value), _cell(meanings[name]))
        for name, value in Settings().as_dict().items()
    ]
    others = [
        ("`DAGRUN_CONFIG`", "the settings file to use in the place of the project's"),
        ("`DAGRUN_RECORD_KEY`", "the key that seals and opens what records hide (`redact_records`)"),
        ("`DAGRUN_PAGE_TOKEN`", "the token of the page of `dagrun serve` and `--serve`; a random one without it"),
        ("`DAGRUN_MCP_TOKEN`", "the token of `dagrun mcp serve --http`; a random one without it"),
        ("`OPENAI_API_KEY`, `ANTHROPIC_API_KEY`", "the keys of the providers; they are read from nowhere else"),
        ("`OPENAI_BASE_URL`, `ANTHROPIC_BASE_URL`", "the addresses of the providers' servers"),
        ("`XDG_STATE_HOME`", "the folder of state, `~/.local/state` without it; runs are in `dagrun` below it"),
        ("`NO_COLOR`, `FORCE_COLOR`, `COLUMNS`, `TERM`", "colours and width of the terminal, as for other programs"),
    ]
    parts = [
        "# Settings and environment",
        NOTE,
        "A setting is an option of the command line, a variable of the environment, a line of the project's file "
        "(`dagrun.toml`, or `[tool.dagrun]` in `pyproject.toml`), or of the user's file; the first of these that "
        "has it counts. `dagrun config` shows each setting and where it comes from. Library code reads none of them.",
        "A project's file may have come with a checkout. Tools, services, planners, addresses, secrets, prices, "
        "a folder of runs, and a policy that does more than set limits are used from it only after `dagrun config "
        "trust`; changed content asks again, and `dagrun config trust --undo` takes the yes back.",
        "## Settings",
        _table(("setting", "variable", "default", "meaning"), rows),
        "## Other variables",
        _table(("variable", "meaning"), others),
    ]
    return _joined(parts)


def _fields(model: type[BaseModel], meaning: Callable[[FieldInfo], str] | Mapping[str, str]) -> str:
    rows = []
    for name, field in model.model_fields.items():
        text = meaning(field) if callable(meaning) else meaning.get(name, "")
        rows.append((f"`{field.alias or name}`", _default(field), _cell(text)))
    return _table(("field", "default", "meaning"), rows)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return f"`{type(value).__name__}()`"
    if isinstance(value, tuple) and len(value) > 3:
        return "all"
    return _shown(value)


def _shown(value: object) -> str:
    return "" if value in (None, PydanticUndefined, "", (), {}, []) else f"`{value}`"


# Events, exit codes --------------------------------------------------------------------------------------------------


def _events() -> str:
    parts = [
        "# Events",
        NOTE,
        "Every change of a run is an event: `run.events()` yields them, `dagrun run --events jsonl` prints them, and a "
        "journal keeps them. All have `seq`, the number of the event, and `at`, the seconds since the start of the "
        "run.",
    ]
    module = import_module("dagrun.kernel.model.event")
    rows = []
    for kind in vars(module).values():
        if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event:
            common = {field.name for field in fields_of(Event)}
            names = [field.name for field in fields_of(kind) if field.name not in common]
            first = (inspect.getdoc(kind) or "").split("\n\n")[0]
            rows.append((f"`{kind.__name__}`", _cell(first), ", ".join(f"`{name}`" for name in names)))
    parts.append(_table(("event", "meaning", "fields"), rows))
    parts.append("[The classes of events](api/events.md) explains each field.")
    return _joined(parts)


def _view() -> str:
    schema = view_schema()
    parts = [
        "# The view of a run",
        NOTE,
        "Reports and pages read one JSON document about a run, the view. `dagrun schema view` prints its JSON Schema. "
        "It is made from a record, from a run that is under way, or from `run.json`; secrets are not in it.",
    ]
    for name, kind in {"RunView": schema, **schema["$defs"]}.items():
        rows = [(f"`{field}`", _type(facts)) for field, facts in kind["properties"].items()]
        text = "\n".join(kind.get("description", "").splitlines()).replace("``", "`")
        fields = "Fields: " + ", ".join(f"{field} ({kind})" for field, kind in rows) + "."
        is_large = name in {"RunView", "RunFacts", "StepFacts"}
        parts += [f"## {name}", *filter(None, [text]), _table(("field", "type"), rows) if is_large else fields]
    return _joined(parts)


def _type(schema: Mapping[str, Any]) -> str:
    """Return a JSON Schema in a few words."""
    if "$ref" in schema:
        return f"`{schema['$ref'].rpartition('/')[2]}`"
    if "anyOf" in schema:
        return " or ".join(_type(kind) for kind in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    items = schema.get("items")
    if schema.get("type") == "array" and isinstance(items, Mapping) and items:
        return f"list of {_type(items)}"
    return str(schema.get("type", "any"))


def _exit_codes() -> str:
    meanings = {
        Status.SUCCEEDED: "Every step that had to succeed has succeeded.",
        Status.FAILED: "A step has failed, and nobody could repair it; or the command could not do its work.",
        Status.OVER_BUDGET: "A ceiling of the policy was reached; the reason names it and the amount.",
        Status.WAITING: "A person must answer. With a journal, the run can be answered and resumed.",
        Status.ESCALATED: "The run was handed over to people.",
        Status.UNKNOWN: "A call with an effect may or may not have taken effect; the record says which.",
        Status.CANCELLED: "Ctrl-C ended the run, or the host cancelled it; 143 after SIGTERM.",
    }
    codes = {status.exit_code: (str(status), text) for status, text in meanings.items()}
    codes[USAGE] = ("", "An option, a setting or a file cannot be used; nothing was run.")
    codes[REFUSED] = ("", "The plan has problems; nothing was run. The problems are listed.")
    rows = [(f"`{code}`", f"`{status}`" if status else "", text) for code, (status, text) in sorted(codes.items())]
    text = "The exit code of a command that runs a plan is given by the status of the run, `result.status` in code."
    return _joined(["# Exit codes", NOTE, text, _table(("code", "status", "meaning"), rows)])


# Text ----------------------------------------------------------------------------------------------------------------


def _attributes(kind: type) -> dict[str, str]:
    """Return what the docstring of a class says of each attribute."""
    _, _, section = (inspect.getdoc(kind) or "").partition("Attributes:\n")
    section = re.split(r"\n\n\S", section)[0]
    return {
        match[1]: " ".join(match[2].split())
        for match in re.finditer(r"^    (\w+): (.*?)(?=^    \w+: |\Z)", section, re.DOTALL | re.MULTILINE)
    }


def _first_sentences(kind: type) -> str:
    text = (inspect.getdoc(kind) or "").partition("\nAttributes:")[0].partition("\nExamples:")[0]
    return text.strip().replace("``", "`")


def _cell(text: str) -> str:
    """Return a text as it stands in a cell of a table: brackets outside of code are no links."""
    parts = " ".join(text.split()).replace("``", "`").replace("|", "\\|").split("`")
    return "`".join(part if number % 2 else part.replace("[", "\\[") for number, part in enumerate(parts))


def _code(text: str) -> str:
    """Return a text as it stands between backticks in a cell."""
    return text.replace("|", "\\|")


# States --------------------------------------------------------------------------------------------------------------


def _states() -> str:
    """Return the page of states with the transitions as the tables of the code have them."""
    head, _, rest = (FOLDER / STATES).read_text(encoding="utf-8").partition(BEGIN)
    lines = [line for state in State if not state.is_settled for line in _moves(state, str(state))]
    drawing = "\n".join(["```text", *lines, *_moves(State.SUCCEEDED, "settled"), "```"])
    return f"{head}{BEGIN}\n\n{drawing}\n\n{END}{rest.partition(END)[2]}"


def _moves(state: State, name: str) -> Iterator[str]:
    """Yield a line for the events by which a step leaves *state*, those first that are about the step itself."""
    for table, of in ((STEP_TRANSITIONS, ""), (OTHER_TRANSITIONS, " of others")):
        moves: dict[frozenset[State], list[str]] = {}
        for event, row in table.items():
            if after := row.get(state, frozenset[State]()) - {state}:
                moves.setdefault(after, []).append(event.__name__)
        for after, events in moves.items():
            open_ones = [
                str(other) for other in State if other in after and not (other.is_settled and after >= SETTLED)
            ]
            targets = [*open_ones, *(["settled"] if after >= SETTLED else [])]
            yield f"{name:8}-- {', '.join(events)}{of} --> {', '.join(targets)}"


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n".join(re.sub(" {2,}", " ", f"| {' | '.join(line)} |") for line in lines)


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(parts) + "\n"


def main(args: list[str]) -> int:
    """Write the pages, or compare them; return the exit code."""
    stale = []
    for name, text in pages().items():
        path = FOLDER / name
        if "--check" not in args:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
    if stale:
        print(f"not what the code says: {', '.join(stale)}; run make reference", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
