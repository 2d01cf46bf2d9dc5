"""``dagrun serve`` and ``dagrun mcp``: servers for people and other programs, and the pins of MCP tools."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from dagrun.cli.records.resume_command import labels_of, options_again
from dagrun.cli.records.run_store import open_runs
from dagrun.cli.setup.settings import configure
from dagrun.cli.table_command import command
from dagrun.cli.terminal.text import SCHEMA_VERSION, data_output, printable
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import ContractError, PlanRefused, shorten

if TYPE_CHECKING:
    from dagrun import CheckedPlan
    from dagrun.cli.jobs.page_server import PageServer
    from dagrun.cli.terminal.signals import Interrupts
    from dagrun.kernel.model.tool import AnyTool
    from dagrun.serve.mcp.plan_server import PlanServer
    from dagrun.sources.mcp_pins import Difference, LockFile, Offer


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

    records = open_runs(configure(flags))
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
    if is_sure and check:
        raise BadInput("--check writes nothing; leave --yes out")
    if as_json and not check:
        raise BadInput("--json is for --check")
    return PinJob(flags).check(as_json=as_json) if check else PinJob(flags).pin(is_sure=is_sure)


TOKEN: Final = "DAGRUN_MCP_TOKEN"
_ENDINGS: Final = (".json", ".yaml", ".yml")
_MOST_PLANS: Final = 200


class McpJob:
    """Serves plans until the caller has gone.

    Args:
        flags: The flags of the command line.

    Raises:
        BadInput: Something that is named cannot be used, or a tool with an effect asks nobody.
        PlanRefused: A plan has problems.
    """

    def __init__(self, flags: Mapping[str, Any]) -> None:
        from dagrun.cli.jobs.job import typed_arguments
        from dagrun.cli.setup.secrets import record_key, secrets_of
        from dagrun.cli.setup.tool_modules import configure_tools, load_toolbox
        from dagrun.serve.mcp.plan_inputs import tools_of
        from dagrun.serve.mcp.served_runs import Host

        self._token = _token() if flags["over_http"] else ""
        configuration = configure(flags)
        limits = configuration.limits()
        toolbox = load_toolbox(configuration)
        configure_tools(configuration, limits)
        self._flags = flags
        self._deps = configuration.settings.deps
        again = options_again(configuration, None, {**flags, "critics": (), "compose": None})
        self._host = Host(
            toolbox=toolbox,
            labels=labels_of(typed_arguments(), configuration, again),
            journal=open_runs(configuration).journal,
            policy=limits.policy,
            secrets=secrets_of(configuration),
            record_key=record_key(),
        )
        self._plans = self._read(Path(flags["plans"])) if flags["plans"] is not None else {}
        reached = [tool for plan in self._plans.values() for tool in tools_of(plan)]
        self._refuse_unasked(reached if flags["plans"] is not None else [*toolbox.values()])

    def _read(self, folder: Path) -> dict[str, CheckedPlan]:
        from dagrun.cli.setup.plans import load_plan
        from dagrun.kernel.checks.check_plan import check_plan

        files = sorted(path for path in folder.iterdir() if path.suffix in _ENDINGS and path.is_file())
        if not 0 < len(files) <= _MOST_PLANS:
            raise BadInput(f"--plans {folder}: it has {len(files)} plans (.json, .yaml), not 1 to {_MOST_PLANS}")
        host, plans = self._host, {}
        for path in files:
            if path.stem in plans:
                raise BadInput(f"--plans {folder}: two plans are called {path.stem}")
            try:
                plan = load_plan(str(path), host.toolbox)
                plans[path.stem] = check_plan(plan, host.toolbox, host.policy, secrets=host.secrets)
            except PlanRefused as refused:
                click.echo(f"{path}:", err=True)
                raise refused
        return plans

    def _refuse_unasked(self, reached: list[AnyTool]) -> None:
        from dagrun.serve.mcp.plan_inputs import unasked

        names = list(dict.fromkeys(unasked(reached, self._host.policy)))
        if names and not self._flags["allows_effects"]:
            raise BadInput(
                f"callers could change the world without a person's yes, by {shorten(', '.join(names))}: let these "
                'tools ask (needs_approval=True, or approve = [{tool = "…"}] in the policy), or say --yes-effects'
            )

    def carry_out(self) -> int:
        """Serve, and return the exit code."""
        import anyio

        from dagrun.cli.jobs.execute import unwrapped
        from dagrun.cli.setup.tool_modules import loop_of

        with unwrapped():
            anyio.run(self._serve, backend_options=loop_of(self._host.toolbox))
        return 0

    async def _serve(self) -> None:
        from dagrun.cli.setup.tool_modules import opened_deps
        from dagrun.cli.terminal.signals import Interrupts
        from dagrun.serve.mcp.plan_server import plan_server

        offers = not self._flags["no_answers"]
        async with (
            opened_deps(self._deps, self._host.toolbox) as deps,
            plan_server(replace(self._host, deps=deps), self._plans, offers_answers=offers) as server,
        ):
            with Interrupts() as signals:
                await (self._over_http if self._flags["over_http"] else _over_stdio)(server, signals)

    async def _over_http(self, server: PlanServer, signals: Interrupts) -> None:
        from dagrun.cli.jobs.page_server import LOOPBACK, bound_socket, quiet_server
        from dagrun.cli.terminal.signals import next_in_loop
        from dagrun.serve.guard import KnownOnly

        socket = bound_socket(LOOPBACK, self._flags["port"])
        app = server.library_server.streamable_http_app(host=LOOPBACK)
        guarded = KnownOnly(app, token=self._token, authorize=None, user="")
        http = quiet_server(guarded, lifespan="on")

        def stop(_: int) -> None:
            http.should_exit = True

        signals.on_first(next_in_loop(stop))
        click.echo(f"mcp: http://{LOOPBACK}:{socket.getsockname()[1]}/mcp", err=True)
        if not os.environ.get(TOKEN):
            click.echo(f"token: {self._token}", err=True)
        await http.serve(sockets=[socket])


def _token() -> str:
    """Return the token of the environment, or a new one."""
    from dagrun.serve.guard import check_token

    token = os.environ.get(TOKEN) or secrets.token_urlsafe(24)
    try:
        check_token(token)
    except ContractError as error:
        raise BadInput(f"{TOKEN}: {error}") from None
    return token


async def _over_stdio(server: PlanServer, signals: Interrupts) -> None:
    import anyio

    from dagrun.cli.terminal.signals import exit_hard, next_in_loop
    from dagrun.sources.mcp_connection import mcp_library

    stopped = anyio.Event()
    signals.on_first(next_in_loop(lambda _: stopped.set()))

    async def stop() -> None:
        await stopped.wait()
        await server.suspend()
        exit_hard(0)  # a thread waits for the next line of the standard input, and nothing wakes it

    library = server.library_server
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stop)
        async with mcp_library("mcp.server.stdio").stdio_server() as (received, sent):
            await library.run(received, sent, library.create_initialization_options())
        tasks.cancel_scope.cancel()


LOCK: Final = "mcp.lock.json"
_NO: Final = 130
_TEXT: Final = 400  # characters of a description that nobody has agreed to yet


class PinJob:
    """Compares the tools of servers with their lock file.

    Args:
        flags: The flags of the command line.

    Raises:
        BadInput: No servers are named, one cannot be reached, or a file cannot be used.
    """

    def __init__(self, flags: Mapping[str, Any]) -> None:
        from dagrun.cli.setup.mcp_servers import offered_tools

        configuration = configure(flags)
        files = configuration.settings.mcp_files
        if not files:
            raise BadInput('name the MCP servers: --mcp FILE, or mcp_files = ["FILE"] in dagrun.toml')
        named = configuration.path("mcp_pins")
        self._is_named = named is not None
        beside = (configuration.origins["mcp_files"].folder / files[0]).parent
        self._path: Path = named if named is not None else beside / LOCK
        with redirect_stdout(sys.stderr):
            self._offers: Sequence[Offer] = offered_tools(configuration)

    def pin(self, *, is_sure: bool) -> int:
        """Show the changes, ask, and write; return the exit code."""
        from dagrun.sources.mcp_pins import LockFile, write_lock

        is_there = self._path.exists()
        lock = self._lock() if is_there else LockFile(self._path)
        found = lock.differences(self._offers)
        if is_there and not found:
            click.echo(f"nothing has changed: {_count_offers(self._offers)} in {printable(str(self._path))}")
            return 0
        click.echo(printable("\n".join(self._lines(found))))
        if not is_sure:
            if not sys.stdin.isatty():
                raise BadInput("here is nobody to ask; look at what has changed, and add --yes")
            if not click.confirm(f"Do you agree to this, and write it to {printable(str(self._path))}?", err=True):
                click.echo("not written", err=True)
                return _NO
        try:
            write_lock(self._path, self._offers)
        except ContractError as error:
            raise BadInput(str(error)) from error
        click.echo(f"pinned {_count_offers(self._offers)} in {printable(str(self._path))}")
        if not self._is_named:
            click.echo(f'hold runs to it: mcp_pins = "{self._path.name}" in dagrun.toml, or --mcp-pins', err=True)
        return 0

    def check(self, *, as_json: bool) -> int:
        """Show the differences; return the exit code."""
        found = self._lock().differences(self._offers)
        with data_output() as data:
            if as_json:
                shown = [
                    {"server": one.server, "tool": one.tool, "place": one.place, "was": one.was, "now": one.now}
                    for one in found
                ]
                data.json({"schema_version": SCHEMA_VERSION, "lock": str(self._path), "differences": shown})
            else:
                data.text(
                    "\n".join(self._lines(found)) or f"{_count_offers(self._offers)}, all as pinned in {self._path}"
                )
        return int(bool(found))

    def _lock(self) -> LockFile:
        from dagrun.sources.mcp_pins import read_lock

        try:
            return read_lock(self._path)
        except ContractError as error:
            raise BadInput(str(error)) from error

    def _lines(self, found: Sequence[Difference]) -> Iterator[str]:
        offers = {(offer.server, offer.name): offer for offer in self._offers}
        last = None
        for one in found:
            name = shorten(f"{one.server}.{one.tool}" if one.tool else one.server, 140)
            if not one.place:
                offer = offers.get((one.server, one.tool))
                yield f"{'+' if one.was is None else '-'} {name} {one.sentence}{_about(one, offer)}"
                last = None
                continue
            if name != last:
                yield f"~ {name} has changed"
                last = name
            yield f"    {one.place} {one.sentence}"


def _about(one: Difference, offer: Offer | None) -> str:
    """Return the text that a person must read before the first approval of a tool."""
    if one.now is None or offer is None:
        return ""
    text = str(offer.definition.get("description") or offer.definition.get("title") or "(it says nothing)")
    return f", {offer.effect}:\n    {shorten(text, _TEXT)}"


def _count_offers(offers: Sequence[Offer]) -> str:
    servers = len({offer.server for offer in offers})
    tools = f"{len(offers)} tool{'s' * (len(offers) != 1)}"
    return f"{tools} of {servers} server{'s' * (servers != 1)}"
