"""What it does to the live graph that a step with for_each gets its list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagrun.graph.frontier import Cap
from dagrun.graph.node import Node
from dagrun.model.event import StepExpanded
from dagrun.model.outcome import State

if TYPE_CHECKING:
    from dagrun.graph.live import LiveGraph


def step_expanded(graph: LiveGraph, event: StepExpanded) -> None:
    """Make a step of each element, and let it start."""
    parent = graph.nodes[event.step]
    parent.state = State.RUNNING
    parent.children = children = []
    parent.expanded = event.at
    parent.missing = len(event.items)
    limit = parent.plan.step.max_parallel
    caps = parent.caps if limit is None else (*parent.caps, Cap(limit))
    for index, item in enumerate(event.items):
        child = Node(f"{parent.id}[{index}]", parent.plan, parent.order)
        child.parent, child.index, child.item, child.caps = parent, index, item, caps
        children.append(child)
        graph.nodes[child.id] = child
        if child.id in graph.roots:
            graph.inherit_root(child)
        graph.frontier.push(child)
    graph.unsettled += len(children)
