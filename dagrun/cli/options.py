"""Options that several commands share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from dagrun.cli.problems import BadInput

F = TypeVar("F", bound=Callable[..., Any])


def change_directory(context: click.Context, parameter: click.Parameter, folder: str | None) -> None:
    """Work in another directory until the command ends; the callback of an option."""
    if folder is None or context.resilient_parsing:
        return
    try:
        context.with_resource(contextlib.chdir(folder))
    except OSError as error:
        raise BadInput(f"cannot change to {folder}: {error.strerror}") from error


directory: Final = click.option(
    "-C",
    "directory",
    metavar="DIR",
    type=click.Path(file_okay=False),
    is_eager=True,
    expose_value=False,
    callback=change_directory,
    help="Do as if started in DIR: names of files, also those in plans, are relative to it.",
)
tools: Final = click.option(
    "-t",
    "--tools",
    multiple=True,
    metavar="MODULE[:NAME]",
    help="Where the tools are: an importable module, or one tool in it. May be repeated.",
)
inputs: Final = click.option(
    "-i",
    "--input",
    "inputs",
    multiple=True,
    metavar="K=V",
    help="What ${input.K} stands for: JSON, else a text; K=@FILE for the contents of a file. May be repeated.",
)
policy: Final = click.option(
    "--policy", metavar="FILE", type=click.Path(dir_okay=False), help="A TOML file with the limits of the run."
)
max_running: Final = click.option(
    "-j", "--max-running", type=click.IntRange(min=1), metavar="N", help="Steps that run at once."
)
planner: Final = click.option(
    "--planner",
    metavar="MODULE:NAME",
    help="Who is asked when a step fails or surprises: an object with a method revise, or what makes one.",
)
critics: Final = click.option(
    "--critic",
    "critics",
    multiple=True,
    metavar="MODULE:NAME",
    help="Who looks at what steps give before it is used: an object with a method review. May be repeated.",
)
output: Final = click.option(
    "-o",
    "--output",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Where the run leaves its files: those that tools write, run.json, artifacts/. What tools read is looked for"
    " there, and then in the current directory.",
)
as_json: Final = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
plan: Final = click.argument("plan", type=click.Path(allow_dash=True))


def combined(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Put several options onto a command, in this order."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate
