"""S3 below every path: a stranger is told the same wherever the page is mounted, and however a path is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import quote, unquote

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import dagrun
from dagrun import MemoryJournal
from dagrun.serve import routes
from dagrun.serve.guard import KnownOnly
from dagrun.serve.measures import Measures
from page_client import POSTED, TOKEN

pytestmark = pytest.mark.anyio

MADE: Final = routes.Routes(None, None, Measures(None), is_read_only=False)  # type: ignore[arg-type]
ROOTS: Final = ("", "/x", "/x/", "/", "/a", "/api", "/api/", "/é b")
FILLED: Final = {"run": "r1", "name": "live.js", "n:int": "0", "question": "q", "side": "after", "sha256": "0" * 64}
SPELLED: Final[list[Callable[[str], str]]] = [
    lambda path: "/" + "".join(f"%{ord(letter):02x}" for letter in path[1:]),
    lambda path: "/" + path[1:].replace("/", "%2f"),
    lambda path: "/" + path,
    lambda path: path + "/",
    lambda path: "/static/.." + path,
]
MOUNTS: Final[dict[str, Callable[[ASGIApp, str], tuple[ASGIApp, str]]]] = {
    "alone": lambda page, root: (page, ""),
    "Starlette, at the top": lambda page, root: (Starlette(routes=[Mount("/", page)]), ""),
    "Starlette, below a path": lambda page, root: (Starlette(routes=[Mount("/watch", page)]), "/watch"),
    "Starlette, below /api": lambda page, root: (Starlette(routes=[Mount("/api", page)]), "/api"),
    "FastAPI, at the top": lambda page, root: (_of_fastapi(page, "", root), ""),
    "FastAPI, below a path": lambda page, root: (_of_fastapi(page, "/runs", root), "/runs"),
    "FastAPI in FastAPI": lambda page, root: (_of_fastapi(_of_fastapi(page, "/b", ""), "/a", root), "/a/b"),
}


class ByPrefix(KnownOnly):
    """A mutant: it finds out by itself which paths hold data, and cuts the root path off as a text."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Ask only who sends what seems to be below /api."""
        path, root = scope["path"], scope.get("root_path", "")
        is_asked = path.removeprefix(root).startswith("/api")
        await (super().__call__ if is_asked else self._app)(scope, receive, send)


def _of_fastapi(page: ASGIApp, place: str, root: str) -> ASGIApp:
    app = FastAPI()
    app.root_path = root  # as the argument, of which FastAPI warns now
    app.mount(place or "/", page)
    return app


def _page(guard: type[KnownOnly] = KnownOnly) -> ASGIApp:
    page = dagrun.web(journal=MemoryJournal(), token=TOKEN)
    app: Any = page._guard._app
    app.router.default = guard(app.router.default._app, token=TOKEN, authorize=None, user="ann")
    return page


def _twin() -> ASGIApp:
    """The routes of the page with nobody before them; an answer tells which of the two kinds its route is."""

    def kind(name: str, those: list[Route]) -> list[Route]:
        async def answer(request: Request) -> PlainTextResponse:
            return PlainTextResponse(name)

        return [Route(route.path, answer, methods=list(route.methods or ())) for route in those]

    app = Starlette(routes=kind("public", MADE.public()))
    app.router.default = Router(kind("private", MADE.private()))
    return app


def _paths() -> Iterator[tuple[str, str]]:
    for route in [*MADE.public(), *MADE.private()]:
        path = route.path
        for name, value in FILLED.items():
            path = path.replace(f"{{{name}}}", value)
        yield ("POST" if "POST" in (route.methods or ()) else "GET"), path
    for path in ("/static/live.js", "/api/runs", "/api/runs/r1/stream"):
        yield from (("GET", spelled(path)) for spelled in SPELLED)


async def _asked(app: ASGIApp, method: str, path: str, root: str) -> tuple[int, str]:
    """Send a request without a token, as a server hands it on; return the status and the text of the answer."""
    sent: list[Any] = []
    headers = [(name.encode(), value.encode()) for name, value in POSTED.items() if name != "authorization"]
    scope = {"type": "http", "method": method, "path": unquote(path), "raw_path": path.encode(), "root_path": root}
    about = {"query_string": b"", "scheme": "http", "http_version": "1.1", "server": ("127.0.0.1", 80), "client": None}

    async def receive() -> Message:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await app({**scope, **about, "headers": headers}, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:]).decode()


async def _strangers(mount: str, root: str, guard: type[KnownOnly] = KnownOnly) -> tuple[list[str], int, int]:
    """Send every request without a token; return what was wrong, and how many are public and private."""
    wrong, public, private = [], 0, 0
    page, place = MOUNTS[mount](_page(guard), root)
    twin, _ = MOUNTS[mount](_twin(), root)
    for method, path in _paths():
        for before in dict.fromkeys(["", root, root.rstrip("/")]):  # servers and proxies leave it out, or do not
            url = quote(before) + place + path
            told, text = await _asked(twin, method, url, root)
            found, _ = await _asked(page, method, url, root)
            # Where the router finds no route, the page need not say so to a stranger.
            if found not in {"public": (200,), "private": (401,)}.get(text, (told, 401)):
                wrong.append(f"{method} {url}: {told} {text}, but {found}")
            public, private = public + (text == "public"), private + (text == "private")
    return wrong, public, private


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("mount", MOUNTS)
async def test_a_stranger_is_served_every_public_path_and_no_other(mount: str, root: str) -> None:
    """The oracle is the router, with the same routes and no guard: it says which route a path leads to."""
    wrong, public, private = await _strangers(mount, root)
    assert not wrong
    assert public >= len(MADE.public())
    assert private >= len(MADE.private())


async def test_a_guard_that_reads_the_path_by_itself_is_caught() -> None:
    """With a root path of "/", "/a" or "/api/" it would answer everybody."""
    caught = [root for root in ROOTS if (await _strangers("alone", root, ByPrefix))[0]]
    assert {"/", "/a", "/api/"} <= set(caught)


@pytest.mark.parametrize("path", ["/", "/api/runs", "/api/runs/r1/stream"])
async def test_a_websocket_is_closed_before_it_opens(path: str) -> None:
    """The page has none; a server is told so, and no error is raised in it."""
    sent: list[Any] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await _page()({"type": "websocket", "path": path, "headers": []}, receive, send)
    assert [(message["type"], message["code"]) for message in sent] == [("websocket.close", 1008)]
