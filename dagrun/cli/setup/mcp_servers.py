"""Tools of the MCP servers in the files that ``--mcp FILE`` or the setting ``mcp_files`` names.

A command starts the servers once: their tools are listed before a run, and called in it.

1. A command is plain code that lists tools, checks a plan, and then starts a loop for the run. A connection belongs to
   the loop on which it was opened. So the loop of the listing is kept, and the run goes on with it: its first call
   finds a server that has started.
2. The connections belong to one task on that loop, which waits until they are closed. While no loop runs, it stands
   still; a server does not notice.
3. A command that calls nothing closes them at its end.
4. A run on any other loop, such as the second run of a command, closes what is open, and connects again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread
import click

from dagrun import Secrets, Toolbox
from dagrun.cli.setup.secrets import names_of_secrets, secret_named
from dagrun.cli.setup.settings import Configuration
from dagrun.cli.setup.toml_files import check_fields, read_toml
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import ContractError, hint, shorten
from dagrun.kernel.model.secrets import AnySecret
from dagrun.kernel.runtime.backend import loop_options

if TYPE_CHECKING:
    from dagrun.sources.mcp import McpTools
    from dagrun.sources.mcp_config import ServerConfig, ServerRules
    from dagrun.sources.mcp_pins import LockFile, Offer


_CONNECT_SECONDS: Final = 60.0


def listed_servers(configuration: Configuration) -> tuple[KeptServers, Toolbox]:
    """Return the servers that the settings name, and their tools, which work while the servers are open.

    Raises:
        BadInput: A file or a table has a fault, or a server cannot be reached.
    """
    from dagrun.sources.mcp_pins import read_lock

    try:
        pins = configuration.path("mcp_pins")
        servers = KeptServers(_servers(configuration, None if pins is None else read_lock(pins)))
        return servers, servers.listed()
    except ContractError as error:
        raise BadInput(str(error)) from error


def offered_tools(configuration: Configuration) -> list[Offer]:
    """Return the tools that the servers in the settings offer, without checking pins.

    Raises:
        BadInput: As `listed_servers`.
    """
    try:
        servers = _servers(configuration, None)
        kept = KeptServers(servers)
        kept.listed()
        kept.close()
        return servers.offers
    except ContractError as error:
        raise BadInput(str(error)) from error


def _servers(configuration: Configuration, lock: LockFile | None) -> McpTools:
    from dagrun.sources.mcp import McpTools

    return McpTools(_configured(configuration), _CONNECT_SECONDS, lock)


def _configured(configuration: Configuration) -> list[ServerConfig]:
    from dagrun.sources.mcp_config import read_config

    rules, secrets = dict(_rules(configuration)), _secrets(configuration)
    folder = configuration.origins["mcp_files"].folder
    found: dict[str, ServerConfig] = {}
    for file in configuration.settings.mcp_files:
        for server in read_config(folder / file, None, secrets):
            if server.name in found:
                raise BadInput(f"--mcp {file}: there are two servers {shorten(server.name, 60)}")
            found[server.name] = server
    for name in rules.keys() - found.keys():
        _refuse_unknown(configuration, name, [*found])
    return [replace(server, rules=rules.get(name, server.rules)) for name, server in found.items()]


def _refuse_unknown(configuration: Configuration, name: str, found: list[str]) -> None:
    """Refuse rules for a server that is not there, unless they are for one that this command does not name.

    Raises:
        BadInput: No file that the settings with the rules name has such a server.
    """
    from dagrun.sources.mcp_config import server_names

    origin = configuration.origins["mcp"]
    if configuration.origins["mcp_files"] != origin:  # the servers come from the command line, say
        project = configuration.project
        fields = project.fields if origin.is_project and project is not None else read_toml(Path(origin.name))
        others = [server for file in fields.get("mcp_files", ()) for server in server_names(origin.folder / file)]
        if name in others:
            return
        if not origin.is_project and not hint(name, found):  # rules of the user, for the servers of any project
            return
    known = shorten(", ".join(found))
    raise BadInput(
        f"{origin.name}: mcp.{shorten(name, 60)}: there is no such server; they are {known}{hint(name, found)}"
    )


def _rules(configuration: Configuration) -> Iterator[tuple[str, ServerRules]]:
    from dagrun.sources.mcp_config import ServerRules

    origin = configuration.origins["mcp"].name
    for name, table in configuration.settings.mcp.items():
        yield name, check_fields(ServerRules, table, f"{origin}: mcp.{shorten(name, 60)}")


def _secrets(configuration: Configuration) -> Secrets:
    """Return the secrets with a usable value; a file that names another one reports it as missing."""
    found: dict[str, AnySecret] = {}
    for name in names_of_secrets(configuration):
        value = secret_named(configuration, name)
        try:
            Secrets({name: value or ""})
        except ContractError:
            continue
        found[name] = value or ""
    return Secrets(found)


class KeptServers:
    """Connections to servers that stay open from the listing of their tools until a run has ended.

    Args:
        servers: The servers: a block that returns their tools, and that may be entered again.
    """

    def __init__(self, servers: AbstractAsyncContextManager[Toolbox]) -> None:
        self._servers = servers
        self._runner: asyncio.Runner | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._is_own = False  # whether the present block has opened the servers itself

    def listed(self) -> Toolbox:
        """Start the servers, and return their tools; the end of the command closes those that no run uses.

        Raises:
            ContractError: A server cannot be reached.
        """
        library = import_module("uvloop") if "use_uvloop" in loop_options() else asyncio
        self._runner = asyncio.Runner(loop_factory=library.new_event_loop)
        if (command := click.get_current_context(silent=True)) is not None:
            command.call_on_close(self.close)
        try:
            return self._runner.run(self._open())
        except BaseException:
            self.close()
            raise

    async def _open(self) -> Toolbox:
        opened: asyncio.Future[Toolbox] = asyncio.get_running_loop().create_future()
        self._keeping = asyncio.create_task(self._keep(opened))
        return await opened

    async def _keep(self, opened: asyncio.Future[Toolbox]) -> None:
        """Open the servers, and close them when that is wanted, or when the loop is closed."""
        try:
            async with self._servers as tools:
                opened.set_result(tools)
                await self._closing.wait()
        except Exception as error:
            if opened.done():
                raise
            opened.set_exception(error)

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop with the open servers; `None` if they are closed."""
        if self._runner is None or self._keeping is None or self._keeping.done():
            return None
        return self._runner.get_loop()

    def close(self) -> None:
        """Close the servers that were listed; nothing happens if they are closed, or a run has their loop."""
        runner, self._runner = self._runner, None
        if runner is not None and not (loop := runner.get_loop()).is_closed() and not loop.is_running():
            runner.close()  # cancels the task that keeps them, and waits for its end

    async def __aenter__(self) -> None:
        """Open the servers, if they are not open on the loop that runs."""
        if self.loop is asyncio.get_running_loop():
            return
        if self._runner is not None:  # they are open on a loop that stands still
            await anyio.to_thread.run_sync(self.close)
        await self._servers.__aenter__()
        self._is_own = True

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the servers."""
        if self._is_own:
            self._is_own = False
            await self._servers.__aexit__(kind, error, trace)
        elif self._keeping is not None:
            self._closing.set()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([self._keeping])
            if not self._keeping.cancelled():
                self._keeping.result()  # faults while they were closed
