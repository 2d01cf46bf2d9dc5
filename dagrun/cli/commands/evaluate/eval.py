"""``dagrun eval``: runs golden tasks with stubs, and with the planners and tools that they borrow, and reports."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dagrun.cli.records.output_files import writable
from dagrun.cli.setup.settings import COMMAND_LINE, Configuration, configure
from dagrun.cli.table_command import command
from dagrun.cli.terminal.text import Data, data_output, is_drawable, printable, to_json
from dagrun.cli.terminal.user_errors import FAILED, BadInput

if TYPE_CHECKING:
    from dagrun import Planner
    from dagrun.evaluate.cases.load_cases import CaseHost


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


_SUMMARY = "GITHUB_STEP_SUMMARY"


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


def host_of(configuration: Configuration) -> CaseHost:
    """Return the command line's settings for cases: its tools, planners that ask models, and a policy."""
    from dagrun.cli.setup.planners import make_planner, name_of
    from dagrun.cli.setup.tool_modules import load_toolbox
    from dagrun.evaluate.cases.load_cases import CaseHost

    def planner(name: str | None, model: str | None) -> Planner:
        chosen = configuration
        if model is not None:
            chosen = replace(configuration, settings=replace(configuration.settings, model=model))
        return make_planner(chosen, name or name_of(configuration))

    is_named = configuration.origins["policy"].name == COMMAND_LINE  # a setting of the project is for its runs
    policy = configuration.limits().policy if is_named else None
    return CaseHost(tools=lambda: load_toolbox(configuration), make_planner=planner, policy=policy)


def summary_file() -> Path:
    """Return the file that takes the summary of a job of GitHub Actions.

    Raises:
        BadInput: There is no such job.
    """
    name = os.environ.get(_SUMMARY, "")
    if not name:
        raise BadInput(f"--github is for a job of GitHub Actions, which sets {_SUMMARY}")
    return Path(name)


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


@contextmanager
def quiet_logs(*, is_quiet: bool) -> Iterator[None]:
    """Suppress the logs of runs: failures are a part of most cases, and the report names the unexpected ones."""
    logger = logging.getLogger("dagrun")
    before = logger.level
    if is_quiet:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


def tell(text: str) -> None:
    """Show the case that is carried out on a terminal, in one line that is overwritten."""
    if is_drawable(sys.stderr):
        click.echo(f"\r\x1b[K{printable(text)}", err=True, nl=False)
