"""Golden tasks that ``dagrun eval`` carries out: the planners and tools that they borrow, and where the report goes."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from dagrun.cli.records.output_folder import writable
from dagrun.cli.setup.planners import make_planner, name_of
from dagrun.cli.setup.settings import COMMAND_LINE, Configuration
from dagrun.cli.setup.tool_modules import load_toolbox
from dagrun.cli.terminal.text import Data, is_drawable, printable, to_json
from dagrun.cli.terminal.user_errors import FAILED, BadInput
from dagrun.evaluate.cases.evaluation import evaluate
from dagrun.evaluate.cases.load_cases import CaseHost
from dagrun.evaluate.cases.reports import junit_of, markdown_of, text_of
from dagrun.kernel.model.planner import Planner

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
