"""Live graphs that release outputs, played by hand, event by event."""

from __future__ import annotations

from typing import Any

from dagrun import Step, Toolbox, Trigger, TriggerKind
from dagrun.kernel.graph.fold import fold
from dagrun.kernel.graph.live_graph import LiveGraph, make_frontier
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.tool import make_tool
from dagrun.kernel.model.value import RELEASED
from played import Played

TEXT = "a text"


async def load(of: Any = None) -> Any: ...


async def count(of: Any = None) -> Any: ...


TOOLS = Toolbox(*(make_tool(function, effect="read") for function in (load, count)))


def reads(id_: str, *sources: str, after: tuple[str, ...] = (), **fields: Any) -> Step:
    """A step that reads *sources*, and waits for *after* without reading it."""
    return Step(id=id_, tool="load", args={"of": [f"${{{name}}}" for name in sources]}, depends_on=after, **fields)


def play(*steps: Step, **options: Any) -> Played:
    """A run whose policy says that outputs are released."""
    return Played(steps, TOOLS, release_outputs=True, **options)


def gives(played: Played, *ids: str) -> None:
    """Let steps give a text."""
    played.succeed(*ids, value=TEXT)


def released(played: Played) -> set[str]:
    """The steps whose value is gone, wherever it stood."""
    return {node.id for node in played.graph.nodes.values() if _is_gone(node)}


def _is_gone(node: Node) -> bool:
    values = [node.value, *(a.outcome.value for a in node.attempts if a.outcome is not None)]
    values += [node.ended.value] if node.ended is not None else []
    found = [value for value in values if value is not None]
    assert not found or all(value is RELEASED for value in found) or RELEASED not in found, "half of it is gone"
    return RELEASED in found


def folded(played: Played) -> LiveGraph:
    """The same run from its events."""
    plan = played.graph.plan
    graph = LiveGraph(plan, played.graph.inputs, make_frontier(plan, None)[0])
    fold(graph, played.events, "run")
    assert graph.releasing is not None
    return graph


def trigger(step: str) -> Trigger:
    """A reason to ask the planner."""
    return Trigger(TriggerKind.FAILED, step, "no")
