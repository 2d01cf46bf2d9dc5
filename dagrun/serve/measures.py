"""The metrics of the runs of a journal: a table for the page, JSON, and the form that Prometheus reads.

The figures of a record are kept until the record changes. The table is written here, and not by a script: the page puts
it in as it puts in drawings, so that whatever comes from a run is text.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

import anyio.to_thread
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from dagrun.errors import ContractError, JournalError
from dagrun.evaluate.metrics.definitions import RUN_METRICS
from dagrun.evaluate.metrics.metrics import FiguresReader, Metrics, measure, read_time
from dagrun.evaluate.metrics.metrics_text import (
    CALL_COLUMNS,
    CONTENT_TYPE,
    RUN_COLUMNS,
    certainty_of,
    prometheus_text,
    text_of,
)
from dagrun.kernel.model.journal import Journal
from dagrun.observe.html import Child, Markup, join, tag
from dagrun.serve.guard import problem

_TIMES: Final = {"": "all times", "1d": "the last day", "7d": "7 days", "30d": "30 days"}
_GROUPS: Final = ("", "tool", "provider", "planner", "plan", "day", "week")
_MOST_GROUPS: Final = 500


class Measures:
    """Answers requests for metrics.

    Args:
        journal: The journal with the records; `None` for none.
    """

    def __init__(self, journal: Journal | None) -> None:
        self._reader = None if journal is None else FiguresReader(journal)

    async def as_json(self, request: Request) -> Response:
        """Answer with the metrics as JSON."""
        found = await self._measured(request)
        if isinstance(found, Response):
            return found
        return Response(to_json(found.as_dict()), media_type="application/json")

    async def as_prometheus(self, request: Request) -> Response:
        """Answer in the text form of Prometheus."""
        found = await self._measured(request)
        return found if isinstance(found, Response) else Response(prometheus_text(found), media_type=CONTENT_TYPE)

    async def as_table(self, request: Request) -> Response:
        """Answer with the metrics as a piece of XHTML, for the page."""
        found = await self._measured(request)
        if isinstance(found, Response):
            return found
        return Response(_table_page(found, request.query_params.get("since", "")), media_type="application/xhtml+xml")

    async def _measured(self, request: Request) -> Metrics | Response:
        """Return the requested metrics, or the answer with the reason why there are none."""
        if self._reader is None:
            return problem(404, "these runs have no journal, so nothing of them is measured")
        since, by = request.query_params.get("since", ""), request.query_params.get("by", "")
        try:
            begin = read_time(since, time.time()) if since else None
            measure((), by=by)  # before anything is read
            read = await self._reader.read()
            found = partial(measure, list(read.figures.values()), by=by, since=begin, left_out=read.left_out)
            return await anyio.to_thread.run_sync(found)  # many runs must not hold the loop up, and what runs on it
        except ContractError as error:
            return problem(422, str(error))
        except JournalError as error:
            return problem(503, str(error))


def _table_page(metrics: Metrics, since: str) -> Markup:
    times = [_choice(text, value == since, since=value, by=metrics.by) for value, text in _TIMES.items()]
    groups = [_choice(f"by {by}" if by else "no groups", by == metrics.by, since=since, by=by) for by in _GROUPS]
    total = metrics.total
    runs, ended = total["runs"].value or 0, total["ended_runs"].value or 0
    left = f"; {len(metrics.left_out)} damaged or unreadable, and not counted" if metrics.left_out else ""
    return tag(
        "div",
        tag("p", tag("a", "All runs", href="./")),
        tag("h1", "Metrics"),
        tag("p", join(*times), class_="tools"),
        tag("p", join(*groups), class_="tools"),
        tag("p", f"{runs:.0f} runs; {ended:.0f} have ended{left}", class_="soft"),
        _of_groups(metrics) if metrics.groups else None,
        _table(
            [("metric", ""), ("value", ""), ("95 % interval", ""), ("what it is", "")],
            (
                (one.name.replace("_", " "), text_of(figure, one.unit), certainty_of(figure, one.unit), one.text)
                for one in RUN_METRICS
                for figure in (total[one.name],)
            ),
        ),
        xmlns="http://www.w3.org/1999/xhtml",
    )


def _choice(text: str, is_chosen: bool, **query: str) -> Markup:
    """Return a link to other metrics, or its text if these are shown."""
    if is_chosen:
        return tag("b", text)
    return tag("a", text, href=f"?{urlencode({name: value for name, value in query.items() if value})}")


def _of_groups(metrics: Metrics) -> Markup:
    columns = CALL_COLUMNS if metrics.by in ("tool", "provider") else RUN_COLUMNS
    known = {one.name: one for one in metrics.definitions}
    rows = (
        (group.name, *(text_of(group[name], known[name].unit) for _, name in columns))
        for group in metrics.groups[:_MOST_GROUPS]
    )
    return _table([(metrics.by, ""), *((title, known[name].text) for title, name in columns)], rows)


def _table(head: Sequence[tuple[str, str]], rows: Iterable[Sequence[Any]]) -> Markup:
    titles: list[Child] = [tag("th", title, scope="col", title=text or None) for title, text in head]
    body = (tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])) for row in rows)
    whole = tag("table", tag("thead", tag("tr", *titles)), tag("tbody", *body), class_="runs metrics")
    return tag("div", whole, class_="scroll")
