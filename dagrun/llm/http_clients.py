"""One HTTP client for each event loop, for as long as somebody uses it."""

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
    """The part of an answer of httpx or httpx2 that is needed here."""

    headers: Any

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        """The body, decoded."""
        ...

    async def aclose(self) -> None:
        """Let go of the connection."""
        ...


class Client(Protocol):
    """What can make a call."""

    async def post(self, path: str, body: dict[str, Any]) -> HttpAnswer:
        """Make it, and return as soon as the head of the answer is there."""
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...


@dataclass(slots=True)
class _Lent:
    client: Client
    token: RunvarToken[_Lent | None] | None = None
    users: int = 0


class Clients:
    """Lends clients. Who overlaps on the same event loop shares one, and its connections; the last one out closes it.

    A connection belongs to the loop that has opened it, and nobody else would close it before the loop is gone.

    Args:
        make: Makes one.
    """

    def __init__(self, make: Callable[[], Client]) -> None:
        self._make = make
        self._here: RunVar[_Lent | None] = RunVar("dagrun client", None)

    @asynccontextmanager
    async def lend(self) -> AsyncGenerator[Client]:
        """A client, until the end of the block."""
        lent = self.take()
        try:
            yield lent
        finally:
            await self.give_back()

    def take(self) -> Client:
        """A client; `give_back` must follow, on the same loop."""
        lent = self._here.get()
        if lent is None:
            lent = _Lent(self._make())
            lent.token = self._here.set(lent)
        lent.users += 1
        return lent.client

    async def give_back(self) -> None:
        """Close the client if nobody else uses it."""
        lent = self._here.get()
        assert lent is not None
        assert lent.token is not None  # `take` came first
        lent.users -= 1
        if lent.users == 0:
            self._here.reset(lent.token)  # first: who comes while it closes gets a new one
            with anyio.CancelScope(shield=True):
                await lent.client.close()


class SdkClient:
    """A client of the library of a provider, reduced to what is needed.

    Args:
        client: Of the library.
        is_ours: Whether its HTTP client is closed with it.
    """

    def __init__(self, client: Any, *, is_ours: bool) -> None:
        self._client = client
        self._is_ours = is_ours

    async def post(self, path: str, body: dict[str, Any]) -> HttpAnswer:
        """Make a call, and return as soon as the head of the answer is there."""
        import httpx2

        # Redirects would carry the key, and the goal, to somebody else; a client of the host may follow them.
        options = {"follow_redirects": False}
        # The raw answer: the streams of the libraries leave generators half-read, and their events cannot be trusted
        # to have the types that they are declared with.
        answer: HttpAnswer = await self._client.post(
            path, body=body, cast_to=httpx2.Response, options=options, stream=True
        )
        return answer

    async def close(self) -> None:
        """Close its connections."""
        if self._is_ours:
            await self._client.close()


def tried(make: Callable[[], Client], given: Any) -> Callable[[], Client]:
    """Give *make* back after what can be done before the first call.

    Args:
        make: Makes a client.
        given: The HTTP client that it gets from the host, if it does.

    Raises:
        ContractError: It cannot be used.
    """
    if given is None:
        certificates()
    else:
        make()
    return make


def http_client(timeout: float) -> httpx2.AsyncClient:
    """A client for one event loop; whoever makes it closes it.

    Args:
        timeout: Seconds without a word of the server.
    """
    import httpx2

    return httpx2.AsyncClient(timeout=timeouts(timeout), verify=certificates())


def timeouts(timeout: float) -> httpx2.Timeout:
    """The same for each kind of waiting, but less for a connection: who answers at all answers soon."""
    import httpx2

    return httpx2.Timeout(timeout, connect=min(timeout, MAX_CONNECT))


@cache
def certificates() -> ssl.SSLContext:
    """Whom to trust. Reading that takes 60 ms, and the first time half a second; all clients share it."""
    import httpx2

    return httpx2.create_ssl_context()
