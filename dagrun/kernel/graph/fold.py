"""Fold a record: compute the state of a run from its recorded events, without calling anything."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from dagrun.errors import JournalDamaged
from dagrun.kernel.graph.changes import apply_recorded
from dagrun.kernel.graph.frontier import Frontier
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node
from dagrun.kernel.graph.output_eviction import as_released, keep_values
from dagrun.kernel.graph.patches.check_patch import Origin, Splicer
from dagrun.kernel.model.event import Event, Spliced
from dagrun.kernel.model.outcome import Attempt
from dagrun.kernel.model.patch import Patch
from dagrun.kernel.model.value import Stored, decode_or_reason

_ORIGINS: Final[dict[str, Origin]] = {"host": "host", "planner": "planner"}


def fold(graph: LiveGraph, recorded: Iterable[Event], run_id: str) -> None:
    """Apply the *recorded* events to *graph*, the state of a run that has not begun.

    The graph then has all values of the record; those that the run has released are only marked.

    Raises:
        JournalDamaged: An event does not fit the events before it.
    """
    splicer, frontier = Splicer(graph, is_folding=True), graph.frontier
    keep_values(graph)
    graph.frontier = _Nowhere(priorities=frontier.priorities)
    try:
        _fold(graph, splicer, recorded, run_id)
    finally:
        frontier.priorities = graph.frontier.priorities
        graph.frontier = frontier


class _Nowhere(Frontier):
    """A frontier that keeps nothing: while a record is folded, no step is taken, and one becomes ready many times."""

    __slots__ = ()

    def push(self, node: Node) -> None:
        """Ignore *node*."""


def _fold(graph: LiveGraph, splicer: Splicer, recorded: Iterable[Event], run_id: str) -> None:
    for event in recorded:
        if graph.status is not None and type(event).__name__ not in _AFTER_END:
            raise JournalDamaged(run_id, event.seq, f"the run had ended, and {type(event).__name__} comes after that")
        try:
            why = apply_recorded(graph, _with_patch(event, splicer) if isinstance(event, Spliced) else event)
        except JournalDamaged:
            raise
        except Exception as error:
            # Each record is well-formed by itself; an event that cannot be applied was not written by a run.
            what = f"{type(event).__name__} does not follow from what was recorded before it"
            raise JournalDamaged(run_id, event.seq, f"{what}: {type(error).__name__}: {error}") from error
        if why:
            raise JournalDamaged(run_id, event.seq, why)


_AFTER_END: Final = frozenset(("RunResumed", "RunReopened"))


def _with_patch(event: Spliced, splicer: Splicer) -> Spliced:
    """Return *event* with its `CheckedPatch`, from the check that the patch has passed before."""
    facts: dict[str, Any] = {"output": event.output} if event.changes_output else {}
    checked, problems = splicer.check(Patch(edits=event.edits, **facts), _ORIGINS[event.origin])
    if checked is None:
        raise ValueError("; ".join(str(problem) for problem in problems if not problem.is_advice))
    return replace(event, checked=checked)


def state_of(graph: LiveGraph) -> dict[str, Any]:
    """Return the whole state of a run as plain JSON: equal for equal events, on every machine."""
    seen = as_released(graph)
    return {
        "status": None if graph.status is None else str(graph.status),
        "reason": graph.reason,
        "goal": graph.goal,
        "unsettled": graph.unsettled,
        "revisions": [[r.number, r.origin, r.reason, r.goal, str(r.consequence)] for r in graph.revisions],
        "kept": {id_: sorted(why) for id_, why in sorted(graph.kept.items())},
        "triggers": [trigger.as_dict() | {"fingerprint": trigger.fingerprint} for trigger in graph.triggers.values()],
        "questions": [question.as_dict() for question in graph.questions.values()],
        "replanned": [[past.result, list(past.fingerprints), past.signature] for past in graph.replanned],
        "asking": {str(number): list(steps) for number, steps in graph.asking.items()},
        "replans": graph.replans,
        "planner_calls": graph.planner_calls,
        "model_calls": [
            [number, asked.tokens, asked.cost, *([] if told is None else [told.tokens, told.cost])]
            for number, (asked, told) in graph.model_calls.items()
        ],
        "models": [graph.models.tokens, graph.models.known_cost, graph.models.unpriced],
        "warnings": list(graph.warnings),
        "guarded_tools": dict(sorted(graph.guarded_tools.items())),
        "elements": {id_: decode_or_reason(value) for id_, value in sorted(graph.elements.items())},
        "withheld": None if graph.withheld is None else [str(graph.withheld[0]), graph.withheld[1]],
        "stopping": None if graph.stopping is None else [str(graph.stopping[0]), graph.stopping[1]],
        "draft_end": list(graph.draft_end),
        "flags": [graph.is_frozen, graph.is_drafting, graph.wants_more, graph.has_plan, graph.saving is not None],
        "steps": {id_: _node_state(node, partial(seen, node)) for id_, node in graph.nodes.items()},
    }


def state_hash(graph: LiveGraph) -> str:
    """Return a hash of `state_of`, in hex."""
    text = json.dumps(state_of(graph), ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _node_state(node: Node, seen: Callable[[Stored], Stored]) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "state": str(node.state),
        "missing": node.missing,
        "value": decode_or_reason(seen(node.value)),
        "tolerated": node.is_tolerated,
        "on_fallback": node.on_fallback,
        "reason": node.reason,
        "successors": sorted(after.id for after in node.successors),
        "children": None if node.children is None else [child.id for child in node.children],
        "attempts": [_attempt_state(attempt, seen) for attempt in node.attempts],
    }
    if node.extra is not None:
        extra = node.extra
        if extra.over is not None:
            shown["over"] = extra.over.id
        shown["extra"] = {
            "root": extra.root,
            "frozen": extra.frozen.id if extra.frozen is not None else "",
            "substitute": extra.substitute,
            "is_gone": extra.is_gone,
            "generation": extra.generation,
            "approved": extra.approved,
            "is_passed": extra.is_passed,
            "is_closed": extra.is_closed,
            "is_agreed": extra.is_agreed,
            "guards": extra.guards,
            "given": {name: decode_or_reason(value) for name, value in extra.given.items()},
            "verdicts": [verdict.as_dict() for verdict in extra.verdicts],
            "counts": [extra.forgiven, extra.cleared, extra.applied, extra.asked],
            "held": [extra.held, extra.held_since],
            "told": [content for content, _ in extra.told],
        }
    return shown


def _attempt_state(attempt: Attempt, seen: Callable[[Stored], Stored]) -> list[Any]:
    outcome, decision = attempt.outcome, attempt.decision
    shown: list[Any] = [attempt.number, attempt.tool, attempt.started, attempt.ended]
    if outcome is not None:
        failure = outcome.failure.as_dict() if outcome.failure is not None else None
        value = decode_or_reason(seen(outcome.value))
        shown += [str(outcome.state), value, failure, outcome.tokens, outcome.cost, outcome.surprise]
    if decision is not None:
        shown += [str(decision.recovery), decision.reason, decision.delay]
    if (hedge := attempt.hedge) is not None:
        shown.append([hedge.started, hedge.ended, hedge.has_won, hedge.tokens, hedge.cost, hedge.fault])
    return shown
