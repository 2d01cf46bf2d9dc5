"""``dagrun eval``: runs golden tasks with stubs, and with the planners and tools that they borrow, and reports."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from dagrun.cli.jobs.case_runs import host_of, quiet_logs, summary_file, tell
from dagrun.cli.records.output_files import writable
from dagrun.cli.setup.settings import Configuration, configure
from dagrun.cli.table_command import command
from dagrun.cli.terminal.text import Data, data_output, to_json
from dagrun.cli.terminal.user_errors import FAILED, BadInput


class _Group(click.Group):
    """Takes a first word that is none of its commands for a file of cases."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments, with the command ``run`` in front if they name none."""
        names_one = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if names_one else ["run", *args])


@click.group(cls=_Group)
def eval_group() -> None:
    """Run golden tasks: goals and plans with stubs for tools, and with expected results.

    dagrun eval PATH… is short for dagrun eval run PATH…; the files are described by dagrun schema eval.
    """


@command("eval.run", eval_group, short_help="Run the golden tasks of files and folders.")
def run_cases(*, paths: tuple[str, ...], **flags: Any) -> int:
    """Run the cases of files and folders: each with its stubs, on a virtual clock unless a model is asked.

    A tool that a case names neither in its world nor under real is refused, and never called. Options for models apply
    to cases that name a model, options for tools to files that name none.

    Examples:
      dagrun eval evals/
      dagrun eval run evals/
      dagrun eval evals/refund.yaml --only refund-happy
      dagrun eval evals/ --record evals/base.json
      dagrun eval evals/ --baseline evals/base.json --junit eval.xml --github
      dagrun eval evals/ --policy stricter.toml
      dagrun eval from last -o evals/incident.yaml

    A file of cases names modules, which are imported: carry out only cases whose author you trust.

    Exit codes: 0 all is as the gates want it, 1 it is not, 2 wrong usage, or a file that cannot be used.
    """
    configuration = configure({name: value for name, value in flags.items() if name != "planner"})
    with data_output() as data:
        return carry_out(configuration, data, paths, flags)


@command("eval.from", eval_group, short_help="Make a golden task of a recorded run that has ended.")
def from_run(*, run: str, **flags: Any) -> int:
    """Make a golden task of RUN, a recorded run that has ended, and carry it out once.

    Its tools are those that it was begun with, unless others are named.

    Examples:
      dagrun eval from last -o evals/incident.yaml
      dagrun eval evals/incident.yaml

    What is in the case:
      world      what each tool did, by step where that matters
      people     what people answered
      planner    the answers of the planner, and so the changes of the plan
      expect     how the run and its steps ended, and its answer; of a long
                 answer, its kind and size

    Redacted is what looks like a token, has the name of a secret, or is of the kinds that the policy on record names. A
    redact function of the program that ran it is not applied: check the file before you share it. No tool is called.
    Today's policy on yesterday's run: dagrun eval CASE --policy policy.toml.

    Exit codes: 0 it comes to the same as on record, 1 it does not, 2 wrong usage, or a run that cannot become a case.
    """
    from dagrun.cli.commands.evaluate.eval_from import make_case

    configuration = configure(flags)
    with data_output() as data:
        return make_case(configuration, data, run, flags)


def carry_out(configuration: Configuration, data: Data, paths: Sequence[str], flags: Mapping[str, Any]) -> int:
    """Carry out files of cases, report on them, and return the exit code.

    Args:
        configuration: The settings that hold.
        data: Takes the report.
        paths: The files and folders.
        flags: The flags of the command line.

    Raises:
        CasesRefused: A file cannot be used; nothing was run.
        BadInput: A report cannot be written, or the baseline cannot be read.
    """
    from dagrun.evaluate.cases.evaluation import evaluate
    from dagrun.evaluate.cases.reports import junit_of, markdown_of, text_of

    record, junit = writable(flags["record"], "--record"), writable(flags["junit"], "--junit")
    summary = summary_file() if flags["github"] else None
    baseline = None if flags["baseline"] is None else _read(Path(flags["baseline"]))
    with quiet_logs(is_quiet=not flags["verbose"]):
        evaluation = evaluate(paths, host=host_of(configuration), only=flags["only"], baseline=baseline, tell=tell)
    tell("")
    facts = evaluation.as_dict()
    if flags["as_json"]:
        data.json(facts)
    else:
        data.text(text_of(evaluation))
    for path, text in ((record, to_json(facts, indent=2) + "\n"), (junit, junit_of(evaluation))):
        if path is not None:
            _write(path, text)
    if summary is not None:
        with summary.open("a", encoding="utf-8") as file:
            file.write(markdown_of(evaluation))
    return 0 if evaluation.holds else FAILED


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"--baseline {path}: {error.strerror}") from error
    except ValueError as error:
        raise BadInput(f"--baseline {path}: it is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadInput(f"--baseline {path}: it was not written by dagrun eval --record")
    return found


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}") from error
