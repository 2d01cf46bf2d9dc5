"""``dagrun mcp``: plans as tools of an MCP server, and the pins of the tools of others."""

from __future__ import annotations

from typing import Any, Final

import click

from dagrun.cli import options
from dagrun.cli.records.run_records import records_option

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

PIN: Final = """
\b
Examples:
  dagrun mcp pin --mcp mcp.json
  dagrun mcp pin --yes

Exit codes: 0 written, or nothing has changed; 2 wrong usage; 130 you said no.
"""
CHECK: Final = """
\b
Example:
  dagrun mcp check --mcp mcp.json --mcp-pins mcp.lock.json

Exit codes: 0 all is as it was pinned; 1 something differs; 2 wrong usage.
"""


@click.group()
def mcp() -> None:
    """Offer plans to other programs by the Model Context Protocol, and pin the tools of servers; needs the extra mcp.

    A pin is the hash of what a server says about a tool: its description, schemas and annotations. With the setting
    mcp_pins or --mcp-pins, no plan may call a tool that differs from its pin, or has none.
    """


@mcp.command(epilog=SERVE, short_help="Serve plans over stdin and stdout, or over HTTP.")
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
@options.combined(records_option, options.artifacts, options.durability, options.directory)
def serve(**flags: Any) -> int:
    """Serve plans over stdin and stdout, or over HTTP, until the caller has gone.

    A call is a run, and is recorded as any other. Its progress is the steps that have ended; to cancel it stops them.
    A run that waits for people returns its questions, and the tool answer lets it continue.
    """
    from dagrun.cli.jobs.mcp_job import McpJob

    return McpJob(flags).carry_out()


@mcp.command(epilog=PIN, short_help="Show what servers say about their tools, and pin it.")
@options.combined(options.mcp_servers, options.secrets)
@click.option("--yes", "is_sure", is_flag=True, help="Write without asking.")
@options.directory
def pin(**flags: Any) -> int:
    """Show what servers say about their tools, as far as it is new, and write it to the lock file.

    The file is that of --mcp-pins or of the setting mcp_pins; else mcp.lock.json beside the first file of servers.
    """
    from dagrun.cli.jobs.pin_job import PinJob

    return PinJob(flags).pin(is_sure=flags["is_sure"])


@mcp.command(epilog=CHECK, short_help="Compare what servers say about their tools with the pins.")
@options.combined(options.mcp_servers, options.secrets, options.as_json, options.directory)
def check(**flags: Any) -> int:
    """Compare what servers say about their tools with the lock file, and show what differs."""
    from dagrun.cli.jobs.pin_job import PinJob

    return PinJob(flags).check(as_json=flags["as_json"])
