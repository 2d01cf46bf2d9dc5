"""``dagrun mcp``: plans as tools of an MCP server."""

from __future__ import annotations

from typing import Any, Final

import click

from dagrun.cli import options
from dagrun.cli.records.run_records import runs_option

SERVE: Final = """
\b
Examples:
  dagrun mcp serve --tools my_tools
  dagrun mcp serve --tools my_tools --plans plans/
  dagrun mcp serve --tools my_tools --http --port 8400

\b
The entry for a program that starts servers (mcpServers in its configuration):
  {"command": "dagrun", "args": ["mcp", "serve", "-C", "/srv/project",
                                 "--tools", "my_tools", "--plans", "plans"]}

\b
Exit codes: 0 when the caller has closed the connection, or after Ctrl-C;
2 wrong usage; 3 a plan has problems.
Over HTTP, every request sends the token: it is printed, and DAGRUN_MCP_TOKEN
sets it.
"""


@click.group()
def mcp() -> None:
    """Offer plans to other programs by the Model Context Protocol; needs the extra mcp."""


@mcp.command(epilog=SERVE)
@options.combined(options.tools, options.deps, options.secrets, options.policy, options.max_running)
@click.option(
    "--plans",
    metavar="DIR",
    type=click.Path(file_okay=False, exists=True),
    help="Offer each plan of DIR (.json, .yaml) as a tool. Without it: check_plan, run_plan.",
)
@click.option(
    "--http", "over_http", is_flag=True, help="Serve over HTTP on this machine, in place of stdin and stdout."
)
@options.port
@click.option(
    "--yes-effects",
    "allows_effects",
    is_flag=True,
    help="Offer tools with effects, too, that nobody is asked about (needs_approval, or approve of the policy).",
)
@click.option(
    "--no-answers",
    is_flag=True,
    help="Offer no tool answer: people answer by dagrun approve, and the run continues by dagrun resume.",
)
@options.combined(runs_option, options.durability, options.directory)
def serve(**flags: Any) -> int:
    """Serve plans over stdin and stdout, or over HTTP, until the caller has gone.

    A call is a run, and is recorded as any other. Its progress is the steps that have ended; to cancel it stops them.
    A run that waits for people returns its questions, and the tool answer lets it continue.
    """
    from dagrun.cli.jobs.mcp_job import McpJob

    return McpJob(flags).carry_out()
