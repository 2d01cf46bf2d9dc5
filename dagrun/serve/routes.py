"""The routes of the page: requests and answers. The rules of `guard` have passed each request."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar, get_args

import anyio
import anyio.to_thread
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dagrun.errors import JournalDamaged, JournalError, RunNotFound
from dagrun.journal.base import is_run_id
from dagrun.kernel.model.signature import explain
from dagrun.observe.report.report import make_report
from dagrun.serve.actions import CLOSED, Actions
from dagrun.serve.catalog import Catalog, RunEntry, matching, queue_facts
from dagrun.serve.drawings import Side, patch_svg, patch_view
from dagrun.serve.feeds import Feed, RunTooLarge
from dagrun.serve.files import artifact_answer, artifacts_of, static_file
from dagrun.serve.guard import USER, body_of, problem
from dagrun.serve.measures import Measures
from dagrun.serve.questions import AnswerBody, OrderBody, shown_question
from dagrun.serve.stream import Stream

B = TypeVar("B", bound=BaseModel)
Answering = Callable[[Request, Feed], Coroutine[Any, Any, Response]]

MAX_STREAMS: Final = 50
MAX_RUNS: Final = 200  # of one page of the list
MAX_WHOLE: Final = 1024 * 1024  # characters of arguments, if they are asked for as a whole

_SHELL: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>dagrun</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="{root}static/looks.css">
<link rel="stylesheet" href="{root}static/page.css">
<script type="module" src="{root}static/live.js"></script>
</head>
<body>
<main id="page"><noscript>This page needs JavaScript; without it, use <code>dagrun runs</code> and
<code>dagrun inspect</code>.</noscript></main>
</body>
</html>
"""


class Routes:
    """Answers requests.

    Args:
        catalog: The runs.
        posts: Carries out what a request wants changed.
        measures: Answers requests for metrics.
        is_read_only: Whether nothing may be changed; the page then shows no buttons.
        stream_seconds: How long a stream lasts at most.
    """

    def __init__(
        self,
        catalog: Catalog,
        posts: Actions,
        measures: Measures,
        *,
        is_read_only: bool,
        stream_seconds: float = math.inf,
    ) -> None:
        self.closing = anyio.Event()
        self._catalog = catalog
        self._posts = posts
        self._measures = measures
        self._is_read_only = is_read_only
        self._stream_seconds = stream_seconds
        self._streams = 0
        self._is_drained: anyio.Event | None = None

    def public(self) -> list[Route]:
        """Return the routes that hold no data, and so answer everybody."""
        return [
            Route("/", _index),
            Route("/metrics", _index),
            Route("/r/{run}", _run_page),
            Route("/static/{name}", _static),
        ]

    def private(self) -> list[Route]:
        """Return all other routes."""
        run = "/api/runs/{run}"
        return [
            Route("/api/runs", self._runs),
            Route("/api/questions", self._questions),
            Route("/api/metrics", self._measures.as_json),
            Route("/api/metrics/prometheus", self._measures.as_prometheus),
            Route("/api/metrics/table", self._measures.as_table),
            Route(run, self._about(_view)),
            Route(f"{run}/steps/{{n:int}}", self._about(_step)),
            Route(f"{run}/questions/{{question}}", self._about(_question)),
            Route(f"{run}/questions/{{question}}/{{side}}.svg", self._about(_patch_drawing)),
            Route(f"{run}/graph.svg", self._about(_drawing)),
            Route(f"{run}/report.html", self._about(_report)),
            Route(f"{run}/artifacts/{{sha256}}", self._about(self._artifact)),
            Route(f"{run}/changes", self._about(_changes)),
            Route(f"{run}/stream", self._about(self._stream)),
            Route(f"{run}/queue", self._about(self._in_queue)),
            Route(f"{run}/answers", self._about(self._answer), methods=["POST"]),
            Route(f"{run}/cancel", self._about(self._cancel), methods=["POST"]),
            Route(f"{run}/suspend", self._about(self._suspend), methods=["POST"]),
            Route(f"{run}/requeue", self._about(self._requeue), methods=["POST"]),
        ]

    def _about(self, answer: Answering) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return an endpoint that finds the run of a request, and updates it."""

        async def endpoint(request: Request) -> Response:
            run_id = request.path_params["run"]
            if not is_run_id(run_id):
                return problem(404, "this is no name of a run")
            try:
                feed = await self._catalog.feed(run_id)
                await feed.refresh()
                return await answer(request, feed)
            except RunNotFound as error:
                return problem(404, str(error))
            except RunTooLarge as error:
                return problem(413, str(error))
            except JournalDamaged as error:
                return problem(409, f"the record is damaged: {error}")
            except JournalError as error:
                return problem(503, str(error))

        return endpoint

    # Lists ------------------------------------------------------------------------------------------------

    async def _runs(self, request: Request) -> Response:
        query = request.query_params
        states = [state for state in query.get("state", "").split(",") if state]
        try:
            entries = await self._catalog.entries()
        except JournalError as error:
            return problem(503, str(error))
        found = matching(entries, states, query.get("q", ""))
        after, limit = query.get("after", ""), _number(query.get("limit"), 50, MAX_RUNS)
        names = [entry.standing.run_id for entry in found]
        first = names.index(after) + 1 if after in names else 0
        shown = found[first : first + limit]
        facts = {"runs": [entry.as_dict() for entry in shown], "total": len(found), "more": first + limit < len(found)}
        return _json({**facts, "read_only": self._is_read_only, "open": sum(map(_open_questions, entries))})

    async def _questions(self, request: Request) -> Response:
        found = []
        for entry in await self._catalog.entries():
            if not entry.questions:
                continue
            feed = await self._catalog.feed(entry.standing.run_id)
            redactor = feed.graph.plan.redactor
            about: dict[str, Any] = {
                "run": entry.standing.run_id,
                "goal": entry.standing.goal or entry.command,
                "now": feed.now(),
            }
            about |= {"is_held": feed.watch.is_alive, "queue": queue_facts(entry.queue)}
            found += [{**about, "question": shown_question(question, redactor)} for question in entry.questions]
        return _json({"questions": found, "read_only": self._is_read_only})

    # One run ----------------------------------------------------------------------------------------------

    async def _artifact(self, request: Request, feed: Feed) -> Response:
        return await artifact_answer(feed, request.path_params["sha256"], self._catalog.journal)

    async def _stream(self, request: Request, feed: Feed) -> Response:
        if self._streams >= MAX_STREAMS:
            return problem(503, f"{MAX_STREAMS} pages are open already; close one")
        cursor = request.headers.get("last-event-id") or request.query_params.get("after", "")
        stream = Stream(feed, self._catalog, cursor, self.closing, self._stream_seconds)
        return _Counted(stream, self._count)

    def _count(self, change: int) -> None:
        self._streams += change
        if not self._streams and self._is_drained is not None:
            self._is_drained.set()

    async def drained(self) -> None:
        """Wait until no stream is open."""
        self._is_drained = anyio.Event()
        if self._streams:
            await self._is_drained.wait()

    async def _answer(self, request: Request, feed: Feed) -> Response:
        body = await _read(request, AnswerBody)
        return body if isinstance(body, Response) else await self._posts.answer(feed, body, request.scope[USER])

    async def _cancel(self, request: Request, feed: Feed) -> Response:
        body = await _read(request, OrderBody)
        if isinstance(body, Response):
            return body
        return await self._posts.order(feed, "cancel", body, request.scope[USER])

    async def _in_queue(self, request: Request, feed: Feed) -> Response:
        return _json({"queue": queue_facts((await self._catalog.queue.open_rows()).get(feed.run_id))})

    async def _requeue(self, request: Request, feed: Feed) -> Response:
        return await self._posts.requeue(feed)

    async def _suspend(self, request: Request, feed: Feed) -> Response:
        body = await _read(request, OrderBody)
        if isinstance(body, Response):
            return body
        return await self._posts.order(feed, "suspend", body, request.scope[USER])


class _Counted(Response):
    """A stream that is counted while it is open."""

    def __init__(self, stream: Stream, count: Callable[[int], None]) -> None:
        super().__init__()
        self._stream = stream
        self._count = count

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self._count(1)
        try:
            await self._stream(scope, receive, send)
        finally:
            self._count(-1)


# Pages and files ------------------------------------------------------------------------------------------------------


async def _index(request: Request) -> Response:
    return Response(_SHELL.format(root=""), media_type="text/html")


async def _run_page(request: Request) -> Response:
    if not is_run_id(request.path_params["run"]):
        return problem(404, "this is no name of a run")
    return Response(_SHELL.format(root="../"), media_type="text/html")


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    found = static_file(name)
    if found is None:
        return problem(404, "there is no such file")
    headers = {"etag": found.tag, "cache-control": "no-cache", "vary": "accept-encoding"}
    if request.headers.get("if-none-match") == found.tag:
        return Response(status_code=304, headers=headers)
    is_packed = "gzip" in request.headers.get("accept-encoding", "")
    if is_packed:
        headers["content-encoding"] = "gzip"
    return Response(found.packed if is_packed else found.data, media_type=found.kind, headers=headers)


# One run --------------------------------------------------------------------------------------------------------------


async def _view(request: Request, feed: Feed) -> Response:
    return Response((await feed.snapshot())[0], media_type="application/json")


async def _drawing(request: Request, feed: Feed) -> Response:
    return Response(await feed.drawing(), media_type="image/svg+xml")


async def _patch_drawing(request: Request, feed: Feed) -> Response:
    question, side = feed.graph.questions.get(request.path_params["question"]), request.path_params["side"]
    if question is None or side not in get_args(Side):
        return problem(404, CLOSED)
    view = patch_view(feed.graph, question, side)
    if view is None:
        return problem(404, "this change cannot be drawn")
    return Response(await anyio.to_thread.run_sync(patch_svg, view, side), media_type="image/svg+xml")


async def _report(request: Request, feed: Feed) -> Response:
    view = await feed.view("short")
    page = await anyio.to_thread.run_sync(make_report, view)
    headers = {"content-disposition": f'attachment; filename="{feed.run_id}.html"'}
    return Response(page, media_type="text/html", headers=headers)


async def _step(request: Request, feed: Feed) -> Response:
    values: Any = "full" if request.query_params.get("values") == "full" else "short"
    try:
        step = feed.watch.step(request.path_params["n"], values, feed.now())
    except LookupError as error:
        return problem(404, str(error))
    return _json({**step, "artifacts": artifacts_of(feed, step["id"])})


async def _question(request: Request, feed: Feed) -> Response:
    question = feed.graph.questions.get(request.path_params["question"])
    if question is None:
        return problem(404, CLOSED)
    return _json(shown_question(question, feed.graph.plan.redactor, limit=MAX_WHOLE))


async def _changes(request: Request, feed: Feed) -> Response:
    after = feed.cursor_of(request.query_params.get("after", ""))
    if after is None:
        return problem(409, "this cursor is of another server: reload the page", cursor=feed.cursor)
    return Response(feed.changes(after), media_type="application/json")


# Helpers --------------------------------------------------------------------------------------------------------------


def _json(value: Any) -> Response:
    return Response(to_json(value), media_type="application/json")


async def _read(request: Request, kind: type[B]) -> B | Response:
    """Return the body of a request as a model; or the answer with its faults."""
    try:
        return kind.model_validate_json(await body_of(request) or b" ")
    except ValidationError as error:
        return problem(422, explain(error))


def _number(text: str | None, default: int, most: int) -> int:
    return min(most, max(1, int(text))) if text is not None and text.isdecimal() and len(text) < 9 else default


def _open_questions(entry: RunEntry) -> int:
    return len(entry.questions)
