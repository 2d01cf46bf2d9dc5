"""`mcp_tools`: the tools of MCP servers, as a toolbox."""

from __future__ import annotations

import base64
import binascii
import fnmatch
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup
from pydantic import ValidationError

from dagrun.errors import ContractError, ToolError, shorten
from dagrun.kernel.model.effect import Effect
from dagrun.kernel.model.secrets import AnySecret, Secrets, secrets_from
from dagrun.kernel.model.signature import explain
from dagrun.kernel.model.tool import AnyTool, SaidBy, Toolbox, ToolOrigin
from dagrun.kernel.model.tool_context import ToolContext
from dagrun.sources.mcp_config import ServerConfig, ServerRules, read_config
from dagrun.sources.mcp_connection import Call, Connection, is_closed, mcp_library
from dagrun.sources.mcp_pins import LockFile, Offer, definition_of, pin_of, read_lock
from dagrun.sources.schemas import fits_nothing, fitting_name, said_of, schema_tool

_LOG: Final = logging.getLogger("dagrun.mcp")
_MOST_PAGES: Final = 100
_VERSION: Final = 16  # digits of the pin
KEY_META: Final = "dagrun/idempotency-key"

# Of JSON-RPC: the request was not understood, so nothing has happened.
_NOT_DONE: Final = frozenset((-32600, -32601, -32602))
# The library and servers use these two alike, so the code alone says nothing about the connection.
_CLOSED: Final = -32000
_TIMED_OUT: Final = -32001
_NO_ANSWER: Final = "SSE stream "  # how the library begins, where the answer to one request was lost
_RATE_LIMIT: Final = re.compile(r"rate.?limit|too many requests|\b429\b", re.IGNORECASE)
# Only a message that begins so says that the call was refused; others may tell of a limit that was met half-way.
_REFUSED: Final = re.compile(r"(?i)((mcp )?error( -?\d+)?: )*((api )?rate.?limit|too many requests|429\W*($|too many))")


def mcp_tools(
    config: str | Path | Mapping[str, Any],
    *,
    rules: Mapping[str, Mapping[str, Any]] | None = None,
    secrets: Secrets | Mapping[str, AnySecret] | None = None,
    pins: str | Path | None = None,
    connect_timeout: float = 60.0,
) -> McpTools:
    """Connect to MCP servers, and return their tools as a `Toolbox`, as long as an ``async with`` block lasts.

    A tool is called ``server.tool``. Arguments, and outputs with a schema, are enforced as those of `schema_tool`. An
    output without one is the text of its only block, or a list of blocks; pictures, sounds and files become artifacts.
    The list of tools is read once: a server that changes it later changes nothing in a run.

    A connection is shared by all runs. If a server dies, calls that were on their way fail as a broken connection does:
    those that only look are tried again, and effects are unknown. The next call starts it again.

    What a server asks in the middle of a call is asked of people, as the question of the step.

    What a server says about its own tools counts only with ``trust="hints"``; without a word of the host, every tool is
    effectful.

    Args:
        config: The path of the file with the servers, in the form of Claude and Cursor (``mcpServers``) or VS Code
            (``servers``); or its content.
        rules: What the host says about servers, by name: *trust*, *allow*, *errors*, *timeout*, *max_running* and
            *effects*.
        secrets: What ``${NAME}`` in the file stands for, in headers above all; for other names, it is a variable of the
            environment. A `Secret` whose *tools* do not name a server is not for that server.
        pins: The lock file that ``dagrun mcp pin`` has written. A tool that is not as it was pinned, or has no pin, is
            not offered to planners, and the check of a plan that names it says what has changed.
        connect_timeout: Seconds in which all servers must have answered at the start.

    Examples:
        In a program::

            rules = {"github": {"trust": "hints", "effects": {"create_issue": "effectful"}}}
            async with dagrun.mcp_tools("mcp.json", rules=rules) as tools:
                result = await dagrun.run(plan, tools=[tools])

    Raises:
        ContractError: The configuration or the lock file has a fault, or a server cannot be reached at the start.
        MissingExtra: The extra ``mcp`` is not installed.
    """
    lock = None if pins is None else read_lock(pins)
    return McpTools(read_config(config, rules, secrets_from(secrets)), connect_timeout, lock)


class McpTools:
    """The servers of one block; made by `mcp_tools`.

    Blocks may follow each other: the tools that the first one has listed work in each.

    Args:
        servers: The servers.
        connect_timeout: Seconds in which all of them must have answered at the start.
        lock: What their tools are held to; or nothing.

    Attributes:
        offers: The tools that they offer and that the host allows, after the first connection.
    """

    def __init__(self, servers: list[ServerConfig], connect_timeout: float, lock: LockFile | None = None) -> None:
        self.offers: list[Offer] = []
        self._servers = servers
        self._lock = lock
        self._connections = [Connection(server) for server in servers]
        self._tools: Toolbox | None = None
        self._connect_timeout = connect_timeout
        self._silent: list[str] = []
        self._group: TaskGroup | None = None

    async def __aenter__(self) -> Toolbox:
        """Connect to all servers concurrently, and list their tools."""
        mcp_library("mcp.client.client")
        self._group = await anyio.create_task_group().__aenter__()
        is_open = False
        try:
            for connection in self._connections:
                await self._group.start(connection.keep)
            if self._tools is None:
                with anyio.fail_after(self._connect_timeout):
                    self._tools = await self._listed()
            is_open = True
            return self._tools
        except TimeoutError:
            who = shorten(", ".join(self._silent))
            raise ContractError(f"MCP server {who} did not answer in {self._connect_timeout:g} s") from None
        finally:
            if not is_open:
                await self._close()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections, and end the servers that were started."""
        await self._close()

    async def _close(self) -> None:
        group, self._group = self._group, None
        if group is not None:
            group.cancel_scope.cancel()
            await group.__aexit__(None, None, None)  # an error of the block is not one of this group

    async def _listed(self) -> Toolbox:
        connections = self._connections
        lists: list[list[Any]] = [[] for _ in connections]
        self._silent = [connection.name for connection in connections]
        failures: list[ToolError] = []

        async def fill(number: int, connection: Connection) -> None:
            try:
                lists[number] = await _listed(connection)
            except ToolError as error:
                failures.append(error)
            self._silent.remove(connection.name)

        async with anyio.create_task_group() as listing:
            for number, connection in enumerate(connections):
                listing.start_soon(fill, number, connection)
        if failures:
            raise ContractError(failures[0].message)
        tools: dict[str, AnyTool] = {}
        self.offers = []
        for server, connection, listed in zip(self._servers, connections, lists, strict=True):
            for offer, tool in _tools_of(server, connection, listed, tools.keys()):
                tools[tool.name] = _held(tool, offer, self._lock)
                self.offers.append(offer)
        return Toolbox(list(tools.values()))


async def _listed(connection: Connection) -> list[Any]:
    """Return the tools of a server, as it describes them."""
    client = await connection.client()
    found: list[Any] = []
    cursor = None
    for _ in range(_MOST_PAGES):
        try:
            page = await client.list_tools(cursor=cursor)
        except mcp_library("mcp.shared.exceptions").MCPError as error:
            raise ToolError(f"MCP server {connection.name} does not list its tools: {shorten(str(error))}") from error
        except ValidationError as error:
            raise ToolError(f"MCP server {connection.name} does not list its tools: {explain(error)}") from error
        found += page.tools
        cursor = page.next_cursor
        if cursor is None:
            break
    return found


def _held(tool: AnyTool, offer: Offer, lock: LockFile | None) -> AnyTool:
    """Hold a tool to its pin."""
    if lock is None or tool.origin is None:
        return tool
    return replace(tool, origin=replace(tool.origin, refusal=lock.refusal(offer)))


def _tools_of(
    server: ServerConfig, connection: Connection, listed: list[Any], taken: Iterable[str]
) -> Iterator[tuple[Offer, AnyTool]]:
    """Yield the tools of a server that the host allows; one whose schema cannot be used is left out, and logged."""
    rules, names = server.rules, set(taken)
    known = {tool.name: tool for tool in reversed(listed)}  # of two tools of one name, the first
    if unknown := fits_nothing(rules.effects, known):
        raise ContractError(f"MCP server {server.name} has no tool {shorten(', '.join(sorted(unknown)))}")
    exact = {name for name in (f"{server.name}.{name}" for name in known) if fitting_name(name) == name}
    for listed_tool in listed:
        is_allowed = any(fnmatch.fnmatchcase(listed_tool.name, pattern) for pattern in rules.allow)
        if not is_allowed or known[listed_tool.name] is not listed_tool:
            continue
        written = f"{server.name}.{listed_tool.name}"
        name = fitting_name(written)
        if name in names or (name in exact and name != written):  # two names that are made to fit in the same way
            name = f"{name[:119]}_{sha256(listed_tool.name.encode(errors='replace')).hexdigest()[:8]}"
        names.add(name)
        try:
            tool, definition = _tool_of(server, connection, name, listed_tool)
        except ContractError as error:
            _LOG.warning("a tool of MCP server %s is left out: %s", server.name, error)
        else:
            yield Offer(server.name, server.written, definition, tool.effect), tool


def _tool_of(server: ServerConfig, connection: Connection, name: str, listed: Any) -> tuple[AnyTool, Mapping[str, Any]]:
    """Make a tool from the description of a server; return both.

    Raises:
        ContractError: Its schema cannot be used, or it can only be called as a task.
    """
    if listed.execution is not None and listed.execution.task_support == "required":
        raise ContractError(f"{name}: its server runs it as a task only, and tasks are not supported")
    rules = server.rules
    hinted = _hinted(listed.annotations) if rules.trust == "hints" else None
    told = said_of(rules.effects, listed.name)
    effect = told or hinted
    is_open = rules.trust != "hints" or _is_open(listed.annotations)
    tool = schema_tool(
        name,
        _ServerCall(connection, listed.name, rules, effect or Effect.EFFECTFUL).make,
        listed.input_schema,
        output=listed.output_schema,
        effect=effect,
        description=shorten(listed.description or listed.title or "", 2_000),
        timeout=rules.timeout,
        pool=server.name,
        untrusted=is_open,
        outbound=is_open,
    )
    definition = definition_of(listed)
    pin = pin_of(definition)
    said_by: SaidBy = "host" if told is not None else "nobody" if hinted is None else "hint"
    origin = ToolOrigin(server=server.name, said_by=said_by, pin=pin, max_running=rules.max_running)
    # The version is on record: a run that is resumed is told that a tool has changed.
    return replace(tool, origin=origin, version=pin[:_VERSION]), definition


def _hinted(annotations: Any) -> Effect | None:
    """Return the effect that a server claims for a tool."""
    hints = annotations and (annotations.read_only_hint, annotations.idempotent_hint, annotations.destructive_hint)
    if not hints or hints == (None, None, None):
        return None
    if annotations.read_only_hint:
        return Effect.READ
    return Effect.IDEMPOTENT if annotations.idempotent_hint else Effect.EFFECTFUL


def _is_open(annotations: Any) -> bool:
    """Whether a tool deals with a world that anybody may write in, and read: it does unless its server denies that."""
    return annotations is None or annotations.open_world_hint is not False


class _ServerCall:
    """Calls one tool of a server."""

    def __init__(self, connection: Connection, tool: str, rules: ServerRules, effect: Effect) -> None:
        self._connection = connection
        self._tool = tool
        self._is_clean = rules.errors == "clean" or effect.is_free
        self._has_effect = not effect.is_free

    async def make(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Make the call, and return its output as JSON; again, if its session is gone and it was not looked at."""
        result = await self._result(arguments, context) or await self._result(arguments, context)
        if result is None:
            raise ToolError(f"MCP server {self._connection.name} has no session for this call", retryable=True)
        if result.is_error:
            said = "\n".join(block.text for block in result.content if block.type == "text")
            raise self._reported(shorten(said, 1_000) or "it says no more", is_refused=self._is_clean)
        if result.structured_content is not None:
            return result.structured_content
        return _blocks(result.content, context)

    async def _result(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Return the result of one request; `None` if the server has no session for it, so that nothing happened."""
        client = await self._connection.client()
        meta = {KEY_META: context.idempotency_key} if self._has_effect else None
        with Call(self._connection.questions, context) as call:
            try:
                result = await client.call_tool(
                    self._tool, arguments, progress_callback=partial(_tell_progress, context), meta=meta
                )
                call.is_answered = True
            except mcp_library("mcp.shared.exceptions").MCPError as error:
                failure = self._failure(client, error)
                # Where the answer was lost, or did not come in time, the server may still be at work, and ask.
                call.is_answered = not isinstance(failure, OSError)
                if not call.has_no_session:
                    raise failure from error
                self._connection.lose(client, drains=True)
                result = None
            except (anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
                raise self._lost(client) from error
        return result

    def _failure(self, client: Any, error: Any) -> Exception:
        code, said = error.error.code, error.error.message
        text = f"MCP server {self._connection.name}: {shorten(said)}"
        if code == _CLOSED and is_closed(client):
            return self._lost(client)
        if code == _CLOSED and said.startswith(_NO_ANSWER):
            return ConnectionError(text)
        if code == _TIMED_OUT and "timed out" in said.lower():
            return TimeoutError(text)
        is_refused = code in _NOT_DONE or _REFUSED.match(said) is not None
        return self._reported(text, is_refused=is_refused or self._is_clean)

    def _reported(self, text: str, *, is_refused: bool) -> Exception:
        """Return the error for what a server has reported; a limit of its rate is over soon."""
        if not is_refused:
            return ServerError(text)
        is_busy = _RATE_LIMIT.search(text) is not None
        return ToolError(text, retryable=is_busy, retry_after=0.0 if is_busy else None)

    def _lost(self, client: Any) -> Exception:
        self._connection.lose(client)
        return ConnectionError(f"the connection to MCP server {self._connection.name} was lost")


class ServerError(Exception):
    """A server has reported an error, and a call with an effect may have taken it."""


async def _tell_progress(context: ToolContext, progress: float, total: float | None, message: str | None) -> None:
    context.progress(progress / total if total else None, message or "")


# Content -------------------------------------------------------------------------------------------------------------


def _blocks(content: list[Any], context: ToolContext) -> Any:
    """Return content without structure: a single text as data, else a list of blocks."""
    made = [_block(block, context) for block in content]
    if not made:
        return None
    return made[0] if len(made) == 1 and not isinstance(made[0], dict) else made


def _block(block: Any, context: ToolContext) -> Any:
    match block.type:
        case "text":
            return block.text
        case "image" | "audio":
            return context.artifacts.save(_decoded(block.data), media_type=block.mime_type)
        case "resource" if hasattr(block.resource, "blob"):
            kind = block.resource.mime_type or "application/octet-stream"
            return context.artifacts.save(_decoded(block.resource.blob), media_type=kind)
        case _:
            return block.model_dump(mode="json", by_alias=True, exclude_none=True)


def _decoded(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise ToolError("the server has sent a file that is no base64") from error
