"""The run as a whole, for a view: its figures, ceilings, answer and state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, cast

from dagrun._version import __version__
from dagrun.errors import ValueRefused
from dagrun.graph import figures
from dagrun.graph.live_graph import LiveGraph
from dagrun.model.outcome import Recovery, Status
from dagrun.observe.view.history import History
from dagrun.observe.view.revisions import seconds
from dagrun.observe.view.shape import CeilingView, RunFacts
from dagrun.observe.view.slots import Slots
from dagrun.observe.view.values import ValueWriter
from dagrun.observe.view.waits import REASONS
from dagrun.runtime.result import answer_of

RUNNING: Final = "running"
WAITING: Final = "waiting"
INTERRUPTED: Final = "interrupted"
ENDED: Final = "ended"


def stand_of(graph: LiveGraph, history: History, *, is_alive: bool) -> str:
    """Return the state of a run; *is_alive*: whether a process runs it."""
    if graph.status is None:
        return RUNNING if is_alive else INTERRUPTED
    if history.pauses and history.pauses[-1].ended is None:
        return WAITING if graph.status is Status.WAITING else INTERRUPTED
    return ENDED


def head_of(graph: LiveGraph, history: History, *, is_alive: bool, owner: str) -> dict[str, Any]:
    """Return the facts about a run that take no look at every step."""
    shown, opening = graph.plan.redactor, history.opening
    return {
        "id": history.run_id,
        "goal": shown.text(graph.goal),
        "status": None if graph.status is None else str(graph.status),
        "stand": stand_of(graph, history, is_alive=is_alive),
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
    }


def facts_of(graph: LiveGraph, history: History, at: float, head: dict[str, Any], values: ValueWriter) -> RunFacts:
    """Return all facts about a run, but for its waits and slots, which the steps know.

    Args:
        graph: The state of the run.
        history: What its rare events say.
        at: The time of the view, in seconds since the start of the run.
        head: The facts of `head_of`.
        values: Writes inputs and answer.
    """
    used = figures.used(graph)
    work = figures.work(graph)
    decided = Counter(
        call.decision.recovery for node in graph.nodes.values() for call in node.attempts if call.decision is not None
    )
    makespan = at if history.ended is None else history.ended
    is_escalated = graph.status is Status.ESCALATED
    facts: dict[str, Any] = dict(
        **head,
        makespan=round(makespan, 6),
        work=round(work, 6),
        critical_path=round(figures.critical_path(graph), 6),
        parallelism=round(work / makespan, 3) if makespan else 0.0,
        tokens=used.tokens,
        cost=used.cost,
        known_cost=used.known_cost,
        unpriced=used.unpriced,
        retries=decided[Recovery.RETRY],
        fallbacks=decided[Recovery.FALL_BACK],
        ceilings=list(_ceilings(graph, used.tokens, used.known_cost, makespan)),
        handoff=graph.plan.redactor.value(figures.handoff(graph, graph.reason)) if is_escalated else None,
        counts=counts_of(graph),
        slots={},
        waits=dict.fromkeys(REASONS, 0.0),
        inputs=values.stored(graph.inputs) if graph.inputs not in (None, b"{}") else None,
        output=_answer(graph, values) if history.ended is not None else None,
    )
    return cast(RunFacts, facts)


def counts_of(graph: LiveGraph) -> dict[str, int]:
    """Return the number of steps of the current plan in each state; elements of for_each are left out."""
    return dict(sorted(Counter(str(node.state) for node in graph.planned()).items()))


def _answer(graph: LiveGraph, values: ValueWriter) -> Any:
    if graph.withheld is not None:
        return None
    try:
        answer = answer_of(graph)
    except ValueRefused as error:
        return {"$value": {"unavailable": str(error)}}
    return None if answer is None or answer == {} else values.plain(answer)


def slots_of(graph: LiveGraph, slots: Slots) -> dict[str, list[int]]:
    """Return the slots that are taken, and those that there are, by limit."""
    running = (node for node in graph.nodes.values() if node.is_in_flight)
    return slots.taken(Counter(key for node in running for key in slots.limits_of(node)))


def _ceilings(graph: LiveGraph, tokens: int, cost: float, makespan: float) -> Iterator[CeilingView]:
    """Yield the ceilings of the policy, and the used amount of each."""
    policy = graph.plan.policy
    calls = Counter(call.tool for node in graph.nodes.values() for call in node.attempts)
    hedges = Counter(call.tool for node in graph.nodes.values() for call in node.attempts if call.hedge is not None)
    made = calls + hedges
    rows: list[tuple[str, float, float | None]] = [
        ("max_attempts", made.total(), policy.max_attempts),
        ("max_tokens", tokens, policy.max_tokens),
        ("max_cost", cost, policy.max_cost),
        ("max_seconds", round(makespan, 6), policy.max_seconds),
        ("max_steps", len(graph.nodes), policy.max_steps),
        *((f"calls of {name}", made[name], limit) for name, limit in policy.max_calls_by_tool.items()),
        ("max_replans", graph.replans, policy.max_replans if graph.replans else None),
        ("max_planner_calls", graph.planner_calls, policy.max_planner_calls),
    ]
    for name, used, limit in rows:
        if limit is not None:
            yield {"name": name, "used": used, "reserved": 0, "limit": limit}
