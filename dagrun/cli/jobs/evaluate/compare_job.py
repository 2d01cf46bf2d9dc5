"""Ways that ``dagrun compare`` compares: carried out under ceilings, and reported also where they were interrupted."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from dagrun.cli.jobs.evaluate.eval_job import host_of, quiet_logs, summary_file, tell
from dagrun.cli.setup.settings import Configuration
from dagrun.cli.setup.variants import read_ways
from dagrun.cli.terminal.text import Data, columns_of
from dagrun.errors import shorten
from dagrun.evaluate.comparison.compare import Comparing
from dagrun.evaluate.comparison.comparison_text import markdown_of, text_of
from dagrun.kernel.model.outcome import Status

_INTERRUPTED: Final = "it was interrupted"


def compare_ways(configuration: Configuration, data: Data, paths: Sequence[str], flags: Mapping[str, Any]) -> int:
    """Carry out cases by several ways, report on them, and return the exit code.

    Args:
        configuration: The settings that hold.
        data: Takes the report.
        paths: The files and folders of cases.
        flags: The flags of the command line.

    Raises:
        CasesRefused: A file or a way cannot be used; nothing was run.
        BadInput: The file of ways cannot be used, or there is no job to summarise.
    """
    summary = summary_file() if flags["github"] else None
    ways = read_ways(configuration, flags["ways"])
    comparing = Comparing(paths, ways, runs=flags["repeat"], only=flags["only"], host=host_of(configuration))
    comparison = comparing.comparison
    _announce(
        comparing.asking,
        comparing.judging,
        has_ceiling=flags["max_cost"] is not None or flags["max_tokens"] is not None,
    )
    _announce_real(*comparing.touching)
    code = 0
    try:
        with quiet_logs(is_quiet=not flags["verbose"]):
            comparing.carry_out(max_cost=flags["max_cost"], max_tokens=flags["max_tokens"], tell=tell)
        if comparison.stopped:
            code = Status.OVER_BUDGET.exit_code
    except KeyboardInterrupt:  # the runs before it were paid for
        comparison.stopped, code = _INTERRUPTED, Status.CANCELLED.exit_code
    tell("")
    if flags["as_json"]:
        data.json(comparison.as_dict() | {"exit_code": code})
    else:
        data.text(text_of(comparison, columns_of(sys.stdout)))
    if summary is not None:
        with summary.open("a", encoding="utf-8") as file:
            file.write(markdown_of(comparison))
    return code


def _announce(asking: int, judging: int, *, has_ceiling: bool) -> None:
    """Announce the runs that take real time and money."""
    ceiling = "" if has_ceiling else "; --max-cost and --max-tokens set a limit for all of them together"
    told = [f"{_runs(asking)} will ask a model"] if asking else []
    told += [f"a model will judge the answers of {_runs(judging)}"] if judging else []
    if told:
        click.echo(f"{' and '.join(told)}, in real time and at its real cost{ceiling}", err=True)


def _runs(number: int) -> str:
    return f"{number} run{'s' * (number != 1)}"


def _announce_real(touching: int, tools: Sequence[str]) -> None:
    """Announce the real tools that are called; all others are stubs."""
    if touching:
        click.echo(
            f"{_runs(touching)} may call real tools, as their cases want: {shorten(', '.join(tools), 300)}", err=True
        )
