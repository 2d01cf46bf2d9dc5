"""The metrics of the runs of a journal, for the page and for Prometheus; records are read once for each change."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from dagrun.errors import ContractError, JournalError
from dagrun.evaluate.metrics.definitions import Definition
from dagrun.evaluate.metrics.figure_text import CALL_COLUMNS, RUN_COLUMNS, certainty_of, text_of
from dagrun.evaluate.metrics.metrics import Group, Metrics, measure
from dagrun.evaluate.metrics.prometheus_text import CONTENT_TYPE, prometheus_text
from dagrun.evaluate.metrics.read_runs import FiguresReader, read_time
from dagrun.model.journal import Journal
from dagrun.serve.guard import problem

_MOST_GROUPS: Final = 500


class Measures:
    """Answers requests for metrics.

    Args:
        journal: The journal with the records; `None` for none.
    """

    def __init__(self, journal: Journal | None) -> None:
        self._reader = None if journal is None else FiguresReader(journal)

    async def as_json(self, request: Request) -> Response:
        """Answer with the metrics, each with its definition and as text."""
        found = await self._measured(request)
        return found if isinstance(found, Response) else Response(to_json(_shown(found)), media_type="application/json")

    async def as_prometheus(self, request: Request) -> Response:
        """Answer in the text form of Prometheus."""
        found = await self._measured(request)
        return found if isinstance(found, Response) else Response(prometheus_text(found), media_type=CONTENT_TYPE)

    async def _measured(self, request: Request) -> Metrics | Response:
        """Return the metrics that a request asks for, or the answer that says why there are none."""
        if self._reader is None:
            return problem(404, "these runs have no journal, so nothing of them is measured")
        since, by = request.query_params.get("since", ""), request.query_params.get("by", "")
        try:
            begin = read_time(since, time.time()) if since else None
            measure((), by=by)  # before anything is read
            read = await self._reader.read()
            return measure(read.figures.values(), by=by, since=begin, left_out=read.left_out)
        except ContractError as error:
            return problem(422, str(error))
        except JournalError as error:
            return problem(503, str(error))


def _shown(metrics: Metrics) -> dict[str, Any]:
    definitions: Mapping[str, Definition[Any]] = {one.name: one for one in metrics.definitions}
    is_of_calls = metrics.by in ("tool", "provider")
    columns: Sequence[tuple[str, str]] = CALL_COLUMNS if is_of_calls else RUN_COLUMNS
    rows = [
        {"name": group.name, "cells": [text_of(group[name], definitions[name].unit) for _, name in columns]}
        for group in metrics.groups[:_MOST_GROUPS]
    ]
    return {
        **metrics.as_dict(),
        "shown": _lines(measure(metrics.runs).definitions, metrics.total),
        "columns": [{"title": title, "text": definitions[name].text} for title, name in columns],
        "rows": rows,
    }


def _lines(definitions: Sequence[Definition[Any]], group: Group) -> list[dict[str, str]]:
    return [
        {
            "name": one.name.replace("_", " "),
            "text": one.text,
            "value": text_of(group[one.name], one.unit),
            "certainty": certainty_of(group[one.name], one.unit),
        }
        for one in definitions
    ]
