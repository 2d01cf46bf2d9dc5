"""Views of the live graph as it would be with a patch. The graph itself is not changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from dagrun.graph.live_graph import LiveGraph
from dagrun.graph.node import Node
from dagrun.model.outcome import State
from dagrun.model.plan import Step


def is_over(node: Node) -> bool:
    """Whether a step can no longer be on a cycle: it has succeeded, or has left the plan.

    A step that was skipped still stands between others of the plan, and the plan must stay valid as a whole. An element
    of a for_each is no step of the plan: any settled one counts.
    """
    if node.parent is not None:
        return node.state.is_settled
    return node.state is State.SUCCEEDED or node.is_gone


def waiting_after(
    graph: LiveGraph, needs: Mapping[str, Iterable[str]], leaving: frozenset[str]
) -> Callable[[str], Iterator[str]]:
    """Return a function for the successors of a step with the patch applied, as far as they may be on a cycle.

    Args:
        graph: The graph without the patch.
        needs: The dependencies of each step that is added or changed.
        leaving: The ids that leave the plan.
    """
    added: dict[str, list[str]] = {}
    for id_, before in needs.items():
        for need in before:
            added.setdefault(need, []).append(id_)

    def after(id_: str) -> Iterator[str]:
        yield from added.get(id_, ())
        node = graph.nodes.get(id_)
        if node is None or id_ in leaving:
            return
        for next_ in node.successors:
            if next_.id not in needs and next_.id not in leaving and not is_over(next_):
                yield next_.id
        parent = node.parent  # which waits for its elements
        if parent is not None and parent.id not in leaving and not parent.state.is_settled:
            yield parent.id

    return after


class KnownIds(Mapping[str, int]):
    """The ids that a step may wait for with the patch applied. Their values, the places in a plan, are not used."""

    def __init__(self, nodes: Mapping[str, Node], leaving: frozenset[str], new: Mapping[str, object]) -> None:
        self._nodes = nodes
        self._leaving = leaving
        self._new = new

    def __getitem__(self, id_: str) -> int:
        if id_ in self:
            return 0
        raise KeyError(id_)

    def __contains__(self, id_: object) -> bool:
        if id_ in self._new:
            return True
        node = self._nodes.get(id_) if isinstance(id_, str) else None
        return node is not None and node.parent is None and not node.is_gone and id_ not in self._leaving

    def __iter__(self) -> Iterator[str]:
        yield from (id_ for id_ in self._nodes if id_ in self)
        yield from self._new

    def __len__(self) -> int:
        return len(self._nodes) + len(self._new)


class Definitions(Mapping[str, Step]):
    """The definitions of the steps of `KnownIds`, with the patch applied."""

    def __init__(self, nodes: Mapping[str, Node], index: Mapping[str, int], own: Mapping[str, Step]) -> None:
        self._index = index
        self._nodes = nodes
        self._own = own

    def __getitem__(self, id_: str) -> Step:
        if id_ not in self._index:
            raise KeyError(id_)
        return self._own[id_] if id_ in self._own else self._nodes[id_].plan.step

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._index)
