"""An HTTP transport that connects only to addresses which the rules allow.

The check is made where a socket is opened, so nothing avoids it: no redirect, and no unusual spelling of an address. A
name server is asked only once, so it cannot answer with another address after the check.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

import anyio
import httpcore
import httpx
from anyio.lowlevel import RunVar

from dagrun.errors import ToolError
from dagrun.sources.network.network_rules import NetworkRules
from dagrun.sources.network.public_addresses import Address

CONNECT_SECONDS: Final = 5.0  # for one address; a host may have several
CLOSE_SECONDS: Final = 2.0

Resolve = Callable[[str, int], Awaitable[list[Address]]]


class NotAllowed(ToolError):
    """The rules of the host program forbid it."""

    def __init__(self, message: str) -> None:
        super().__init__(message, permission=True)


async def resolve(host: str, port: int) -> list[Address]:
    """Find the addresses of *host*, best first; *host* may be an address, in any spelling that the system accepts.

    Raises:
        OSError: The host has no address, or the name server does not answer.
    """
    entries = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(ip_address(sockaddr[0]) for *_, sockaddr in entries))


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Opens connections that the rules allow. It connects to the address that it checked, never to a name.

    Args:
        rules: Where connections may go.
        resolve: Returns the addresses of a host.
        inner: The backend that opens connections to addresses.
    """

    def __init__(
        self, rules: NetworkRules, resolve: Resolve = resolve, inner: httpcore.AsyncNetworkBackend | None = None
    ) -> None:
        self._rules = rules
        self._resolve = resolve
        self._inner = inner or httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first address of *host* that answers.

        Raises:
            NotAllowed: The rules forbid one of its addresses; no connection was opened.
            httpcore.ConnectError: The host has no address, or no address answers.
        """
        failure: Exception = httpcore.ConnectError(f"{host} has no address")
        seconds = min(CONNECT_SECONDS, timeout or CONNECT_SECONDS)
        for address in await self._checked(host, port):
            try:
                return await self._inner.connect_tcp(str(address), port, seconds, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await anyio.sleep(seconds)

    async def _checked(self, host: str, port: int) -> list[Address]:
        if not self._rules.knows_port(port):  # so the name server need not be asked
            raise NotAllowed(f"{host}: port {port} is not among the allowed ones")
        try:
            addresses = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"the address of {host} cannot be found: {error}") from error
        # One forbidden address is enough to refuse: a mixture is a sign of an attack.
        for address in addresses:
            if (reason := self._rules.refusal(host, address, port)) is not None:
                raise NotAllowed(f"{host} may not be called: {reason}")
        return addresses


class GuardedTransport(httpx.AsyncBaseTransport):
    """A transport of httpx over guarded connections: HTTP/1.1, no proxies, and nothing from the environment.

    Args:
        rules: Where connections may go.
        backend: Opens the connections; by default a `GuardedBackend` with *rules*.
    """

    def __init__(self, rules: NetworkRules, backend: httpcore.AsyncNetworkBackend | None = None) -> None:
        # No limit on connections: a run limits its steps, and a slow host must not use up the connections of others.
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=_ssl_context(rules.ca_file),
            max_connections=None,
            network_backend=backend or GuardedBackend(rules),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send *request*, and return the answer as soon as its headers have arrived."""
        assert isinstance(request.stream, httpx.AsyncByteStream)
        url = httpcore.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        )
        with _errors_of_httpx():
            answer = await self._pool.handle_async_request(
                httpcore.Request(
                    request.method,
                    url,
                    headers=request.headers.raw,
                    content=request.stream,
                    extensions=request.extensions,
                )
            )
        return httpx.Response(
            answer.status, headers=answer.headers, stream=_Body(answer), extensions=answer.extensions, request=request
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()


class _Body(httpx.AsyncByteStream):
    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        assert isinstance(self._answer.stream, AsyncIterable)
        with _errors_of_httpx():
            async for chunk in self._answer.stream:
                yield chunk

    async def aclose(self) -> None:
        await self._answer.aclose()


@contextmanager
def _errors_of_httpx() -> Iterator[None]:
    """Turn errors of httpcore into the errors of httpx with equal names."""
    try:
        yield
    except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError, httpcore.ProxyError) as error:
        kind = getattr(httpx, type(error).__name__, httpx.TransportError)
        raise kind(str(error)) from error


@lru_cache(maxsize=8)  # reading the certificates takes 20 ms
def _ssl_context(ca_file: Path | None) -> ssl.SSLContext:
    if ca_file is None:
        return httpx.create_ssl_context(trust_env=False)
    return ssl.create_default_context(cafile=ca_file)


@dataclass(slots=True)
class _Shared:
    transport: GuardedTransport
    users: int = 0


# The transports of an event loop, by their rules: a connection that some rules allow must not serve a run with others.
_shared: RunVar[dict[NetworkRules, _Shared]] = RunVar("dagrun.sources.network.guarded_transport")


@asynccontextmanager
async def shared_transport(rules: NetworkRules) -> AsyncIterator[GuardedTransport]:
    """Share one transport among all overlapping calls of this event loop; the last call to end closes it.

    So parallel steps share connections, and no connection outlives the last step. A tool could not close connections
    later: it gets no turn between the last step of a run and the end of the loop.
    """
    in_use = _shared.get({})
    _shared.set(in_use)
    shared = in_use.get(rules)
    if shared is None:
        shared = in_use[rules] = _Shared(GuardedTransport(rules))
    shared.users += 1
    try:
        yield shared.transport
    finally:
        shared.users -= 1
        if not shared.users:
            del in_use[rules]
            with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                await shared.transport.aclose()
