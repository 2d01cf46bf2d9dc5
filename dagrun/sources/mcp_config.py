"""Read the configuration of MCP servers, and the host's rules for each.

The file is the one that people have: ``mcpServers`` (Claude, Cursor) or ``servers`` (VS Code), each with ``command``,
``args``, ``env`` and ``cwd``, or ``url`` and ``headers``. What dagrun needs besides stands apart from it, so that the
file stays valid elsewhere.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dagrun.errors import ContractError, shorten
from dagrun.kernel.model.effect import Effect
from dagrun.kernel.model.secrets import NO_SECRETS, Secrets
from dagrun.kernel.model.signature import explain

# Plain, or in the ways of Cursor and VS Code: ``${env:NAME}``, ``${input:name}``, ``${workspaceFolder}``.
_VARIABLE: Final = re.compile(
    r"\$\{(?:env:(?P<env>\w+)|input:(?P<input>[\w.-]+)|(?P<name>[A-Za-z_]\w*)(?::-(?P<default>[^}]*))?)\}", re.ASCII
)
_FOLDERS: Final = {"workspaceFolder": Path.cwd, "userHome": Path.home}
_MOST_BYTES: Final = 1 << 20


class ServerRules(BaseModel):
    """The host's rules for one server.

    Attributes:
        trust: ``none``: every tool is effectful, unless *effects* says otherwise; ``hints``: what the server says about
            its tools counts.
        allow: Patterns of the names of its tools, as for files: ``search_*``. Others are not offered.
        errors: ``clean``: an error that a tool reports means that nothing has happened; ``unknown``: for a tool with an
            effect, it may have.
        timeout: Seconds for each attempt of a call; or none.
        max_running: How many of its calls run at once in a run; or no limit.
        effects: The effects of its tools by name, or by patterns of names; a name comes before patterns.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    trust: Literal["none", "hints"] = "none"
    allow: tuple[str, ...] = ("*",)
    errors: Literal["unknown", "clean"] = "unknown"
    timeout: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    max_running: int | None = Field(default=None, ge=1, strict=True)
    effects: dict[str, Effect] = Field(default_factory=dict)


class _Entry(BaseModel):
    """A server in the file; fields that only other programs read are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    disabled: bool = False


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One server.

    Attributes:
        name: Its name, with which the names of its tools begin.
        target: The command with its arguments; or its address; or a server object of the MCP library, which runs in
            this program.
        extra: More variables of its environment; or the headers of requests to its address.
        cwd: The folder that it runs in; `None` for this program's.
        rules: What the host says about it.
        written: Its command or its address as it is written, before variables are filled in.
        secrets: What no message about it may show.
    """

    name: str
    target: tuple[str, ...] | str | Any
    extra: Mapping[str, str] = field(repr=False)
    cwd: str | None
    rules: ServerRules
    written: str
    secrets: Secrets = NO_SECRETS


def read_config(
    source: str | Path | Mapping[str, Any],
    rules: Mapping[str, Mapping[str, Any] | ServerRules] | None,
    secrets: Secrets = NO_SECRETS,
) -> list[ServerConfig]:
    """Return the servers of a file, or of an object of that form.

    Args:
        source: The path of the file; or its content; or only its servers by name.
        rules: What the host says about servers, by name.
        secrets: What ``${NAME}`` stands for before variables of the environment are looked at.

    Raises:
        ContractError: The file cannot be read, a variable is not set, a server has neither a command nor an address, or
            *rules* name a server that is not there.
    """
    origin = "mcp_tools" if isinstance(source, Mapping) else str(source)
    servers = _entries(source, origin)
    given = rules or {}
    found = [
        _server(origin, name, entry, given.get(name, {}), secrets) for name, entry in servers.items() if _is_on(entry)
    ]
    if left := [name for name in given if name not in servers]:
        unknown = shorten(", ".join(left))
        raise ContractError(f"{origin}: it has no server {unknown}; its servers are {', '.join(servers)}")
    if not found:
        raise ContractError(f"{origin}: it names no server")
    return found


def server_names(path: Path) -> list[str]:
    """Return the names of the servers in a file; of a file that cannot be read, none."""
    try:
        return [*_entries(path, "")]
    except ContractError:
        return []


def _entries(source: str | Path | Mapping[str, Any], origin: str) -> Mapping[str, Any]:
    content = source if isinstance(source, Mapping) else _loaded(Path(source))
    servers = next((content[key] for key in ("mcpServers", "servers") if key in content), content)
    if not isinstance(servers, Mapping):
        raise ContractError(f"{origin}: the servers are no object")
    return servers


def _loaded(path: Path) -> Mapping[str, Any]:
    try:
        data = path.expanduser().read_bytes()
    except OSError as error:
        raise ContractError(f"{path}: it cannot be read: {error.strerror}") from error
    try:
        content = json.loads(data[:_MOST_BYTES])
    except (ValueError, RecursionError) as error:
        raise ContractError(f"{path}: it is no JSON: {shorten(str(error))}") from error
    if not isinstance(content, dict):
        raise ContractError(f"{path}: it is no object with servers")
    return content


def _is_on(entry: Any) -> bool:
    return not (isinstance(entry, Mapping) and entry.get("disabled") is True)


def _server(origin: str, name: str, entry: Any, rules: Any, secrets: Secrets) -> ServerConfig:
    what = f"{origin}: server {shorten(str(name), 60)}"
    said = _validated(ServerRules, rules, f"{what}: its rules") if isinstance(rules, Mapping) else rules
    if not isinstance(entry, Mapping):
        if entry is None or isinstance(entry, str | bool | int | float | list):  # a file has nothing else
            raise ContractError(f"{what} is an object with a command or a url, not {type(entry).__name__}")
        return ServerConfig(name, entry, {}, None, said, f"{type(entry).__module__}.{type(entry).__qualname__}")
    known: _Entry = _validated(_Entry, _expanded(entry, what, name, secrets), what)
    if known.command is not None and known.url is None:
        return ServerConfig(name, (known.command, *known.args), known.env, known.cwd, said, _written(entry), secrets)
    if known.url is None:
        raise ContractError(f"{what} has no command and no url")
    if known.command is not None:
        raise ContractError(f"{what} has a command and a url; it can have one of them")
    if fault := _fault_of_address(known.url):
        raise ContractError(f"{what}: url: {fault}")
    return ServerConfig(name, known.url, known.headers, None, said, _written(entry), secrets)


def _written(entry: Mapping[str, Any]) -> str:
    """Return the command or the address of a server in its written form, without secrets filled in."""
    return str(entry["url"]) if entry.get("url") is not None else shlex.join((entry["command"], *entry.get("args", ())))


def _fault_of_address(url: str) -> str:
    """Return why an address cannot be used, without showing it; empty if it can."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError as error:
        return f"it is no address: {error}"
    if parts.scheme not in {"http", "https"} or not host:
        return "it must begin with http:// or https://"
    if parts.username is not None or parts.password is not None:
        return "a name or a password in it would be shown in messages; write a header in its place"
    return ""


def _validated(kind: type[BaseModel], value: Any, what: str) -> Any:
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise ContractError(f"{what}: {explain(error)}") from None


def _expanded(value: Any, what: str, server: str, secrets: Secrets) -> Any:
    """Fill in ``${NAME}`` and ``${NAME:-default}`` from secrets, or else from the environment."""
    match value:
        case str():
            return _VARIABLE.sub(lambda match: _variable(match, what, server, secrets), value)
        case Mapping():
            return {key: _expanded(part, what, server, secrets) for key, part in value.items()}
        case list() | tuple():
            return [_expanded(part, what, server, secrets) for part in value]
        case _:
            return value


def _variable(match: re.Match[str], what: str, server: str, secrets: Secrets) -> str:
    default = match["default"]
    name = match["env"] or match["name"] or re.sub(r"\W", "_", match["input"])  # what a secret can be called
    if match["name"] in _FOLDERS:
        return str(_FOLDERS[match["name"]]())
    if name in secrets and name not in secrets.missing:
        try:
            return secrets.reveal(server, name).get_secret_value()
        except LookupError:
            raise ContractError(f"{what}: it may not have the secret {name}") from None
    found = os.environ.get(name)
    found = found if found or default is None else default  # as in a shell, where an empty variable has the default
    if found is None:
        raise ContractError(f"{what}: {name} is no secret and no variable that is set; write ${{{name}:-default}}")
    return found
