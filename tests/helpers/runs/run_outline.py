"""What came of a run, without its times: equal for two runs in which the same happened, however long it took.

The hash of a state (`dagrun.kernel.graph.fold.state_hash`) has every time in it, random delays, and texts that name
places in code; it tells records apart. This outline tells runs apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dagrun import Revision
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.outcome import Attempt
from dagrun.kernel.model.value import decode_or_reason
from dagrun.kernel.runtime.result import answer_of


def outline_of(graph: LiveGraph) -> dict[str, Any]:
    """Return what came of a run, as plain JSON.

    In it: the status and the answer; of each step its definition, its state, its output, what each attempt came to, and
    what critics objected; and each change of the plan. Not in it: times, usage, the words of failures, and in which
    portions the first plan came.

    Args:
        graph: The state of the run, live or folded from its record.
    """
    return {
        "status": None if graph.status is None else str(graph.status),
        "goal": graph.goal,
        "output": answer_of(graph),
        "steps": {id_: _step(node) for id_, node in sorted(graph.nodes.items())},
        "patches": sorted(_patches(graph.revisions)),
    }


def _step(node: Node) -> dict[str, Any]:
    objections = [[verdict.critic, verdict.result] for verdict in node.extra.verdicts] if node.extra is not None else []
    definition = node.plan.step.model_dump(mode="json", by_alias=True, exclude_unset=True, fallback=repr)
    return {
        "definition": {name: part for name, part in definition.items() if name != "executor"},
        "state": str(node.state),
        "output": decode_or_reason(node.value),
        "attempts": [_attempt(attempt) for attempt in node.attempts],
        "objections": sorted(one for one in objections if one[1] != "pass"),
        "is_gone": node.is_gone,
        "substitute": "" if node.extra is None else node.extra.substitute,
    }


def _attempt(attempt: Attempt) -> list[Any]:
    outcome, decision = attempt.outcome, attempt.decision
    if outcome is None:
        return [attempt.tool]
    failure = outcome.failure
    what = "" if failure is None else f"{failure.kind}, transient" if failure.is_transient else str(failure.kind)
    return [attempt.tool, str(outcome.state), what, "" if decision is None else str(decision.recovery)]


def _patches(revisions: list[Revision]) -> Iterator[list[Any]]:
    """Yield each change of the plan; what a planner only adds comes in portions, and is seen in the steps."""
    for revision in revisions:
        change = revision.consequence
        if revision.origin == "planner" and not (change.dropped or change.replaced or change.rewired):
            continue
        facts = (change.added, change.dropped, change.rewired)
        yield [revision.origin, *map(sorted, facts), sorted(change.replaced.items())]
