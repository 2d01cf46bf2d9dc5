"""Values that the policy keeps out of the record: what a tool gave, and where it is shown to people."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from dagrun.graph.live import LiveGraph
from dagrun.graph.node import Node
from dagrun.model.event import AttemptEnded, Event, QuestionAnswered, QuestionAsked, Reviewed, StepSettled
from dagrun.model.value import Stored, Unavailable

_KEPT_OUT = Unavailable("the policy keeps it out of the record")


def for_record(event: Event, graph: LiveGraph, tools: Collection[str]) -> Event:
    """Give *event* as it may be recorded.

    Args:
        event: It has been applied to the graph.
        graph: The state.
        tools: The tools whose outputs are kept out.
    """
    match event:
        case AttemptEnded() | Reviewed() if _gives(graph.nodes[event.step], tools):
            return replace(event, outcome=replace(event.outcome, value=_hidden(event.outcome.value)))
        case StepSettled() if _gives(graph.nodes[event.step], tools):
            return replace(event, value=_hidden(event.value))
        case QuestionAsked(question=question) if _shows(graph, question.step, tools):
            return replace(event, question=replace(question, arguments=_hidden(question.arguments)))
        case QuestionAnswered(answer=answer) if answer and event.step and _gives(graph.nodes[event.step], tools):
            return replace(event, answer=replace(answer, value=None))
        case _:
            return event


def _hidden(value: Stored) -> Stored:
    return None if value is None else _KEPT_OUT


def _gives(node: Node, tools: Collection[str]) -> bool:
    """Whether what a step gives is kept out."""
    return node.plan.tool.name in tools or (node.plan.fallback is not None and node.plan.fallback.name in tools)


def _shows(graph: LiveGraph, step: str, tools: Collection[str]) -> bool:
    """Whether a question shows what is kept out: the arguments of a step, what it gave, or the answer of the run."""
    if not step:
        return any(_gives(node, tools) for node in graph.nodes.values())
    node = graph.nodes[step]
    return _gives(node, tools) or any(_gives(graph.nodes[id_], tools) for id_ in node.plan.value_sources)
