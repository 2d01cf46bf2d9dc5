"""The critical path as it happened: back from the last step to end, over the step that made each one ready."""

from __future__ import annotations

from collections.abc import Callable

from dagrun.graph.live_graph import LiveGraph
from dagrun.graph.mapped_steps import source_of
from dagrun.graph.node import Node
from dagrun.observe.view.history import FOREVER, History
from dagrun.observe.view.waits import Wait

_SAME = 1e-6  # seconds: times are rounded to microseconds


def path_as_it_went(graph: LiveGraph, history: History) -> list[tuple[Node, float]]:
    """Return the critical path, first step first, each with the time from which its waits are on the path.

    A for_each stands for its last element. A step that a planner has brought was made ready by its splice, and so by
    the step because of which the planner was asked.

    Args:
        graph: The state of the run.
        history: What its rare events say.
    """
    path: list[tuple[Node, float]] = []
    at = _last(graph, history)
    seen: set[str] = set()
    while at is not None and at.id not in seen:
        seen.add(at.id)
        before, since = _before(graph, history, at)
        path.append((at, since))
        at = before
    return path[::-1]


def _last(graph: LiveGraph, history: History) -> Node | None:
    """Return the step that ended last, or that was called last, if none has ended."""
    best: tuple[float, Node] | None = None
    for node in graph.nodes.values():
        if node.parent is not None or not node.has_started:
            continue
        end = _end(node, history)
        if end is not None and (best is None or end > best[0] + _SAME):
            best = (end, node)
    return best[1] if best is not None else None


def _end(node: Node, history: History) -> float | None:
    """Return the end of a step that was called, or of its last element; of one that runs, its start."""
    end = history.end_of(node)
    if end is not None or node.latest is None:
        return end
    return node.latest.ended if node.latest.ended is not None else node.latest.started


def _before(graph: LiveGraph, history: History, node: Node) -> tuple[Node | None, float]:
    """Return the step that made *node* ready, and when it did so; of a for_each, its element that ended last."""
    if (source := source_of(last_element(node, history))) is not None and source.parent is not None:
        return source.parent, history.end_of(source) or 0.0
    if node.plan.stream and (read := _read_to_its_end(graph, node, history)) is not None:
        return read
    begun = node.attempts[0].started if node.latest is not None else node.expanded
    limit = FOREVER if begun is None else begun + _SAME
    latest: tuple[float, Node] | None = None
    for id_ in node.plan.depends_on:
        need = graph.nodes[id_]
        end = history.end_of(need)
        if end is not None and end <= limit and need.has_started and (latest is None or end > latest[0] + _SAME):
            latest = (end, need)
    revision, at = history.origins.brought.get(node.id, (0, 0.0))
    cause = graph.nodes.get(history.triggers.get(revision, ""))
    if cause is not None and (latest is None or at > latest[0] + _SAME):
        end = history.end_of(cause)
        return cause, min(at, end) if end is not None else at
    return (latest[1], latest[0]) if latest is not None else (None, 0.0)


def _read_to_its_end(graph: LiveGraph, node: Node, history: History) -> tuple[Node, float] | None:
    """Return the for_each whose elements a call has waited for, one by one, and its end; `None` if it has not."""
    fan = graph.nodes.get(node.plan.stream)
    end = history.end_of(fan) if fan is not None and fan.children else None
    if fan is None or end is None or node.latest is None or end <= node.latest.started + _SAME:
        return None
    return fan, end


def last_element(node: Node, history: History) -> Node:
    """Return the element of a for_each that ended last; any other step itself."""
    return max(node.children, key=lambda child: history.end_of(child) or 0.0) if node.children else node


def element_on_path(path: list[tuple[Node, float]], place: int, history: History) -> Node:
    """Return the element of a for_each on the path that the next one went through, or else that ended last."""
    node = path[place][0]
    for after, _ in path[place + 1 : place + 2]:
        if node.children and after.extra is not None and after.extra.over is node:
            return node.children[element_on_path(path, place + 1, history).index]
    return last_element(node, history)


def gaps_on(
    path: list[tuple[Node, float]], waits: Callable[[Node], list[Wait]], history: History
) -> list[tuple[str, float, Node]]:
    """Return the waits on the path: the reason, the seconds, and the step that waited.

    A wait counts from the instant at which the step before on the path had ended. The time that a planner took before
    it brought a step is counted there, too.
    """
    gaps: list[tuple[str, float, Node]] = []
    brought = history.origins.brought
    for place, (node, since) in enumerate(path):
        parts = waits(node)
        if node.children:
            parts = [*parts, *waits(element_on_path(path, place, history))]
        if node.id in brought:
            until = brought[node.id][1]
            parts = [*(Wait("planner", work.at.start, min(work.at.end, until)) for work in history.planner), *parts]
        for wait in parts:
            seconds = wait.end - max(wait.start, since)
            if seconds > _SAME:
                gaps.append((wait.reason, seconds, node))
    return gaps
