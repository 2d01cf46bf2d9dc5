"""What commands that carry out golden tasks share: their planners and tools, quiet logs, and progress."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dagrun.cli.setup.settings import COMMAND_LINE, Configuration
from dagrun.cli.terminal.text import is_drawable, printable
from dagrun.cli.terminal.user_errors import BadInput

if TYPE_CHECKING:
    from dagrun import Planner
    from dagrun.evaluate.cases.load_cases import CaseHost


_SUMMARY = "GITHUB_STEP_SUMMARY"


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
