"""``dagrun serve``: the live page of the runs on record, whoever carries them out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from dagrun.cli import options
from dagrun.cli.records.run_records import open_records, records_option
from dagrun.cli.setup.settings import configure

if TYPE_CHECKING:
    from dagrun.cli.jobs.page_server import PageServer

EPILOG: Final = """
\b
Examples:
  dagrun serve --open
  dagrun serve --runs /srv/runs --read-only
  dagrun serve --host 0.0.0.0 --allow-host runs.example.org

\b
Exit codes: 0 after Ctrl-C, 2 if the port is in use.
The token of the page is made anew each time; DAGRUN_PAGE_TOKEN sets it.
"""


@click.command(epilog=EPILOG)
@options.combined(records_option, options.artifacts, options.directory)
@options.port
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="The address.  [default: 127.0.0.1]")
@click.option(
    "--allow-host",
    multiple=True,
    metavar="NAME",
    help="A name under which browsers may reach the page, besides those of this machine. May be repeated.",
)
@click.option("--read-only", is_flag=True, help="Let people look, and change nothing.")
@options.open_browser
def serve(**flags: Any) -> int:
    """Show the recorded runs in a browser: what they do now, what they wait for, and what happened.

    Questions can be answered there, and runs cancelled or suspended, also those of other processes. The page starts
    nothing. Its address holds a token: whoever has it can answer for you.
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
