"""An HTTP transport that connects only to addresses which the rules allow.

The check is made where a socket is opened, so nothing avoids it: no redirect, and no unusual spelling of an address. A
name server is asked only once, so it cannot answer with another address after the check.
"""

from __future__ import annotations

import re
import socket
import ssl
import zlib
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, Protocol

import anyio
import httpcore
import httpx
from anyio.lowlevel import RunVar

from dagrun.errors import ToolError
from dagrun.sources.network.network_rules import Address, NetworkRules

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


MAX_ANSWER_HEADERS: Final = 256

_MEDIA_TYPE: Final = re.compile(r"[a-z0-9!#$&^_.+-]{1,80}/[a-z0-9!#$&^_.+-]{1,80}")
_CHARSET: Final = re.compile(r";\s*charset=\"?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_GZIP: Final = 31  # the `wbits` of zlib for gzip


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """The answer of a server.

    Attributes:
        url: The URL of the answer, after all redirects.
        status: The HTTP status, from 200 to 299.
        media_type: The media type that the server names; ``application/octet-stream`` if it names none that is valid.
        charset: The character set that the server names, or `None`.
        body: The body, decoded.
    """

    url: str
    status: int
    media_type: str
    charset: str | None
    body: bytes


async def read_answer(response: httpx.Response, max_bytes: int) -> ServerAnswer:
    """Read the body of an answer, whatever its status.

    Args:
        response: The answer, with only its headers read.
        max_bytes: The most bytes of its body, decoded.

    Raises:
        ToolError: The answer is too large, or cannot be decoded.
        httpx.TransportError: The connection was lost.
    """
    url = response.request.url
    if len(response.headers) > MAX_ANSWER_HEADERS:
        raise ToolError(f"{url.host} answered with over {MAX_ANSWER_HEADERS} headers")
    content_type = response.headers.get("content-type", "")
    media_type = content_type.partition(";")[0].strip().lower()
    charset = _CHARSET.search(content_type[:1000])
    return ServerAnswer(
        url=str(url),
        status=response.status_code,
        media_type=media_type if _MEDIA_TYPE.fullmatch(media_type) else "application/octet-stream",
        charset=charset[1] if charset else None,
        body=await _body(response, max_bytes),
    )


async def _body(response: httpx.Response, limit: int) -> bytes:
    host = response.request.url.host
    too_large = ToolError(f"{host} answered with more than the ceiling of {limit} bytes")
    declared = response.headers.get("content-length", "")
    if declared.isdecimal() and len(declared) < 20 and int(declared) > limit:
        raise too_large
    decoder = _decoder(response)
    body = bytearray()
    assert isinstance(response.stream, httpx.AsyncByteStream)
    chunks = aiter(response.stream)
    try:
        async for chunk in chunks:
            body += decoder.decompress(chunk, limit + 1 - len(body))
            if len(body) > limit:
                raise too_large
    except (ToolError, zlib.error) as error:
        await _cut(response, chunks)
        if isinstance(error, ToolError):
            raise
        raise ToolError(f"{host} answered with gzip that cannot be read") from error
    if not decoder.eof or decoder.unused_data:
        raise ToolError(f"{host} answered with gzip that ends in the middle, or goes on after its end", retryable=True)
    return bytes(body)


async def _cut(response: httpx.Response, chunks: AsyncIterator[bytes]) -> None:
    """End a body early.

    Generators that are dropped in the middle are left to the garbage collector. So the connection is closed under them,
    and they end by themselves.
    """
    await response.aclose()
    with suppress(httpx.TransportError):
        async for _ in chunks:
            pass


class _Decoder(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class _Identity:
    eof = True
    unused_data = b""

    @staticmethod
    def decompress(data: bytes, max_length: int) -> bytes:
        return data[:max_length]


def _decoder(response: httpx.Response) -> _Decoder:
    """Return the decoder of a body. Requests ask for no encoding, but some servers use one anyway."""
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding in ("", "identity"):
        return _Identity()
    if encoding in ("gzip", "x-gzip"):
        return zlib.decompressobj(_GZIP)
    raise ToolError(f"{response.request.url.host} answered in an encoding that nobody asked for")
