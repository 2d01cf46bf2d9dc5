"""``dagrun serve`` and ``dagrun mcp``: servers for people and for other programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dagrun.cli.records.run_records import open_records
from dagrun.cli.setup.settings import configure
from dagrun.cli.table_command import command
from dagrun.cli.terminal.user_errors import BadInput

if TYPE_CHECKING:
    from dagrun.cli.jobs.page_server import PageServer


@command("serve")
def serve(**flags: Any) -> int:
    """Show the recorded runs in a browser: their state, their questions, and their history.

    Questions can be answered there, and runs cancelled or suspended, also runs of other processes. The page starts
    nothing. Its address has a token: everyone who has it can answer for you.

    Examples:
      dagrun serve --open
      dagrun serve --runs /srv/runs --read-only
      dagrun serve --host 0.0.0.0 --allow-host runs.example.org

    Exit codes: 0 after Ctrl-C, 2 if the port is in use.
    The page has a new token each time; DAGRUN_PAGE_TOKEN sets it.
    """
    import anyio

    from dagrun.cli.jobs.page_server import PageServer

    records = open_records(configure(flags))
    anyio.run(_serve, PageServer(records.journal, flags))
    return 0


async def _serve(server: PageServer) -> None:
    from dagrun.cli.terminal.signals import Interrupts, next_in_loop

    with Interrupts() as signals:
        signals.on_first(next_in_loop(lambda _: server.stop()))
        server.announce(lambda text: click.echo(text, err=True))
        await server.serve()


@click.group()
def mcp() -> None:
    """Offer plans to other programs by the Model Context Protocol, and pin the tools of servers; needs the extra mcp.

    A pin is the hash of what a server says about a tool: its description, schemas and annotations. With the setting
    mcp_pins or --mcp-pins, no plan may call a tool that differs from its pin, or has none.
    """


@command("mcp.serve", mcp, short_help="Serve plans over stdin and stdout, or over HTTP.")
def serve_plans(**flags: Any) -> int:
    """Serve plans over stdin and stdout, or over HTTP, until the caller has gone.

    A call is a run, and is recorded as any other. Its progress is the steps that have ended; to cancel it stops them.
    A run that waits for people returns its questions, and the tool answer lets it continue.

    Examples:
      dagrun mcp serve --tools my_tools
      dagrun mcp serve --tools my_tools --plans plans/
      dagrun mcp serve --tools my_tools --http --port 8400

    The entry for a program that starts servers (mcpServers in its configuration):
      {"command": "dagrun", "args": ["mcp", "serve", "-C", "/srv/project",
                                     "--tools", "my_tools", "--plans", "plans"]}

    Exit codes: 0 when the caller has closed the connection, or after Ctrl-C;
    2 wrong usage; 3 a plan has problems.
    Over HTTP, every request sends the token: it is printed, and DAGRUN_MCP_TOKEN
    sets it.
    """
    from dagrun.cli.jobs.mcp_job import McpJob

    return McpJob(flags).carry_out()


@command("mcp.pin", mcp, short_help="Show the descriptions of MCP tools, and pin or check them.")
def pin(*, check: bool, is_sure: bool, as_json: bool, **flags: Any) -> int:
    """Show new and changed descriptions of MCP tools, and write them to the lock file.

    The file is given by --mcp-pins or the setting mcp_pins; else it is mcp.lock.json beside the first file of servers.
    --check compares the MCP tools with the lock file, and shows the differences.

    Examples:
      dagrun mcp pin --mcp mcp.json
      dagrun mcp pin --yes
      dagrun mcp pin --check --mcp mcp.json --mcp-pins mcp.lock.json

    Exit codes: 0 written, or nothing has changed; 2 wrong usage; 130 you said no. With --check: 0 all is as it was
    pinned; 1 something differs.
    """
    from dagrun.cli.jobs.pin_job import PinJob

    if is_sure and check:
        raise BadInput("--check writes nothing; leave --yes out")
    if as_json and not check:
        raise BadInput("--json is for --check")
    return PinJob(flags).check(as_json=as_json) if check else PinJob(flags).pin(is_sure=is_sure)
