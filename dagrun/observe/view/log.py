"""The log of a view: the chronicle without routine events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from dagrun.graph.live_graph import LiveGraph
from dagrun.graph.node import Node
from dagrun.model.event import Event, PlannerAsked, Spliced
from dagrun.model.outcome import State
from dagrun.observe.narrative import Entry, tell, why
from dagrun.observe.view.history import History, Span
from dagrun.observe.view.shape import LogView

MAX_LINES: Final = 2_000


def log_of(graph: LiveGraph, history: History) -> tuple[list[LogView], int]:
    """Return the lines of the log, and how many were left out: of steps only those that did not go well.

    Args:
        graph: The state of the run.
        history: What its rare events say.
    """
    drafts = [work.at for work in history.planner if work.kind == "draft"]
    told = [event for event in graph.rare if not _is_usual(event, drafts)]
    parent = history.opening.parent if history.opening is not None else ""
    rare = [_line(entry, graph, entry.seq) for entry in tell(graph, told, parent)]
    room = max(0, MAX_LINES - len(rare))
    bad = [line for node in graph.nodes.values() for line in _bad(node, graph)]
    # The end of a call has no number, and comes before what follows from it at the same instant.
    kept = sorted([*rare[:MAX_LINES], *bad[:room]], key=lambda line: (line["at"], line["seq"] or 0))
    return kept, len(rare) + len(bad) - len(kept)


def _is_usual(event: Event, drafts: Sequence[Span]) -> bool:
    """Whether an event is routine: the planner is called, or a step of the first plan has arrived."""
    is_draft = isinstance(event, Spliced) and any(span.start <= event.at <= span.end for span in drafts)
    return is_draft or isinstance(event, PlannerAsked)


def _bad(node: Node, graph: LiveGraph) -> Iterator[LogView]:
    """Yield the lines about a step that did not go well."""
    for attempt in node.attempts:
        outcome = attempt.outcome
        if outcome is None or attempt.ended is None or (outcome.state is State.SUCCEEDED and not outcome.surprise):
            continue
        text = f"{outcome.state} after {attempt.duration:.2f} s"
        yield _line(Entry(0, attempt.ended, "AttemptEnded", node.id, text, tuple(why(attempt))), graph, None)
    ended = node.ended
    if ended is not None and (ended.state is not State.SUCCEEDED or ended.is_default):
        because = (f"because of {ended.cause}",) if ended.cause else ()
        entry = Entry(ended.seq, ended.at, "StepSettled", node.id, str(ended.state), (ended.reason, *because))
        yield _line(entry, graph, ended.seq)


def _line(entry: Entry, graph: LiveGraph, seq: int | None) -> LogView:
    shown = graph.plan.redactor
    return {
        "seq": seq,
        "at": round(entry.at, 6),
        "event": entry.event,
        "about": entry.about,
        "text": shown.text(entry.text),
        "details": [shown.text(line) for line in entry.details if line],
        "steps": sorted(entry.steps) or ([entry.about] if entry.event in _OF_STEPS else []),
    }


_OF_STEPS: Final = frozenset(("AttemptEnded", "StepSettled"))
