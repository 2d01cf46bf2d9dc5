"""`view_of` and `plan_view`: the view of a run, from whatever there is of it, and that of a plan that has not run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from dagrun._version import __version__
from dagrun.api.replaying import Replayed
from dagrun.errors import ContractError, Problem, ValueRefused
from dagrun.events import Event, PlannerAsked, Spliced
from dagrun.kernel.graph.figures import RunFigures, critical_path, handoff
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.journal import Held
from dagrun.kernel.model.outcome import Recovery, State, Status
from dagrun.kernel.model.plan import Plan, Step
from dagrun.kernel.model.redaction.redactor import DEFAULT_REDACTOR
from dagrun.kernel.runtime.result import RunResult, answer_of
from dagrun.kernel.runtime.run import Run
from dagrun.observe.narrative import Entry, tell, why
from dagrun.observe.run_standing import RunState
from dagrun.observe.view.history import FOREVER, History, Span
from dagrun.observe.view.revisions import planner_views, revision_views, seconds
from dagrun.observe.view.shape import VIEW_VERSION, CeilingView, LogView, QuestionView, RunFacts, RunView, ValueView
from dagrun.observe.view.steps import LIMITS, StepWriter, Values, ValueWriter, shown_value
from dagrun.observe.view.waits import REASONS, Slots, Waits, element_on_path, gaps_on, path_as_it_went
from dagrun.plans.drawing import boxes_of


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
        run = inside["run"]
        return cast(RunView, {**inside, "run": {"state": run["stand"], **run} if "stand" in run else run})
    if "view" not in record and record.keys() >= {"run_id", "status", "steps", "makespan"}:
        raise ContractError(
            "this run.json is of schema 1, which has no view of the run; name the recorded run instead, or run it again"
        )
    raise ContractError("this is no run.json: it has neither a view nor steps")


def document(
    graph: LiveGraph,
    *,
    history: History | None = None,
    figures: RunFigures | None = None,
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
        history: The facts of its rare events, as far as it was read; `None` to read it now.
        figures: The sums over its steps; `None` to make them now.
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
    figures = figures or RunFigures(graph)
    makespan = at if history.ended is None else history.ended
    waited = dict.fromkeys(REASONS, 0.0)
    for step in shown:
        for reason, start, end, *_ in step["waits"]:
            waited[reason] = round(waited[reason] + (at if end is None else end) - start, 6)
    run: dict[str, Any] = {
        **changing_facts(graph, history, figures, waits.slots, makespan, is_alive=is_alive, owner=owner),
        **_last_facts(graph, history, figures, makespan, written),
        "waits": waited,
    }
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
        "run": cast(RunFacts, run),
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


def _state_of(graph: LiveGraph, history: History, *, is_alive: bool) -> RunState:
    """Return the state of a run; *is_alive*: whether a process runs it."""
    if graph.status is None:
        return RunState.RUNNING if is_alive else RunState.INTERRUPTED
    if history.pauses and history.pauses[-1].ended is None:
        return RunState.WAITING if graph.status is Status.WAITING else RunState.INTERRUPTED
    return RunState.ENDED


def changing_facts(
    graph: LiveGraph, history: History, figures: RunFigures, slots: Slots, at: float, *, is_alive: bool, owner: str
) -> dict[str, Any]:
    """Return the variable facts of a running run, without reading every step.

    Args:
        graph: The state of the run.
        history: The facts of its rare events.
        figures: The sums over its steps.
        slots: Its limits on steps that run at once.
        at: The time of the view, in seconds since the start of the run.
        is_alive: Whether a process carries out the run.
        owner: That process, in words.
    """
    shown, opening, used = graph.plan.redactor, history.opening, figures.used
    return {
        "id": history.run_id,
        "goal": shown.text(graph.goal),
        "status": None if graph.status is None else str(graph.status),
        **dict.fromkeys(("state", "stand"), str(_state_of(graph, history, is_alive=is_alive))),  # "stand" until 0.4
        "reason": shown.text(graph.reason),
        "began": history.began,
        "ended": None if history.ended is None else history.clock(history.ended),
        "parent": opening.parent if opening is not None else "",
        "owner": owner,
        "labels": shown.value(dict(opening.labels)) if opening is not None else {},
        "recorded_by": opening.version if opening is not None else __version__,
        "replans": graph.replans,
        "warnings": [shown.text(warning) for warning in graph.warnings],
        "problems": [shown.text(str(problem)) for problem in graph.problems],
        "suspended": [[seconds(pause.at), pause.began, pause.ended] for pause in history.pauses],
        "makespan": round(at, 6),
        "work": round(figures.work, 6),
        "tokens": used.tokens,
        "cost": used.cost,
        "known_cost": used.known_cost,
        "unpriced": used.unpriced,
        "slots": slots.taken(figures.in_flight.values()),
        "counts": dict(sorted((str(state), count) for state, count in figures.counts.items() if count)),
    }


def _last_facts(
    graph: LiveGraph, history: History, figures: RunFigures, makespan: float, values: ValueWriter
) -> dict[str, Any]:
    """Return the other facts about a run, but for its waits, which the steps know."""
    is_escalated = graph.status is Status.ESCALATED
    return {
        "critical_path": round(critical_path(graph), 6),
        "parallelism": round(figures.work / makespan, 3) if makespan else 0.0,
        "retries": figures.decided[Recovery.RETRY],
        "fallbacks": figures.decided[Recovery.FALL_BACK],
        "ceilings": list(_ceilings(graph, figures, makespan)),
        "handoff": graph.plan.redactor.value(handoff(graph, graph.reason)) if is_escalated else None,
        "inputs": values.stored(graph.inputs) if graph.inputs not in (None, b"{}") else None,
        "output": _answer(graph, values) if history.ended is not None else None,
    }


def _answer(graph: LiveGraph, values: ValueWriter) -> Any:
    if graph.withheld is not None:
        return None
    try:
        answer = answer_of(graph)
    except ValueRefused as error:
        return {"$value": {"unavailable": str(error)}}
    return None if answer is None or answer == {} else values.plain(answer)


def _ceilings(graph: LiveGraph, figures: RunFigures, makespan: float) -> Iterator[CeilingView]:
    """Yield the ceilings of the policy, and the used amount of each."""
    policy, made, used = graph.plan.policy, figures.calls, figures.used
    rows: list[tuple[str, float, float | None]] = [
        ("max_attempts", made.total(), policy.max_attempts),
        ("max_tokens", used.tokens, policy.max_tokens),
        ("max_cost", used.known_cost, policy.max_cost),
        ("max_seconds", round(makespan, 6), policy.max_seconds),
        ("max_steps", len(graph.nodes), policy.max_steps),
        *((f"calls of {name}", made[name], limit) for name, limit in policy.max_calls_by_tool.items()),
        ("max_replans", graph.replans, policy.max_replans if graph.replans else None),
        ("planning.max_calls", graph.planner_calls, policy.planning.max_calls),
    ]
    for name, amount, limit in rows:
        if limit is not None:
            yield {"name": name, "used": amount, "limit": limit}


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


# The log --------------------------------------------------------------------------------------------------------------

MAX_LINES: Final = 2_000


def log_of(graph: LiveGraph, history: History) -> tuple[list[LogView], int]:
    """Return the lines of the log, and how many were left out: of steps only those that did not go well.

    Args:
        graph: The state of the run.
        history: The facts of its rare events.
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


# A plan that has not run ----------------------------------------------------------------------------------------------

PLAN: Final = "plan"
_PLACE: Final = re.compile(r"steps\[(\d+)\]")


def plan_view(plan: Plan, problems: Sequence[Problem] = ()) -> RunView:
    """Return the view of a plan.

    Args:
        plan: The plan, checked or not.
        problems: What a check has found; errors mark their step as failed.
    """
    found: dict[int, list[Problem]] = {}
    for problem in problems:
        place = _PLACE.match(problem.path)
        if place is not None:
            found.setdefault(int(place[1]), []).append(problem)
    needs = [[need for need in box.parents if need != n] for n, box in enumerate(boxes_of(plan))]
    steps = [_step(n, step, needs[n], found.get(n, [])) for n, step in enumerate(plan.steps)]
    errors = [str(problem) for problem in problems if not problem.is_advice and _PLACE.match(problem.path) is None]
    run: dict[str, Any] = {
        **dict.fromkeys(("id", "reason", "parent", "owner", "recorded_by"), ""),
        **dict.fromkeys(("status", "began", "ended", "critical_path", "cost", "handoff", "inputs", "output")),
        **dict.fromkeys(("tokens", "unpriced", "retries", "fallbacks", "replans"), 0),
        **dict.fromkeys(("makespan", "work", "parallelism", "known_cost"), 0.0),
        **{name: [] for name in ("ceilings", "suspended")},
        "goal": DEFAULT_REDACTOR.text(plan.goal),
        **dict.fromkeys(("state", "stand"), PLAN),
        "labels": {},
        "warnings": [str(problem) for problem in problems if problem.is_advice],
        "problems": errors,
        "counts": {"waiting": len(plan.steps)},
        "waits": dict.fromkeys(REASONS, 0.0),
        "slots": {},
    }
    view = {
        "schema_version": VIEW_VERSION,
        "dagrun": __version__,
        "seq": 0,
        "at": 0.0,
        "graph": 0,
        "run": run,
        "steps": steps,
        **{name: [] for name in ("path", "path_gaps", "revisions", "planner", "questions", "log")},
        "left_out": {"values": 0, "log": 0},
        "source": PLAN,
    }
    return cast(RunView, view)


def _step(n: int, step: Step, needs: list[int], problems: list[Problem]) -> dict[str, Any]:
    errors = [str(problem) for problem in problems if not problem.is_advice]
    return {
        **dict.fromkeys(
            ("parent", "children", "gone", "substitute", "ready", "started", "ended", "output", "progress")
        ),
        **{name: [] for name in ("waits", "limits", "attempts", "errors", "verdicts")},
        **dict.fromkeys(("after_wave", "is_default", "on_path"), False),
        **dict.fromkeys(("effect", "cause"), ""),
        "n": n,
        "id": step.id,
        "tool": step.tool,
        "state": "failed" if errors else "waiting",
        "why": DEFAULT_REDACTOR.text("; ".join(errors)),
        "description": DEFAULT_REDACTOR.text(step.description),
        "needs": needs,
        "revision": 0,
        "args": _planned(step.args) if step.args else None,
    }


def _planned(args: Mapping[str, Any]) -> ValueView:
    return shown_value(dict(args), DEFAULT_REDACTOR, LIMITS["short"], planned=True)
