"""The connection to one MCP server: made when it is needed, made again when it was lost, and shared by all calls.

Questions of the server in the middle of a call (elicitation) are asked of people, as the questions of the step. Which
step a question belongs to:

1. Since revision 2026-07-28 a question is a part of the answer to a call, and is handled in the task of the call: a
   context variable says which one.
2. Before that, it comes by itself. If one call is in flight, it belongs to it; of several, nobody can say which one
   means to send a mail, so the question is declined. A call that was cancelled may still be at work, and counts.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from contextvars import ContextVar, Token
from importlib import import_module
from types import TracebackType
from typing import Any, Final

import anyio
from anyio.abc import TaskStatus

from dagrun.errors import ContractError, MissingExtra, ToolError, shorten
from dagrun.kernel.model.question import Answer
from dagrun.kernel.model.tool_context import AskPerson, ToolContext
from dagrun.kernel.model.value import encode, to_json
from dagrun.kernel.runtime.backend import command_alone
from dagrun.sources.foreign_schema import read_schema
from dagrun.sources.mcp_config import ServerConfig
from dagrun.sources.schema_check import SchemaRules

FIRST_DELAY: Final = 0.5  # seconds before the second try to connect, doubled before each further one
MAX_DELAY: Final = 30.0
READ_SECONDS: Final = 300.0  # that a server behind an address may be silent, if its calls may not take longer
DRAIN_SECONDS: Final = 5.0  # that calls in flight have to end, where the server has forgotten their session
# Servers of the Python library 1.x log 94 lines about `server/discover`, with which clients begin since 2026-07-28.
_UNKNOWN_MESSAGE: Final = "Failed to validate request"
_MORE_OF_IT: Final = re.compile(r"\s|\w+Request\.[\w.]+$|Message that failed validation")
MAX_FAILURES: Final = 5  # in a row; from then on a call fails at once, until the longest delay is over


def mcp_library(module: str) -> Any:
    """Import a module of the MCP library.

    Raises:
        MissingExtra: It is not installed.
    """
    try:
        return import_module(module)
    except ImportError:
        raise MissingExtra("MCP servers need the extra mcp: pip install 'dagrun-engine[mcp]'") from None


class Connection:
    """A connection to one server, kept by one task, because the library wants it closed where it was opened.

    A client that has lost its server says so forever, so each loss leads to a new one. A call waits for one try to
    connect at most; that it failed is a failure before anything has happened.

    Args:
        config: The server.

    Attributes:
        questions: What the server asks in the middle of calls.
    """

    def __init__(self, config: ServerConfig) -> None:
        self.name = config.name
        self.questions = ServerQuestions(config.name)
        self._config = config
        self._client: Any = None
        self._lost = anyio.Event()
        self._wanted = anyio.Event()
        self._tried = anyio.Event()
        self._failures = 0
        self._reason = ""
        self._closed_until = 0.0
        self._drains = False
        self._is_kept = False

    async def keep(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Connect whenever a client is wanted, until this task is cancelled."""
        self._wanted, self._failures = anyio.Event(), 0  # events of the loop of this task
        self._tried = anyio.Event()
        self._is_kept = True
        task_status.started()
        try:
            while True:
                await self._wanted.wait()
                self._wanted = anyio.Event()
                if self._failures:
                    await anyio.sleep(min(FIRST_DELAY * 2 ** (self._failures - 1), MAX_DELAY))
                await self._connect()
        finally:
            self._is_kept = False
            self._tried.set()  # nobody waits for a try that will not be

    async def _connect(self) -> None:
        """Connect, and stay connected until the server is lost."""
        self.questions = ServerQuestions(self.name)
        try:
            async with self._opened() as client:
                self._publish(client)
                await self._lost.wait()
                with anyio.move_on_after(DRAIN_SECONDS if self._drains else 0):
                    await self.questions.all_ended()
        except Exception as error:  # noqa: BLE001  (the library, the command or the server may raise anything)
            self._note_failure(error)
        except BaseExceptionGroup as errors:  # it was closed while the library failed: that is no error of the block
            failures, others = errors.split(Exception)
            if failures is not None:
                self._note_failure(failures)
            if others is not None:
                raise others from None
        finally:
            self._client = None

    async def client(self) -> Any:
        """Return the client; connect if there is none.

        Raises:
            ToolError: The server cannot be reached. Nothing has happened.
        """
        if self._client is not None:
            return self._client
        if self._is_kept and (self._failures < MAX_FAILURES or anyio.current_time() >= self._closed_until):
            if self._tried.is_set():
                self._tried = anyio.Event()
            self._wanted.set()
            await self._tried.wait()
            if self._client is not None:
                return self._client
        if not self._is_kept:
            raise ToolError(f"MCP server {self.name} is closed: call its tools inside the block of mcp_tools")
        is_gone = self._failures >= MAX_FAILURES
        text = f"MCP server {self.name} cannot be reached: {self._reason}"
        raise ToolError(text, retryable=not is_gone, unreachable=is_gone)

    def lose(self, client: Any, *, drains: bool = False) -> None:
        """Note that a client has lost its server, or its session; the next call connects again.

        Args:
            client: The client.
            drains: Whether its other calls may end first; each hears by itself whether its session is gone.
        """
        if self._client is client:
            self._client, self._drains = None, drains
            self._lost.set()

    def _publish(self, client: Any) -> None:
        # The library checks outputs by itself, and executes the patterns of their schemas in the event loop.
        client.session.validate_tool_result = _check_nothing
        self._client, self._lost, self._failures = client, anyio.Event(), 0
        self._tried.set()

    def _note_failure(self, error: BaseException) -> None:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        self._failures += 1
        target = self._config.target
        program = f"{target[0]}: " if isinstance(target, tuple) else ""
        self._reason = shorten(self._config.secrets.replaced_in(f"{program}{type(error).__name__}: {error}"))
        if self._failures >= MAX_FAILURES:
            self._closed_until = anyio.current_time() + MAX_DELAY
        self._tried.set()

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Any]:
        client_type = mcp_library("mcp.client.client").Client
        info = mcp_library("mcp_types").Implementation(name="dagrun", version=_version())
        async with AsyncExitStack() as stack:
            target = self._config.target
            if isinstance(target, tuple):
                target = self._started(target, stack)
            elif isinstance(target, str):
                target = await self._reached(target, stack)
            asked = self.questions.answer
            client = client_type(target, client_info=info, cache=None, elicitation_callback=asked)
            yield await stack.enter_async_context(client)

    def _started(self, command: tuple[str, ...], stack: AsyncExitStack) -> Any:
        stdio = mcp_library("mcp.client.stdio")
        config = self._config
        program, *args = command_alone(command, cwd=config.cwd)
        parameters = stdio.StdioServerParameters(command=program, args=args, env=dict(config.extra), cwd=config.cwd)
        return stdio.stdio_client(parameters, errlog=stack.enter_context(_error_log(self.name)))

    async def _reached(self, url: str, stack: AsyncExitStack) -> Any:
        # The library follows redirects within the origin alone, so headers go to no other server.
        http = mcp_library("httpx2")
        timeout = http.Timeout(30.0, read=max(READ_SECONDS, self._config.rules.timeout or 0.0))
        headers = dict(self._config.extra)
        hooks = {"response": [_note_session]}
        client = await stack.enter_async_context(http.AsyncClient(headers=headers, timeout=timeout, event_hooks=hooks))
        return mcp_library("mcp.client.streamable_http").streamable_http_client(url, http_client=client)


def is_closed(client: Any) -> bool:
    """Whether the library has closed a client: servers use its error for a closed connection, too."""
    try:
        return bool(getattr(client.session._dispatcher, "_closed", True))
    except (AttributeError, RuntimeError):  # another version of the library; or it has left its context
        return True


async def _note_session(response: Any) -> None:
    """Note at a call that the server has no session for it: 404 as the protocol wants it, or 400 as servers answer.

    A GET that takes up the stream of a call that has begun hears the same words, and then something may have happened.
    """
    status, request, call = response.status_code, response.request, _CALL.get()
    if call is None or status not in (400, 404) or request.method != "POST" or "mcp-session-id" not in request.headers:
        return
    if json.loads(await request.aread()).get("method") == "tools/call":
        said = (await response.aread()).decode(errors="replace").lower()
        # Of 400, -32602 is about the arguments, which may have a session of their own.
        call.has_no_session = "-32601" not in said if status == 404 else "session" in said and "-32602" not in said


async def _check_nothing(*_: Any) -> None:
    return None


def _error_log(server: str) -> Any:
    """Return a pipe for the stderr of a server, whose lines a thread passes on to ours until both ends are closed."""
    read, write = os.pipe()
    threading.Thread(target=_pass_on, args=(server, read), daemon=True).start()
    return os.fdopen(write, "wb")


def _pass_on(server: str, read: int) -> None:
    """Pass on lines; what an old server says about the newest first message, which it does not know, is no fault."""
    is_noise = False
    with os.fdopen(read, encoding="utf-8", errors="replace") as lines:
        for line in iter(lambda: lines.readline(1 << 16), ""):  # in pieces: a line may have no end
            is_noise = _UNKNOWN_MESSAGE in line or (is_noise and _MORE_OF_IT.match(line) is not None)
            if is_noise:
                _LOG.debug("MCP server %s is of an older revision, which is no fault: %s", server, line.rstrip())
                continue
            with suppress(OSError, ValueError, AttributeError):  # ours is closed, or there is none
                sys.stderr.write(line)


def _version() -> str:
    return str(import_module("dagrun._version").__version__)


# Questions -----------------------------------------------------------------------------------------------------------

_LOG: Final = logging.getLogger("dagrun.mcp")
_TRIES: Final = 3  # for an answer that fits the form
_TEXT: Final = 1_000  # characters of a question
_YES_OR_NO: Final = {"type": "boolean", "description": "true once you have been there, or will be; false for no"}


class Call:
    """A call in flight; entered around it.

    Args:
        questions: Those of its connection.
        context: The context of the step.
    """

    __slots__ = ("_questions", "_token", "context", "has_no_session", "is_answered", "scopes")

    def __init__(self, questions: ServerQuestions, context: ToolContext) -> None:
        self.context = context
        self.is_answered = False
        self.has_no_session = False
        self.scopes: list[anyio.CancelScope] = []
        self._questions = questions
        self._token: Token[Call | None] | None = None

    def __enter__(self) -> Call:
        self._token = _CALL.set(self)
        self._questions.calls.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            _CALL.reset(self._token)
        self._questions.calls.discard(self)
        self._questions.a_call_ended.set()
        self._questions.given_up += not self.is_answered
        for scope in self.scopes:  # a question that nobody needs an answer to any more
            scope.cancel()


_CALL: ContextVar[Call | None] = ContextVar("dagrun call of an MCP server", default=None)


class ServerQuestions:
    """The questions of one connection.

    Args:
        server: The name of the server.

    Attributes:
        calls: The calls in flight.
        a_call_ended: Set when a call has ended, for `all_ended`.
        given_up: How many calls ended without an answer of the server, which may still be at work on them.
    """

    def __init__(self, server: str) -> None:
        self.calls: set[Call] = set()
        self.given_up = 0
        self.a_call_ended = anyio.Event()
        self._server = server

    async def all_ended(self) -> None:
        """Wait until no call is in flight."""
        while self.calls:
            self.a_call_ended = anyio.Event()
            await self.a_call_ended.wait()

    async def answer(self, _: Any, params: Any) -> Any:
        """Pass the server's question to a person; the callback of the MCP library."""
        call = self._asking()
        ask = None if call is None else call.context.ask_person
        if call is None or ask is None:
            _LOG.warning("MCP server %s asks, and is declined: nobody can say which call is meant", self._server)
            return _result("decline")
        with anyio.CancelScope() as scope:
            call.scopes.append(scope)
            try:
                return await (self._of_address(ask, params) if params.mode == "url" else self._of_form(ask, params))
            finally:
                call.scopes.remove(scope)
        return _result("cancel")

    def _asking(self) -> Call | None:
        """Return the call that a question belongs to; `None` if that is not certain."""
        own = _CALL.get()
        if own in self.calls:
            return own
        return next(iter(self.calls)) if len(self.calls) == 1 and not self.given_up else None

    async def _of_address(self, ask: AskPerson, params: Any) -> Any:
        text = f"MCP server {self._server} asks you to open {shorten(params.url, _TEXT)} yourself: "
        answer = await ask(f"{text}{shorten(params.message, _TEXT)}", _YES_OR_NO, {"address": params.url})
        return _result(_action(answer) if answer is None or answer.value is not False else "decline")

    async def _of_form(self, ask: AskPerson, params: Any) -> Any:
        try:
            rules = SchemaRules(read_schema(params.requested_schema, "the question"))
        except ContractError as error:
            _LOG.warning("MCP server %s asks, and is declined: %s", self._server, error)
            return _result("decline")
        defaults = _defaults(params.requested_schema)
        needs_no_value = set(params.requested_schema.get("required", ())) <= defaults.keys()
        schema = {**params.requested_schema, "type": ["object", "null"] if needs_no_value else "object"}
        text = f"MCP server {self._server} asks: {shorten(params.message, _TEXT)}"
        fault = ""
        for _ in range(_TRIES):
            answer = await ask(f"{text}{fault}", schema, None)
            if answer is None or answer.choice != "approve":
                return _result(_action(answer))
            content = {**defaults, **(answer.value or {})}
            faults = rules.faults(content, len(to_json(encode(content))))
            if not faults:
                return _result("accept", content)
            fault = f" (the last answer does not fit: {shorten('; '.join(map(str, faults)))})"
        return _result("cancel")


def _defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    fields = schema.get("properties")
    named = fields.items() if isinstance(fields, Mapping) else ()
    return {name: said["default"] for name, said in named if isinstance(said, Mapping) and "default" in said}


def _action(answer: Answer | None) -> str:
    if answer is None:
        return "cancel"
    return "accept" if answer.choice == "approve" else "decline"


def _result(action: str, content: Mapping[str, Any] | None = None) -> Any:
    return import_module("mcp_types").ElicitResult(action=action, content=None if content is None else dict(content))
