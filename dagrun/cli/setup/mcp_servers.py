"""Tools of the MCP servers in the files that ``--mcp FILE`` or the setting ``mcp_files`` names.

A command starts the servers once: it lists their tools first, and its run goes on with the same connections; see
`kept_servers.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dagrun.cli.setup.secrets import names_of_secrets, secret_named
from dagrun.cli.setup.settings import Configuration
from dagrun.cli.setup.shared_servers import KeptServers
from dagrun.cli.setup.toml_files import check_fields, read_toml
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import ContractError, shorten
from dagrun.model.secrets.secret import AnySecret, Secrets
from dagrun.model.toolbox import hint

if TYPE_CHECKING:
    from dagrun.model.toolbox import Toolbox
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
