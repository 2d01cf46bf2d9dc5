"""`web`: the live page as an ASGI application."""

from __future__ import annotations

import getpass
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import anyio

from dagrun.errors import ContractError, MissingExtra
from dagrun.kernel.model.journal import Journal
from dagrun.kernel.model.question import Question
from dagrun.kernel.runtime.run import Run

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from dagrun.api.engine import Engine
    from dagrun.serve.catalog import Catalog
    from dagrun.serve.guard import Authorize, Guard
    from dagrun.serve.routes import Routes

LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
# Less than the 3 s that Hypercorn gives open responses; about as often as the list of runs asks for news (every 3 s).
_STREAM_SECONDS: Final = 2.5


class RunsPage:
    """The live page of runs, an ASGI application. Made by `web`.

    Args:
        catalog: The runs that it shows.
        routes: Answer the requests.
        guard: Lets requests through to the routes.
    """

    def __init__(self, catalog: Catalog, routes: Routes, guard: Guard) -> None:
        self._catalog = catalog
        self._routes = routes
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":  # nothing is begun before the first request, and nothing is left after the last
            await _no_lifespan(receive, send)
            return
        await self._guard(scope, receive, send)

    def watch(self, run: Run) -> None:
        """Show a run of this process that is of no engine, from now on; it must be on the loop of the server."""
        self._catalog.watch(run)

    async def approver(self, question: Question) -> None:
        """Make a run wait for the page: an approver that never answers, and so keeps the run from being suspended."""
        await anyio.sleep_forever()

    async def drained(self) -> None:
        """Wait until no stream is open: each ends by itself when its run has ended."""
        await self._routes.drained()

    def close(self) -> None:
        """End all streams, so that the server can close; call it on the loop."""
        self._routes.closing.set()


async def _no_lifespan(receive: Receive, send: Send) -> None:
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return


def web(
    *,
    journal: Journal | None = None,
    engine: Engine | None = None,
    authorize: Authorize | None = None,
    token: str | None = None,
    hosts: Sequence[str] = LOOPBACK,
    read_only: bool = False,
    stream_seconds: float | None = _STREAM_SECONDS,
) -> RunsPage:
    """Return the live page of runs, for any ASGI server, or to be mounted in another ASGI application.

    It shows what a run does now, and lets people answer its questions, cancel and suspend it. Runs of other processes
    are read from their journal. The page starts nothing, and works below any path.

    Args:
        journal: The journal with the runs of all processes; `None` for none.
        engine: An engine on the loop of the server, whose runs are shown from inside; `None` for none. A single run can
            be added by `RunsPage.watch`.
        authorize: Takes a request (`starlette.requests.Request`), and returns the name of the person who sends it; it
            goes on record with each answer. `None` is for somebody who may not see the page. May be async. The page
            does not ask who may do what: a person who may see it may answer.
        token: A secret of at least 16 characters that each request must carry in place of that.
        hosts: The names under which the page is served (``Host``), each with or without a port. Any other name is
            refused, as it may be that of a foreign page whose address was turned to this machine.
        read_only: Whether nothing can be answered, cancelled or suspended.
        stream_seconds: After how many seconds the stream of a page ends, to be opened again at once by its browser: a
            server that stops waits for open streams. `None` for no limit, if you call `RunsPage.close` when it stops.

    Raises:
        ContractError: Neither *authorize* nor *token* is given; or an option is invalid.
        MissingExtra: Starlette is not installed.
    """
    if (authorize is None) == (token is None):
        raise ContractError("who may see and answer? pass authorize=… or token=…")
    if isinstance(hosts, str) or not hosts:
        raise ContractError("hosts is a list of names, such as ['runs.example.org']")
    try:
        from starlette.applications import Starlette
        from starlette.routing import Router
    except ImportError as error:
        raise MissingExtra("the live page needs starlette: pip install 'dagrun-engine[ui]'") from error
    from dagrun.serve.actions import Actions
    from dagrun.serve.catalog import Catalog
    from dagrun.serve.guard import Guard, KnownOnly, check_token
    from dagrun.serve.measures import Measures
    from dagrun.serve.routes import Routes

    if token is not None:
        check_token(token)
    catalog = Catalog(journal, engine)
    routes = Routes(
        catalog,
        Actions(journal, catalog.queue),
        Measures(journal),
        is_read_only=read_only,
        stream_seconds=math.inf if stream_seconds is None else stream_seconds,
    )
    app = Starlette(routes=routes.public())
    app.router.default = KnownOnly(Router(routes.private()), token=token, authorize=authorize, user=_user())
    guard = Guard(app, hosts=hosts, is_read_only=read_only)
    return RunsPage(catalog, routes, guard)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a user without a name, as in some containers
        return ""
