"""A run as trace events in the JSON of Chrome, for ui.perfetto.dev: for whoever looks at a hundred thousand steps."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from typing import Any, Final

from dagrun.observe.html import plain
from dagrun.observe.picture.time_scale import running_at_once

MAX_FLOWS: Final = 20_000
_SECOND: Final = 1_000_000  # in microseconds, the unit of the format


def trace_events(view: Mapping[str, Any]) -> dict[str, Any]:
    """Return the trace: a lane for each call that ran at once, splices and questions as instants, needs as flows."""
    calls = sorted(
        (call["started"], step["n"], call["number"], call, step) for step in view["steps"] for call in step["attempts"]
    )
    lanes = _lanes([(call[0], view["at"] if call[3]["ended"] is None else call[3]["ended"]) for call in calls])
    lane_of: dict[int, int] = {}
    slices = []
    for (started, n, number, call, step), lane in zip(calls, lanes, strict=True):
        lane_of[n] = lane
        ended = view["at"] if call["ended"] is None else call["ended"]
        args = {"state": call["state"] or "running", "attempt": number, "wait": _waits(step), "why": plain(step["why"])}
        slices.append(
            _event(
                "X", lane, started, name=plain(step["id"]), cat=plain(call["tool"]), dur=_us(ended - started), args=args
            )
        )
    title = {"name": "process_name", "ph": "M", "pid": 1, "tid": 0, "args": {"name": f"run {view['run']['id']}"}}
    return {
        "displayTimeUnit": "ms",
        "traceEvents": [title, *slices, *_instants(view), *_counter(view), *_flows(view, lane_of)],
    }


def _us(seconds: float) -> int:
    return round(seconds * _SECOND)


def _event(kind: str, lane: int, at: float, **more: Any) -> dict[str, Any]:
    return {"ph": kind, "pid": 1, "tid": lane, "ts": _us(at), **more}


def _lanes(spans: list[tuple[float, float]]) -> list[int]:
    """Return a lane for each span, in the order of their starts: the lowest one that is free."""
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    lanes = []
    for start, end in spans:
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lane = heapq.heappop(free) if free else len(busy) + 1
        heapq.heappush(busy, (end, lane))
        lanes.append(lane)
    return lanes


def _waits(step: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{reason} {_us((end if end is not None else start) - start)} us" for reason, start, end, *_ in step["waits"]
    )


def _instants(view: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for change in view["revisions"]:
        if not change["is_draft"]:
            yield _event(
                "i", 0, change["at"], s="g", name=f"revision {change['number']}", args={"did": plain(change["did"])}
            )
    for question in view["questions"]:
        yield _event("i", 0, question["asked_at"], s="g", name="question", args={"text": plain(question["text"])})


def _counter(view: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield from (_event("C", 0, at, name="running", args={"calls": value}) for at, value in running_at_once(view))


def _flows(view: Mapping[str, Any], lane_of: Mapping[int, int]) -> Iterator[dict[str, Any]]:
    """Yield an arrow for each need; only those of the critical path, if there are too many."""
    steps = view["steps"]
    pairs = [(need, step["n"]) for step in steps for need in step["needs"] if need in lane_of and step["n"] in lane_of]
    if len(pairs) > MAX_FLOWS:
        pairs = [(a, b) for a, b in pairs if steps[a]["on_path"] and steps[b]["on_path"]]
    for number, (a, b) in enumerate(pairs):
        start, end = steps[a]["attempts"][-1]["started"], steps[b]["attempts"][0]["started"]
        yield _event("s", lane_of[a], start, name="needs", cat="needs", id=number)
        yield _event("f", lane_of[b], end, name="needs", cat="needs", id=number, bp="e")
