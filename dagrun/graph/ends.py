"""Where a plan begins and where it ends: found once for plans so big that looking at every step keeps the loop busy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagrun.graph.collecting import MANY
from dagrun.graph.node import Node

if TYPE_CHECKING:
    from dagrun.graph.live import LiveGraph


@dataclass(frozen=True, slots=True)
class Ends:
    """Of a plan as a run begins with it.

    Attributes:
        first: The steps that wait for nothing.
        last: Those that nothing waits for, but for the end of a wave.
    """

    first: list[Node]
    last: list[Node]


def ends_of(nodes: Mapping[str, Node]) -> Ends | None:
    """Find the ends of a plan; `None` if it is so small that they are found whenever they are asked for."""
    if len(nodes) < MANY:
        return None
    return Ends([n for n in nodes.values() if not n.missing], [n for n in nodes.values() if _is_last(n)])


def _is_last(node: Node) -> bool:
    for after in node.successors:  # noqa: SIM110  (a generator for each step would cost more than all the rest)
        if node.id not in after.plan.gates:
            return False
    return True


def first_of(graph: LiveGraph) -> Iterable[Node]:
    """The steps with which a run begins, and maybe others."""
    return graph.nodes.values() if graph.ends is None else graph.ends.first


def sinks_of(graph: LiveGraph) -> list[Node]:
    """The steps of the plan as it stands that nothing waits for, but for the end of a wave."""
    if graph.ends is not None and not graph.revisions:
        return graph.ends.last.copy()
    return [node for node in graph.planned() if all(node.id in after.plan.gates for after in graph.after(node))]
