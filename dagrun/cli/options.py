"""Options that several commands share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from dagrun.cli.terminal.user_errors import BadInput

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
    metavar="NAME",
    help="Who writes plans, and is asked when a step fails or surprises: openai, anthropic, stepwise, ensemble, or"
    " MODULE:NAME of an object with a method revise.",
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
secrets: Final = click.option(
    "--secret",
    "secrets",
    multiple=True,
    metavar="NAME=env:VARIABLE",
    help='A secret for tools that take one: {"$secret": "NAME"} stands for it in plans. It is read from a variable,'
    " or by NAME=file:PATH from a file that nobody else may read; NAME alone stands for the variable of that name. It"
    " is never shown. May be repeated.",
)
durability: Final = click.option(
    "--durability",
    type=click.Choice(["process", "power"]),
    help="What the record survives: that the process is killed; or a power cut, too, which takes longer."
    "  [default: process]",
)
expires_after: Final = click.option(
    "--expires-after",
    type=click.FloatRange(min=0, min_open=True),
    metavar="DAYS",
    help="When dagrun prune may delete the record.  [default: never]",
)
no_journal: Final = click.option("--no-journal", is_flag=True, help="Write nothing down: the run cannot be resumed.")
run_id: Final = click.option("--run-id", metavar="NAME", help="What the run is called.  [default: made of the time]")
as_json: Final = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
events: Final = click.option(
    "--events", type=click.Choice(["jsonl"]), help="Print each event as it happens, then the result."
)
verbose: Final = click.option("-v", "--verbose", count=True, help="Show what tools log; -vv for everything.")
quiet: Final = click.option("-q", "--quiet", is_flag=True, help="No progress and no summary.")
plan: Final = click.argument("plan", type=click.Path(allow_dash=True))


goal: Final = click.argument("goal")


def _refuse_key(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Say where keys go: everybody on the machine can read a command line, and shells keep it."""
    if value is not None:
        raise click.UsageError(
            "keys are never given on the command line, where others can read them: set OPENAI_API_KEY or"
            " ANTHROPIC_API_KEY in the environment; and change a key that you have given so",
            ctx=context,
        )


def model_options(function: F) -> F:
    """Put the options onto a command that say which language model is asked, and how."""
    for option in reversed(_MODEL):
        function = option(function)
    return function


dialect: Final = click.option(
    "--dialect",
    type=click.Choice(["json", "compiler"]),
    help="How the model writes plans: as JSON, or as numbered calls, which small models find easier.  [default: json]",
)
_MODEL: Final = (
    click.option("--model", metavar="NAME", help="The language model; or set DAGRUN_MODEL."),
    click.option("--fast-model", metavar="NAME", help="With the planner ensemble: the model that is asked first."),
    click.option(
        "--base-url",
        metavar="URL",
        help="Another server than the provider's, such as http://127.0.0.1:8000/v1; or set OPENAI_BASE_URL or"
        " ANTHROPIC_BASE_URL. Keys come from OPENAI_API_KEY or ANTHROPIC_API_KEY, and from nowhere else.",
    ),
    click.option(
        "--api",
        type=click.Choice(["auto", "responses", "chat"]),
        help="Which interface of OpenAI the server has.  [default: auto]",
    ),
    click.option(
        "--structure",
        type=click.Choice(["auto", "schema", "tool", "json"]),
        help="How the model is made to answer in JSON: by a schema, by a call of a tool, or by its word alone."
        "  [default: auto]",
    ),
    dialect,
    click.option("--max-output-tokens", type=click.IntRange(min=1), metavar="N", help="The longest answer."),
    click.option(
        "--api-key",
        "--apikey",
        "--key",
        hidden=True,
        is_eager=True,
        expose_value=False,
        is_flag=False,
        flag_value="",
        callback=_refuse_key,
    ),
)


def combined(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Put several options onto a command, in this order."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate
