"""What is open again when a run goes on: effects in doubt, and outputs that are needed and not in the record."""

from __future__ import annotations

from collections.abc import Iterator

from dagrun.graph.live import LiveGraph
from dagrun.graph.node import Node
from dagrun.model.outcome import State, Status
from dagrun.model.value import Unavailable


def in_doubt(graph: LiveGraph) -> list[str]:
    """The steps of a run that has ended as unknown which may be settled now, with all that was skipped for them."""
    if graph.status is not Status.UNKNOWN:
        return []
    doubtful = [node for node in graph.nodes.values() if node.state is State.UNKNOWN and not node.is_gone]
    found = {node.id: node for node in doubtful}
    for node in doubtful:
        found |= {behind.id: behind for behind in _skipped_behind(node)}
    return [node.id for node in graph.nodes.values() if node.id in found]


def _skipped_behind(cause: Node) -> Iterator[Node]:
    """What was skipped because of *cause*, step by step, and the for_each that it belongs to."""
    seen, behind = {cause.id}, [cause]
    while behind:
        node = behind.pop()
        for after in node.successors:
            if after.id not in seen and after.state is State.SKIPPED and not after.has_started and not after.is_gone:
                seen.add(after.id)
                behind.append(after)
                yield after


def lost(graph: LiveGraph) -> tuple[list[str], list[tuple[str, str]]]:
    """The outputs that steps still need and that are not in the record.

    Returns:
        The steps that may be called once more, because they only look; and the steps that cannot run, because what
        they need cannot be had again, each with the id of the step that gave it.
    """
    again: dict[str, Node] = {}
    hopeless: list[tuple[str, str]] = []
    wanting = [node for node in graph.nodes.values() if _needs_values(node)]
    for node in _answering(graph):
        if isinstance(node.value, Unavailable) and _may_be_called_again(node):
            again[node.id] = node
            wanting.append(node)
    while wanting:
        node = wanting.pop()
        for source in _lost_sources(graph, node):
            if source.id in again:
                continue
            if _may_be_called_again(source):
                again[source.id] = source
                wanting.append(source)  # its own arguments may need what is not there either
            else:
                hopeless.append((node.id, source.id))
    return [node.id for node in graph.nodes.values() if node.id in again], hopeless


def _may_be_called_again(node: Node) -> bool:
    return node.plan.tool.effect.is_free and node.children is None


def _answering(graph: LiveGraph) -> Iterator[Node]:
    """The steps whose outputs are the answer of the run."""
    if graph.output is None:
        yield from graph.sinks()
    else:
        yield from (graph.nodes[id_] for id_ in graph.output.sources if id_ in graph.nodes)


def _needs_values(node: Node) -> bool:
    return not node.state.is_settled and not node.is_gone and node.children is None


def _lost_sources(graph: LiveGraph, node: Node) -> Iterator[Node]:
    for id_ in sorted(node.plan.value_sources):
        source = graph.nodes.get(id_)
        if source is not None and isinstance(source.value, Unavailable):
            yield source
