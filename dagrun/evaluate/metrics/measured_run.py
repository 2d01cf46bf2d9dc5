"""The summary of a record with what only metrics ask for: the shape of its plan, and its critical path.

The graph is asked for the critical path of a run whose plan was repaired or has elements of a for_each; for all others
it follows from the spans of the steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dagrun.evaluate.plan_shape import needs_of, shape_of, tools_of
from dagrun.graph.longest_paths import remaining_paths, topological_order
from dagrun.observe.run_summary import RecordCount, RunSummary, count_record

if TYPE_CHECKING:
    from dagrun.model.journal import Line


def measured_run(run_id: str, lines: Sequence[Line]) -> RunSummary:
    """Return the whole summary of a run from its record.

    Args:
        run_id: The run.
        lines: The record, checked; at least one line.

    Raises:
        JournalDamaged: The record says what no run can have recorded.
    """
    count = count_record(run_id, lines)
    run, steps = count.run, list(count.steps.values())
    run.tools_planned, run.shape = tools_of(steps), shape_of(steps, count.output)
    if run.has_ended:
        run.critical_path = _critical_path(count) if count.is_plain else _by_graph(run_id, lines)
    return run


def _critical_path(count: RecordCount) -> float:
    successors: dict[str, list[str]] = {id_: [] for id_ in count.steps}
    degree = dict.fromkeys(successors, 0)
    for id_, step in count.steps.items():
        for need in needs_of(step):
            successors[need].append(id_)
            degree[id_] += 1
    seconds = {id_: count.spans[id_][1] - count.spans[id_][0] if id_ in count.spans else 0.0 for id_ in successors}
    order = topological_order(successors, degree)
    return max(remaining_paths(order, successors, seconds.__getitem__).values(), default=0.0)


def _by_graph(run_id: str, lines: Sequence[Line]) -> float:
    from dagrun.api.replaying import replayed
    from dagrun.graph.figures import critical_path
    from dagrun.model.codec.event_codec import events_of

    return critical_path(replayed(run_id, events_of(run_id, lines)).graph)
