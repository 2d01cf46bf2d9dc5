"""HTTP clients for models: one for each event loop, closed after its last use."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol

import anyio
from anyio.lowlevel import RunVar, RunvarToken

if TYPE_CHECKING:
    import ssl

    import httpx2

# Seconds for making a connection.
MAX_CONNECT: Final = 10.0


class HttpAnswer(Protocol):
    """The part of an answer of httpx or httpx2 that is used here."""

    headers: Any

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        """Return the body, decoded."""
        ...

    async def aclose(self) -> None:
        """Release the connection."""
        ...


class Client(Protocol):
    """A client that makes HTTP calls."""

    async def post(self, path: str, body: dict[str, Any]) -> HttpAnswer:
        """Make a call, and return as soon as the head of the answer has come."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


@dataclass(slots=True)
class _SharedClient:
    client: Client
    token: RunvarToken[_SharedClient | None] | None = None
    users: int = 0


class Clients:
    """Lends clients. Calls that overlap on one event loop share a client and its connections; the last one closes it.

    A connection belongs to the loop that has opened it, and must be closed before that loop ends.

    Args:
        make: Makes a client.
    """

    def __init__(self, make: Callable[[], Client]) -> None:
        self._make = make
        self._here: RunVar[_SharedClient | None] = RunVar("dagrun client", None)

    @asynccontextmanager
    async def lend(self) -> AsyncGenerator[Client]:
        """Lend a client until the end of the block."""
        lent = self.take()
        try:
            yield lent
        finally:
            await self.give_back()

    def take(self) -> Client:
        """Return a client; `give_back` must follow, on the same loop."""
        lent = self._here.get()
        if lent is None:
            lent = _SharedClient(self._make())
            lent.token = self._here.set(lent)
        lent.users += 1
        return lent.client

    async def give_back(self) -> None:
        """Close the client if this was its last use."""
        lent = self._here.get()
        assert lent is not None
        assert lent.token is not None  # `take` came first
        lent.users -= 1
        if lent.users == 0:
            self._here.reset(lent.token)  # first, so that a call that begins during the close gets a new client
            with anyio.CancelScope(shield=True):
                await lent.client.close()


class SdkClient:
    """A client of a provider's library, reduced to one raw call.

    Args:
        client: The client of the library.
        is_ours: Whether to close its HTTP client, too.
    """

    def __init__(self, client: Any, *, is_ours: bool) -> None:
        self._client = client
        self._is_ours = is_ours

    async def post(self, path: str, body: dict[str, Any]) -> HttpAnswer:
        """Make a call, and return as soon as the head of the answer has come."""
        import httpx2

        # A redirect would carry the key and the goal to another server.
        options = {"follow_redirects": False}
        # The raw answer: the typed streams of the libraries cost seven times the CPU, do not check their types, have
        # no ceiling, and leave generators half-read (`docs/decisions-archive.md`, 101).
        answer: HttpAnswer = await self._client.post(
            path, body=body, cast_to=httpx2.Response, options=options, stream=True
        )
        return answer

    async def close(self) -> None:
        """Close the connections."""
        if self._is_ours:
            await self._client.close()


def http_client(timeout: float) -> httpx2.AsyncClient:
    """Return a new client for one event loop, for the caller to close.

    Args:
        timeout: The longest silence of the server, in seconds.
    """
    import httpx2

    return httpx2.AsyncClient(timeout=timeouts(timeout), verify=certificates())


def timeouts(timeout: float) -> httpx2.Timeout:
    """Return *timeout* for each kind of waiting, but at most `MAX_CONNECT` for connecting: a live server is quick."""
    import httpx2

    return httpx2.Timeout(timeout, connect=min(timeout, MAX_CONNECT))


@cache
def certificates() -> ssl.SSLContext:
    """Return the trusted certificates, shared by all clients: loading them takes 60 ms, and half a second at first."""
    import httpx2

    return httpx2.create_ssl_context()
