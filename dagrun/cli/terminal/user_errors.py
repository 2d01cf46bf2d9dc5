"""Errors of the command line: reported in lines, and as JSON on request; and their exit codes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

import click

from dagrun.cli.terminal.text import SCHEMA_VERSION, SECRETS, Data, bounded, printable
from dagrun.errors import (
    CannotResume,
    CasesRefused,
    JournalDamaged,
    JournalFailed,
    OwnerLost,
    PlanRefused,
    Problem,
    RunFailed,
    RunHeld,
)

FAILED: Final = 1
USAGE: Final = 2
REFUSED: Final = 3
MAX_LINES: Final = 200

_STATUS: Final = {FAILED: "failed", REFUSED: "refused"}


class BadInput(click.ClickException):
    """An argument, a setting or a file of the user cannot be used; nothing was run.

    Args:
        lines: All faults, a line each.
    """

    exit_code = USAGE

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


def report(error: Exception, *, as_json: bool = False, as_line: bool = False) -> int:
    """Report *error* to the user, and return the exit code.

    Args:
        error: The error.
        as_json: Whether the error is also written to the standard output, as JSON.
        as_line: Whether that JSON is one line, the last one of a stream of events.
    """
    if isinstance(error, click.UsageError) and error.ctx is not None:
        _say([error.ctx.get_usage(), f"Try '{error.ctx.command_path} --help'.", ""])
    code, lines = _code_and_lines(error)
    lines = [printable(SECRETS.hide(line)) for line in lines]
    shown = bounded(lines, MAX_LINES, _more)
    _say([f"Error: {shown[0]}", *(f"  {line}" for line in shown[1:])])
    if as_line:
        Data(sys.stdout).line({"event": "Result", **_as_json(error, code, lines)})
    elif as_json:
        Data(sys.stdout).json(_as_json(error, code, lines))
    return code


def _code_and_lines(error: Exception) -> tuple[int, list[str]]:
    match error:
        case PlanRefused():
            return _refusal_code(error.problems), _refusal_lines(error.problems)
        case RunFailed():
            return _code_of(error.status), [error.reason]
        case BadInput():
            return error.exit_code, list(error.lines)
        case CasesRefused():
            return USAGE, list(error.faults)
        case click.UsageError() if _splits_goal(error):
            return error.exit_code, [error.format_message(), "a goal of several words stands in quotation marks"]
        case click.ClickException():
            return error.exit_code, [error.format_message()]
        case JournalDamaged() | JournalFailed() | OwnerLost():
            return FAILED, [str(error)]
        case CannotResume() if error.differences:
            return USAGE, [error.message, *error.differences, "--allow-differences is the option for that"]
        case RunHeld():
            return USAGE, [str(error), "--steal is the option for that"]
        case _:
            return USAGE, [str(error)]


def _splits_goal(error: click.UsageError) -> bool:
    """Whether words of a goal were taken for further arguments."""
    taken = error.ctx.command.params if error.ctx is not None else ()
    is_split = any(isinstance(parameter, click.Argument) and parameter.name == "goal" for parameter in taken)
    return is_split and "extra argument" in error.message


def problem_lines(problems: Sequence[Problem]) -> list[str]:
    """Return the problems of a plan, a line each, at most `MAX_LINES`."""
    return bounded([printable(str(problem)) for problem in problems], MAX_LINES, _more)


def _refusal_code(problems: Sequence[Problem]) -> int:
    """Return the exit code of a refused plan; a file that cannot be opened is a mistake of the command line."""
    return USAGE if all(problem.code == "DR001" for problem in problems) else REFUSED


def _more(count: int) -> str:
    return f"… and {count} more (--json has them all)"


def _code_of(status: str) -> int:
    from dagrun import Status

    return Status(status).exit_code


def _refusal_lines(problems: Sequence[Problem]) -> list[str]:
    lines = [str(problem) for problem in problems]
    if len(problems) > 1:
        lines = [f"the plan has {len(problems)} problems:", *lines]
    if any(problem.code == "DR306" for problem in problems):
        lines.append("an input is given by --input NAME=VALUE")
    return lines


def _as_json(error: Exception, code: int, lines: Sequence[str]) -> dict[str, Any]:
    problems = error.problems if isinstance(error, PlanRefused) else ()
    status = error.status if isinstance(error, RunFailed) else _STATUS.get(code, "usage")
    return {
        "schema_version": SCHEMA_VERSION,
        "status": status,
        "exit_code": code,
        "error": lines[0],
        "details": list(lines[1:]) if not problems else [],
        "problems": [problem.as_dict() for problem in problems],
    }


def _say(lines: Sequence[str]) -> None:
    for line in lines:
        click.echo(line, err=True)
