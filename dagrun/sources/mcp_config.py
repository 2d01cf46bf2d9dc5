"""Read which MCP servers there are, and what the host says about each.

The file is the one that people have: ``mcpServers`` (Claude, Cursor) or ``servers`` (VS Code), each with ``command``,
``args``, ``env`` and ``cwd``. What dagrun needs besides stands apart from it, so that the file stays valid elsewhere.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dagrun.errors import ContractError, shorten
from dagrun.model.effect import Effect
from dagrun.model.signature import explain

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_MOST_BYTES: Final = 1 << 20


class ServerRules(BaseModel):
    """What the host says about one server.

    Attributes:
        trust: ``none``: every tool is effectful, unless *effects* says otherwise; ``hints``: what the server says about
            its tools counts.
        allow: Patterns of the names of its tools, as for files: ``search_*``. Others are not offered.
        errors: ``clean``: an error that a tool reports means that nothing has happened; ``unknown``: for a tool with an
            effect, it may have.
        timeout: Seconds for each attempt of a call; or none.
        effects: The effects of its tools by name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    trust: Literal["none", "hints"] = "none"
    allow: tuple[str, ...] = ("*",)
    errors: Literal["unknown", "clean"] = "unknown"
    timeout: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    effects: dict[str, Effect] = Field(default_factory=dict)


class _Entry(BaseModel):
    """A server in the file; fields that only other programs read are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    cwd: str | None = None
    url: str | None = None
    disabled: bool = False


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One server.

    Attributes:
        name: Its name, with which the names of its tools begin.
        target: The command with its arguments; or a server object of the MCP library, which runs in this program.
        env: More variables of its environment.
        cwd: The folder that it runs in; `None` for that of this program.
        rules: What the host says about it.
    """

    name: str
    target: tuple[str, ...] | Any
    env: Mapping[str, str]
    cwd: str | None
    rules: ServerRules


def read_config(
    source: str | Path | Mapping[str, Any], rules: Mapping[str, Mapping[str, Any] | ServerRules] | None
) -> list[ServerConfig]:
    """Return the servers of a file, or of an object of that form.

    Args:
        source: The path of the file; or its content; or only its servers by name.
        rules: What the host says about servers, by name.

    Raises:
        ContractError: The file cannot be read, a variable is not set, a server has no command, or *rules* name a server
            that is not there.
    """
    origin = "mcp_tools" if isinstance(source, Mapping) else str(source)
    content = source if isinstance(source, Mapping) else _loaded(Path(source))
    servers = next((content[key] for key in ("mcpServers", "servers") if key in content), content)
    if not isinstance(servers, Mapping):
        raise ContractError(f"{origin}: the servers are no object")
    left = dict(rules or {})
    found = [_server(origin, name, entry, left.pop(name, {})) for name, entry in servers.items() if _is_on(entry)]
    if left:
        raise ContractError(
            f"{origin}: it has no server {shorten(', '.join(left))}; its servers are {', '.join(servers)}"
        )
    if not found:
        raise ContractError(f"{origin}: it names no server")
    return found


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


def _server(origin: str, name: str, entry: Any, rules: Any) -> ServerConfig:
    what = f"{origin}: server {shorten(str(name), 60)}"
    said = _validated(ServerRules, rules, f"{what}: its rules") if isinstance(rules, Mapping) else rules
    if not isinstance(entry, Mapping):
        return ServerConfig(name, entry, {}, None, said)
    known: _Entry = _validated(_Entry, _expanded(entry, what), what)
    if known.command is None:
        reason = "has a url, and only servers that a command starts are supported" if known.url else "has no command"
        raise ContractError(f"{what} {reason}")
    return ServerConfig(name, (known.command, *known.args), known.env, known.cwd, said)


def _validated(kind: type[BaseModel], value: Any, what: str) -> Any:
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise ContractError(f"{what}: {explain(error)}") from None


def _expanded(value: Any, what: str) -> Any:
    """Fill in ``${NAME}`` and ``${NAME:-default}`` from the environment."""
    match value:
        case str():
            return _VARIABLE.sub(lambda match: _variable(match, what), value)
        case Mapping():
            return {key: _expanded(part, what) for key, part in value.items()}
        case list() | tuple():
            return [_expanded(part, what) for part in value]
        case _:
            return value


def _variable(match: re.Match[str], what: str) -> str:
    name, default = match.groups()
    found = os.environ.get(name) or default
    if found is None:
        raise ContractError(f"{what}: the variable {name} is not set; set it, or write ${{{name}:-default}}")
    return found
