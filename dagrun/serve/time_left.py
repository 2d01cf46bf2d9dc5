"""The remaining time of a run, where known: from its open steps, and the durations of such steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final

from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.outcome import State

_MOST: Final = 5_000  # steps; of more, nothing is said, as a look at each costs too much
_HELD: Final = (State.HELD, State.BLOCKED)  # nobody knows when a person or a planner answers


def time_left(graph: LiveGraph, now: float, median: Callable[[str], float | None]) -> float | None:
    """Return the seconds that the rest of a run takes at least, if each step takes as long as those like it.

    A step takes its own estimate, or the mean of the calls of its tool in this run that have succeeded, or the median
    of those in other runs. The rest takes as long as its longest path, or as its work on all slots, whichever is
    longer. Steps that fail take longer.

    Args:
        graph: The state of the run.
        now: Seconds since its start.
        median: Returns how long calls of a tool took in other runs; `None` if that is not known.

    Returns:
        `None` if the run has ended, waits for a person or a planner, or has a step left of which nothing is known:
        a call of a tool that was never called, or a for_each without its elements.
    """
    if graph.status is not None or graph.questions or len(graph.nodes) > _MOST:
        return None
    means = _means(graph)
    left = [node for node in graph.nodes.values() if not node.state.is_settled and not node.is_gone]
    own: dict[str, float] = {}
    for node in left:
        if node.children:
            own[node.id] = 0.0  # its elements are among the steps
            continue
        estimate = node.plan.step.estimate
        known = estimate
        if known is None and (known := means.get(node.tool.name)) is None:
            known = means[node.tool.name] = median(node.tool.name)
        if known is None or node.is_expandable or node.state in _HELD:
            return None
        began = node.latest.started if node.latest is not None and node.is_in_flight else now
        own[node.id] = max(0.0, known - (now - began))
    if not left:
        return None
    slots = graph.plan.policy.max_running or len(left)
    return max(_longest(graph, left, own), sum(own.values()) / slots)


def _means(graph: LiveGraph) -> dict[str, float | None]:
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for node in graph.nodes.values():
        call = node.latest
        if call is not None and call.ended is not None and node.state is State.SUCCEEDED:
            total = sums[call.tool]
            total[0] += call.ended - call.started
            total[1] += 1
    return {tool: total / count for tool, (total, count) in sums.items()}


def _longest(graph: LiveGraph, left: list[Node], own: dict[str, float]) -> float:
    """Return the longest path through the steps that are left; *left* may have them in any order."""
    waits = {node.id: 0 for node in left}
    for node in left:
        for after in _after(graph, node):
            if after.id in waits:
                waits[after.id] += 1
    begins = dict.fromkeys(own, 0.0)
    order = [node for node in left if not waits[node.id]]
    longest = 0.0
    for node in order:  # the list grows while it is walked
        end = begins[node.id] + own[node.id]
        longest = max(longest, end)
        for after in _after(graph, node):
            if after.id not in waits:
                continue
            begins[after.id] = max(begins[after.id], end)
            waits[after.id] -= 1
            if not waits[after.id]:
                order.append(after)
    return longest


def _after(graph: LiveGraph, node: Node) -> Iterable[Node]:
    return graph.after(node) if node.parent is None else (node.parent,)
