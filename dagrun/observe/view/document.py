"""`view_of`: the view of a run, from whatever there is of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from dagrun._version import __version__
from dagrun.api.replaying import Replayed
from dagrun.errors import ContractError
from dagrun.graph.live_graph import LiveGraph
from dagrun.model.journal import Held
from dagrun.observe.view.history import FOREVER, History
from dagrun.observe.view.log import log_of
from dagrun.observe.view.path import element_on_path, gaps_on, path_as_it_went
from dagrun.observe.view.revisions import planner_views, revision_views, seconds
from dagrun.observe.view.run_facts import facts_of, head_of, slots_of
from dagrun.observe.view.shape import VIEW_VERSION, QuestionView, RunView
from dagrun.observe.view.steps import StepWriter
from dagrun.observe.view.values import Values, ValueWriter
from dagrun.observe.view.waits import Waits
from dagrun.runtime.result import RunResult
from dagrun.runtime.run import Run


def view_of(
    source: Replayed | RunResult | Run | Mapping[str, Any], *, values: Values = "short", held: Held | None = None
) -> RunView:
    """Return the view of a run. All texts in it are redacted, by the redactor of the run.

    Args:
        source: A record (`dagrun.replay`), a result, a run that goes on, or the content of a ``run.json``.
        values: How much is shown of each argument and output: ``none``, ``short`` (2,000 characters), or ``full``
            (64 KiB). A ``run.json`` has them as it was written.
        held: Which process carries out the run of a record; without it, a run that has not ended counts as interrupted.

    Raises:
        ContractError: There is no run in *source*.
    """
    match source:
        case Replayed():
            is_alive, owner = (held.is_held, held.owner) if held is not None else (False, "")
            last = source.events[-1]
            return document(source.graph, at=last.at, seq=last.seq, values=values, is_alive=is_alive, owner=owner)
        case RunResult():
            return document(source._graph, values=values)
        case Run():
            return document(source.graph, at=source.seconds, values=values, is_alive=True)
        case Mapping():
            return _from_run_json(source)
    raise ContractError(f"a view is made of a record, a run, a result or a run.json, not of {type(source).__name__}")


def _from_run_json(record: Mapping[str, Any]) -> RunView:
    """Return the view in a ``run.json``, or in the view itself as JSON."""
    inside = record.get("view", record)
    if isinstance(inside, Mapping) and inside.keys() >= {"run", "steps", "path", "revisions"}:
        return cast(RunView, dict(inside))
    if "view" not in record and record.keys() >= {"run_id", "status", "steps", "makespan"}:
        raise ContractError(
            "this run.json is of schema 1, which has no view of the run; name the recorded run instead, or run it again"
        )
    raise ContractError("this is no run.json: it has neither a view nor steps")


def document(
    graph: LiveGraph,
    *,
    history: History | None = None,
    at: float | None = None,
    seq: int | None = None,
    values: Values = "short",
    is_alive: bool = False,
    owner: str = "",
    progress: Mapping[str, list[Any]] | None = None,
) -> RunView:
    """Return the view of the run whose state is *graph*; see `view_of`.

    Args:
        graph: The state of the run.
        history: What its rare events say, as far as it was read; `None` to read it now.
        at: The time of the view, in seconds since the start of the run; `None` for the last thing that is known.
        seq: The number of the last record; `None` for the last rare event.
        values: How much is shown of each value.
        is_alive: Whether a process carries out the run.
        owner: That process, in words.
        progress: The last report of each running tool, by step.
    """
    history = history or History(graph)
    history.read()
    at = last_time(graph, history) if at is None else at
    written, number = ValueWriter(graph, values), {id_: n for n, id_ in enumerate(graph.nodes)}
    waits = Waits(graph, history, at)
    steps = StepWriter(graph.plan.redactor, history, waits, number)
    steps.progress = progress or {}
    shown = [steps.step(node, written) for node in graph.nodes.values()]
    head = head_of(graph, history, is_alive=is_alive, owner=owner)
    run = facts_of(graph, history, at, head, written)
    run["slots"] = slots_of(graph, waits.slots)
    for step in shown:
        for reason, start, end, *_ in step["waits"]:
            run["waits"][reason] = round(run["waits"][reason] + (at if end is None else end) - start, 6)
    path = path_as_it_went(graph, history)
    for place, (node, _) in enumerate(path):
        for on_path in (node, element_on_path(path, place, history)):
            shown[number[on_path.id]]["on_path"] = True
    lines, left_out = log_of(graph, history)
    return {
        "schema_version": VIEW_VERSION,
        "dagrun": __version__,
        "seq": history.seq if seq is None else seq,
        "at": round(at, 6),
        "graph": shape_number(graph),
        "run": run,
        "steps": shown,
        "path": [number[node.id] for node, _ in path],
        "path_gaps": [
            [reason, round(gap, 6), number[node.id]] for reason, gap, node in gaps_on(path, waits.of, history)
        ],
        "revisions": revision_views(graph, history, number),
        "planner": planner_views(history, graph.plan.redactor),
        "questions": question_views(graph, history),
        "log": lines,
        "left_out": {"values": written.left_out, "log": left_out},
    }


def shape_number(graph: LiveGraph) -> int:
    """Return a number that changes when the boxes or edges of the drawn graph do."""
    return len(graph.nodes) + len(graph.revisions)


def last_time(graph: LiveGraph, history: History) -> float:
    """Return the time of the last thing that is known of a run, in seconds since its start."""
    if history.ended is not None:
        return history.ended
    last = history.last
    for node in graph.nodes.values():
        if node.latest is not None:
            last = max(last, node.latest.started, node.latest.ended or 0.0)
        last = max(last, node.expanded or 0.0, node.ended.at if node.ended is not None else 0.0)
    return last


def question_views(graph: LiveGraph, history: History) -> list[QuestionView]:
    """Return every question of a run, with its answer, redacted for readers."""
    shown = graph.plan.redactor
    return [
        {  # type: ignore[typeddict-item]
            **shown.value(asked.question.as_dict()),
            "asked_at": round(asked.question.asked_at, 6),
            "answered_at": seconds(asked.open.end),
            "answer": None if asked.answer is None else shown.value(asked.answer.as_dict()),
            "why_void": shown.text(asked.why_void) if asked.open.end != FOREVER else "",
        }
        for asked in history.questions.values()
    ]
