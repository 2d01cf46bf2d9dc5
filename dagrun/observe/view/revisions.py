"""The changes of a plan in a view, with the steps that ran on; and the planner's work."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from dagrun.events import HandedOn
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node
from dagrun.kernel.graph.plan_history import PlanHistory, Revision
from dagrun.kernel.model.outcome import State
from dagrun.kernel.model.redaction.redactor import Redactor
from dagrun.observe.view.history import FOREVER, History
from dagrun.observe.view.shape import PlannerView, RevisionView

MAX_STEPS: Final = 200  # of each list of a change
MAX_LINES: Final = 400  # of a diff
_STOPPED: Final = frozenset((State.CANCELLED, State.SUPERSEDED, State.ABANDONED))


def seconds(at: float | None) -> float | None:
    """Round a time to microseconds, which is finer than any clock that steps are measured by."""
    return None if at is None or at == FOREVER else round(at, 6)


class RevisionsMeanwhile:
    """Finds the steps that ran between two instants.

    Args:
        graph: The state of the run.
    """

    def __init__(self, graph: LiveGraph) -> None:
        calls = [
            (call.started, FOREVER if call.ended is None else call.ended, node, call.outcome)
            for node in graph.nodes.values()
            for call in node.attempts
        ]
        self._by_start = sorted(calls, key=lambda call: call[0])
        self._starts = [call[0] for call in self._by_start]
        good = [call for call in calls if call[3] is not None and call[3].state is State.SUCCEEDED]
        self._by_end = sorted(good, key=lambda call: call[1])
        self._ends = [call[1] for call in self._by_end]
        self._open: list[tuple[float, float, Node, bool]] = []
        self._at = 0

    def ran_on(self, since: float, until: float) -> Iterator[Node]:
        """Yield the steps that ran from *since* until after *until*; ask in the order of *since*."""
        stop = bisect_right(self._starts, since)
        for started, ended, node, outcome in self._by_start[self._at : stop]:
            was_stopped = outcome is not None and outcome.state in _STOPPED
            self._open.append((started, ended, node, was_stopped))
        self._at = max(self._at, stop)
        self._open = [call for call in self._open if call[1] > since]
        yield from (node for _, ended, node, was_stopped in self._open if ended > until and not was_stopped)

    def started(self, since: float, until: float) -> Iterator[Node]:
        """Yield the steps that were called between the two."""
        first, last = bisect_right(self._starts, since), bisect_left(self._starts, until)
        yield from (call[2] for call in self._by_start[first:last])

    def ended(self, since: float, until: float) -> Iterator[Node]:
        """Yield the steps with a call that succeeded between the two times."""
        first, last = bisect_right(self._ends, since), bisect_right(self._ends, until)
        yield from (call[2] for call in self._by_end[first:last])


def revision_views(graph: LiveGraph, history: History, number: dict[str, int]) -> list[RevisionView]:
    """Return the changes of the plan, oldest first.

    Args:
        graph: The state of the run.
        history: The facts of its rare events.
        number: The number of each step, by id.
    """
    if not graph.revisions:
        return []
    redactor, meanwhile = graph.plan.redactor, RevisionsMeanwhile(graph)
    diffs = PlanHistory(graph.plan.plan, graph.revisions).diffs()
    views = []
    for revision, diff in zip(graph.revisions, diffs, strict=True):
        since, is_draft = _asked_at(revision, history)
        views.append(
            RevisionView(
                number=revision.number,
                at=round(revision.at, 6),
                asked_at=round(since, 6),
                origin=revision.origin,
                reason=redactor.text(revision.reason),
                did=redactor.text(str(revision.consequence)),
                is_draft=is_draft,
                diff=[] if is_draft else _lines(diff.lines(), redactor),
                added=_numbers(revision.consequence.added, number),
                gone=_numbers((*revision.consequence.dropped, *revision.consequence.replaced), number),
                ran_on=[] if is_draft else _few(meanwhile.ran_on(since, revision.at), number),
                started_meanwhile=[] if is_draft else _few(meanwhile.started(since, revision.at), number),
                ended_meanwhile=[] if is_draft else _few(meanwhile.ended(since, revision.at), number),
            )
        )
    return views


def _asked_at(revision: Revision, history: History) -> tuple[float, bool]:
    """Return when the planner was asked for a change, and whether it was writing the first plan."""
    work = history.answers.get(revision.number)
    return (revision.at, False) if work is None else (work.at.start, work.kind == "draft")


def _lines(lines: Iterator[str], redactor: Redactor) -> list[str]:
    shown: list[str] = []
    for line in lines:
        if len(shown) == MAX_LINES:
            return [*shown, "… and more"]
        shown.append(redactor.text(line))
    return shown


def _numbers(ids: Sequence[str], number: dict[str, int]) -> list[int]:
    return [number[id_] for id_ in ids if id_ in number]


def _few(nodes: Iterator[Node], number: dict[str, int]) -> list[int]:
    found: dict[int, None] = {}
    for node in nodes:
        found[number[node.id]] = None
        if len(found) == MAX_STEPS:
            break
    return list(found)


def planner_views(history: History, redactor: Redactor) -> list[PlannerView]:
    """Return the planner's work, oldest first."""
    return [
        {
            "kind": work.kind,
            "number": work.number,
            "started": round(work.at.start, 6),
            "ended": seconds(work.at.end),
            "result": work.result,
            "reason": redactor.text(work.reason),
            "triggers": list(work.steps),
            "calls": [
                {
                    "seconds": round(call.seconds, 6),
                    "tokens": call.tokens,
                    "cost": call.cost,
                    "fault": redactor.text(call.fault),
                    "planner": call.planner,
                    "handed_on": _handed_on(work.handed_on.get(call.number), redactor),
                    "prompt": redactor.text(call.prompt),
                }
                for call in work.calls
            ],
        }
        for work in history.planner
    ]


def _handed_on(event: HandedOn | None, redactor: Redactor) -> str:
    """Return why a planner of a fallback chain passed a request on, and to which planner; empty if it did not."""
    if event is None:
        return ""
    why = redactor.text(event.reason) or event.why.replace("_", " ")
    return f"to {event.next_planner}: {why}"
