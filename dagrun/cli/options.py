"""Options of the command line that several commands share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click

from dagrun.cli.terminal.user_errors import BadInput

F = TypeVar("F", bound=Callable[..., Any])


class DefaultGroup(click.Group):
    """A group that calls one of its commands where none is named.

    Args:
        args: Arguments of `click.Group`.
        default: That command, with the options that it gets then.
        attributes: Further arguments of `click.Group`.
    """

    def __init__(self, *args: Any, default: Sequence[str], **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._default = tuple(default)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments, with the default command in front if they name none."""
        names_none = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
        return super().parse_args(ctx, [*self._default, *args] if names_none else args)


def change_directory(context: click.Context, parameter: click.Parameter, folder: str | None) -> None:
    """Change to another directory until the command ends; the callback of ``-C``."""
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
    help="Run in DIR: file names, also those in plans, are relative to it.",
)
_modules: Final = click.option(
    "-t",
    "--tools",
    multiple=True,
    metavar="MODULE[:NAME]",
    help="The tools: an importable module, a file (./my_tools.py), or one tool in it. May be repeated.",
)
_openapi: Final = click.option(
    "--openapi",
    multiple=True,
    metavar="[NAME=]FILE",
    help="The OpenAPI document of a service, whose operations become tools; with NAME, they are called NAME.… May be"
    " repeated. Its secret, its effects and more are in a table [openapi.NAME] of dagrun.toml.",
)
_include: Final = click.option(
    "--include",
    multiple=True,
    metavar="PATTERN",
    help="The operations of --openapi that are wanted: names such as 'repos_*', or tag:NAME. May be repeated.",
)
_openapi_url: Final = click.option(
    "--openapi-url", metavar="URL", help="The address of the service of --openapi, if its document says none."
)
_mcp: Final = click.option(
    "--mcp",
    "mcp_files",
    multiple=True,
    metavar="FILE",
    help="A file of MCP servers, as Claude, Cursor and VS Code read it. May be repeated. Rules for one: [mcp.SERVER] of"
    " dagrun.toml.",
)
_mcp_pins: Final = click.option(
    "--mcp-pins", metavar="FILE", help="Hold tools of MCP servers to this lock file, which dagrun mcp pin writes."
)
deps: Final = click.option(
    "--deps",
    metavar="MODULE:NAME",
    help="The objects that tools get by type, such as clients: a function that returns them, or a context manager.",
)
inputs: Final = click.option(
    "-i",
    "--input",
    "inputs",
    multiple=True,
    metavar="K=V",
    help="The value of ${input.K}: JSON, or else a text; K=@FILE for the contents of a file. May be repeated.",
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
    help="The planner, which writes plans, and is asked when a step fails or surprises: openai, anthropic, stepwise,"
    " ensemble, person, or MODULE:NAME of an object with a method revise. Several, with commas, are a ladder:"
    " each hands on what it cannot do, as in my_routes:router,openai=FAST,openai=STRONG,person.",
)
critics: Final = click.option(
    "--critic",
    "critics",
    multiple=True,
    metavar="MODULE:NAME",
    help="A critic, which reviews outputs of steps before they are used: an object with a method review. May be"
    " repeated.",
)
compose: Final = click.option(
    "--compose",
    metavar="NAME",
    help="Writes the answer from the results, as the last step: model, for the model of the options, or MODULE:NAME of"
    " a tool, a function or a model.",
)
output: Final = click.option(
    "-o",
    "--output",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="The folder for the files of the run: those that tools write, run.json, artifacts/. Tools look for files to"
    " read there, and then in the current directory.",
)
artifacts: Final = click.option(
    "--artifacts",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="With --journal: the folder for the files of runs, which all that carry out runs share.",
)
secrets: Final = click.option(
    "--secret",
    "secrets",
    multiple=True,
    metavar="NAME=env:VARIABLE",
    help='A secret for tools that take one; plans refer to it by {"$secret": "NAME"}. It is read from a variable, or'
    " by NAME=file:PATH from a file that only you may read; NAME alone is short for the variable of that name. Its"
    " value is never shown. May be repeated.",
)
durability: Final = click.option(
    "--durability",
    type=click.Choice(["process", "power"]),
    help="What the record survives: the end of the process; or a power cut, too, which makes writing slower."
    "  [default: process; of a database, power]",
)
expires_after: Final = click.option(
    "--expires-after",
    type=click.FloatRange(min=0, min_open=True),
    metavar="DAYS",
    help="Days after which dagrun prune may delete the record.  [default: never]",
)
no_journal: Final = click.option("--no-journal", is_flag=True, help="Keep no record: the run cannot be resumed.")
run_id: Final = click.option("--run-id", metavar="NAME", help="The name of the run.  [default: made of the time]")
as_json: Final = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
events: Final = click.option(
    "--events", type=click.Choice(["jsonl"]), help="Print each event as it happens, then the result."
)
timeline: Final = click.option(
    "--timeline",
    is_flag=True,
    help="Draw when each step ran, and what ran on while the plan was changed.",
)
trace: Final = click.option(
    "--trace",
    is_flag=True,
    help="Send a trace of the run with OpenTelemetry (OTLP over HTTP), to where the OTEL_* variables say; needs the"
    " extra otel.",
)
report: Final = click.option(
    "--report",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Write a report of the run at its end: a page, or what the ending says (.svg, .png, .md, .json).",
)
open_browser: Final = click.option("--open", "open_browser", is_flag=True, help="Open the page in a browser.")
port: Final = click.option(
    "--port", type=click.IntRange(0, 65535), metavar="N", help="The port of the page; 0 for any."
)
_PAGE: Final = (
    click.option("--serve", "serves", is_flag=True, help="Show the run in a browser; the address is printed."),
    port,
    open_browser,
    click.option("--linger", "lingers", is_flag=True, help="Keep the page open after the run, until Ctrl-C."),
)
verbose: Final = click.option(
    "-v",
    "--verbose",
    count=True,
    help="Show what tools log, what planners' models answer, and the traceback of each failure; -vv for everything.",
)
quiet: Final = click.option("-q", "--quiet", is_flag=True, help="No progress, and no summary of a success.")
plan: Final = click.argument("plan", type=click.Path(allow_dash=True))
goal: Final = click.argument("goal")


def _refuse_key(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Refuse a key on the command line: other users can read it there, and shells keep it."""
    if value is not None:
        raise click.UsageError(
            "keys are never given on the command line, where others can read them: set OPENAI_API_KEY or"
            " ANTHROPIC_API_KEY in the environment; and change a key that you have given so",
            ctx=context,
        )


def tools(function: F) -> F:
    """Add the options that name the tools of plans."""
    return combined(_modules, _openapi, _include, _openapi_url, mcp_servers)(function)


def mcp_servers(function: F) -> F:
    """Add the options that name MCP servers."""
    return combined(_mcp, _mcp_pins)(function)


def page(function: F) -> F:
    """Add the options of the live page to a command that carries out a run."""
    return combined(*_PAGE)(function)


def model_options(function: F) -> F:
    """Add the options of language models to a command: which model is asked, and how."""
    for option in reversed(_MODEL):
        function = option(function)
    return function


dialect: Final = click.option(
    "--dialect",
    type=click.Choice(["json", "lean", "compiler", "calls"]),
    help="How the model writes plans: as JSON; as JSON with calls alone; as numbered calls; or as numbered calls by a"
    " short prompt, for models below two billion parameters.  [default: json]",
)
_MODEL: Final = (
    click.option("--model", metavar="NAME", help="The language model; or set DAGRUN_MODEL."),
    click.option("--fast-model", metavar="NAME", help="For the planner ensemble: the model that is asked first."),
    click.option(
        "--base-url",
        metavar="URL",
        help="The server, if not the provider's own, such as http://127.0.0.1:8000/v1; or set OPENAI_BASE_URL or"
        " ANTHROPIC_BASE_URL. Keys are read only from OPENAI_API_KEY or ANTHROPIC_API_KEY.",
    ),
    click.option(
        "--api",
        type=click.Choice(["auto", "responses", "chat"]),
        help="The OpenAI interface of the server.  [default: auto]",
    ),
    click.option(
        "--structure",
        type=click.Choice(["auto", "schema", "tool", "json"]),
        help="How the model is made to answer in JSON: by a schema, by a tool call, or only by the prompt."
        "  [default: auto]",
    ),
    dialect,
    click.option(
        "--max-output-tokens",
        type=click.IntRange(min=1),
        metavar="N",
        help="The longest answer, in tokens.",
    ),
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
    """Return a decorator that adds several options to a command, in this order."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate
