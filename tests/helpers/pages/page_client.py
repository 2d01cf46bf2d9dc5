"""A browser without a browser: requests to the live page as an ASGI application, and its streams."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import httpx

import dagrun
from dagrun import Run
from dagrun.extend import Journal
from dagrun.serve.page import RunsPage

TOKEN: Final = "the-token-of-the-tests"
HEADERS: Final = {"host": "127.0.0.1", "authorization": f"Bearer {TOKEN}"}
POSTED: Final = {**HEADERS, "x-dagrun": "1", "content-type": "application/json"}
RUN: Final = "r1"


def page_of(journal: Journal | None = None, *runs: Run, **options: Any) -> RunsPage:
    """Make a page with the token of the tests."""
    if "authorize" not in options:
        options.setdefault("token", TOKEN)
    page = dagrun.web(journal=journal, **options)
    for run in runs:
        page.watch(run)
    return page


class Client:
    """Sends requests to a page.

    Args:
        page: The page, or an application that contains it.
        root: Where it is mounted.
    """

    def __init__(self, page: Any, root: str = "") -> None:
        self._page = page
        self._root = root

    async def request(self, method: str, path: str, headers: Mapping[str, str], body: Any = None) -> httpx.Response:
        """Send any request."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        transport = httpx.ASGITransport(app=self._page)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            sent = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
            return await client.request(method, self._root + path, headers=sent, content=data)

    async def get(self, path: str, **headers: str) -> httpx.Response:
        """Look at something."""
        return await self.request("GET", path, {**HEADERS, **headers})

    async def post(self, path: str, body: Any = None, **headers: str) -> httpx.Response:
        """Change something."""
        return await self.request("POST", path, {**POSTED, **headers}, {} if body is None else body)

    @asynccontextmanager
    async def stream(self, run: str = RUN, after: str = "") -> AsyncIterator[Events]:
        """Open the stream of a run."""
        events = Events(self._page, f"{self._root}/api/runs/{run}/stream", f"after={after}")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(events.work)
            try:
                yield events
            finally:
                events.leave()
                tasks.cancel_scope.cancel()


class Events:
    """The events of a stream, as they come; it is opened again as often as the page asks for that, as in a browser."""

    def __init__(self, page: Any, path: str, query: str) -> None:
        self._page = page
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in HEADERS.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        self._gone = anyio.Event()
        self._send, self._receive = anyio.create_memory_object_stream[tuple[str, str, Any]](1000)
        self.status = 0
        self.headers: dict[str, str] = {}
        self.is_closed = False
        self.opened = 0
        self._again = "?"  # what to open it again with
        self._text = b""

    async def work(self) -> None:
        """Answer as a server does."""
        async with self._send:
            while self._again:
                self._again, self.opened = "", self.opened + 1
                await self._page({**self._scope}, self._wait, self._take)
        self.is_closed = True

    def leave(self) -> None:
        """Hang up."""
        self._gone.set()
        self._receive.close()
        self._send.close()

    async def next(self) -> tuple[str, str, Any]:
        """Return the name, the cursor and the data of the next event."""
        with anyio.fail_after(30):
            return await self._receive.receive()

    async def _wait(self) -> dict[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _take(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            return
        self._text += message.get("body", b"")
        *events, self._text = self._text.split(b"\n\n")
        for event in events:
            fields = dict(line.split(": ", 1) for line in event.decode().split("\n") if not line.startswith(":"))
            if fields and fields["event"] == "again":
                self._again = fields["id"]
                self._scope["query_string"] = f"after={self._again}".encode()
            elif fields:
                await self._send.send((fields["event"], fields["id"], json.loads(fields["data"])))
