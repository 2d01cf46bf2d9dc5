"""The connection to one MCP server: made when it is needed, made again when it was lost, and shared by all calls."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from typing import Any, Final

import anyio
from anyio.abc import TaskStatus

from dagrun.errors import MissingExtra, ToolError, shorten
from dagrun.kernel.runtime.backend import command_alone
from dagrun.sources.mcp_config import ServerConfig
from dagrun.sources.mcp_questions import ServerQuestions

FIRST_DELAY: Final = 0.5  # seconds before the second try to connect, doubled before each further one
MAX_DELAY: Final = 30.0
READ_SECONDS: Final = 300.0  # that a server behind an address may be silent, if its calls may not take longer
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

    A client that has lost its server says so for ever, so each loss leads to a new one. A call waits for one try to
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

    def lose(self, client: Any) -> None:
        """Note that a client has lost its server; the next call connects again."""
        if self._client is client:
            self._client = None
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
                target = self._started(target)
            elif isinstance(target, str):
                target = await self._reached(target, stack)
            asked = self.questions.answer
            client = client_type(target, client_info=info, cache=None, elicitation_callback=asked)
            yield await stack.enter_async_context(client)

    def _started(self, command: tuple[str, ...]) -> Any:
        stdio = mcp_library("mcp.client.stdio")
        config = self._config
        program, *args = command_alone(command, cwd=config.cwd)
        parameters = stdio.StdioServerParameters(command=program, args=args, env=dict(config.extra), cwd=config.cwd)
        return stdio.stdio_client(parameters, errlog=_error_log())

    async def _reached(self, url: str, stack: AsyncExitStack) -> Any:
        # The library follows redirects within the origin alone, so headers go to no other server.
        http = mcp_library("httpx2")
        timeout = http.Timeout(30.0, read=max(READ_SECONDS, self._config.rules.timeout or 0.0))
        headers = dict(self._config.extra)
        client = await stack.enter_async_context(http.AsyncClient(headers=headers, timeout=timeout))
        return mcp_library("mcp.client.streamable_http").streamable_http_client(url, http_client=client)


async def _check_nothing(*_: Any) -> None:
    return None


def _error_log() -> Any:
    """Return the target for the stderr of the server: ours, if that is a file, as in a terminal."""
    try:
        sys.stderr.fileno()
    except (OSError, AttributeError, ValueError):
        return subprocess.DEVNULL
    return sys.stderr


def _version() -> str:
    return str(import_module("dagrun._version").__version__)
