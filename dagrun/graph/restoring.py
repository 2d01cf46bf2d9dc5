"""What a run has spent before it goes on: the ledger is filled from the state, open reservations at their worst."""

from __future__ import annotations

from dagrun.graph.ledger import Ledger, ModelCall
from dagrun.graph.live import LiveGraph
from dagrun.model.outcome import Attempt, ErrorKind


def restore(ledger: Ledger, graph: LiveGraph) -> None:
    """Charge *ledger* with all that the calls of a run have used so far, as its record says."""
    ledger.count_planner(graph.replans, graph.planner_calls)
    if not ledger.binds_attempts:
        return
    for node in graph.nodes.values():
        for attempt in node.attempts:
            outcome = attempt.outcome
            tokens, cost = (0, None) if outcome is None else (outcome.tokens, outcome.cost)
            ledger.charge(node.called(attempt.tool), tokens, cost, is_reported=_has_reported(attempt))
            if (hedge := attempt.hedge) is not None:
                known = bool(hedge.tokens) or hedge.cost is not None
                ledger.charge(node.called(attempt.tool), hedge.tokens, hedge.cost, is_reported=known)
    for asked, told in graph.model_calls.values():
        call = ModelCall(asked.who, asked.tokens, asked.cost)
        used = None if told is None else told.tokens
        paid = None if told is None else told.cost
        ledger.charge(call, used or 0, paid, is_reported=used is not None or paid is not None)


def _has_reported(attempt: Attempt) -> bool:
    """Whether what is on record of the use of a call is all of it; where that cannot be told, the worst is charged."""
    outcome = attempt.outcome
    if outcome is None:
        return False
    if outcome.failure is not None and outcome.failure.kind is ErrorKind.BAD_ARGUMENTS:
        return True  # no call came of it
    return bool(outcome.tokens) or outcome.cost is not None
