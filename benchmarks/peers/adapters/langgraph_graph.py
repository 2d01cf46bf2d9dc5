"""LangGraph, graph API: a node and a channel per step; a node starts in the wave after the last it waits for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any, TypedDict

from langgraph.graph import START, StateGraph

from peers.interface import Run, Shape, Step, Values

IS_BLOCKING = False

session = nullcontext


def prepare(shape: Shape, step: Step) -> Run:
    """Compile the graph, with a key of the state for each step, and for each node only the keys that it waits for."""
    schema: Callable[[str, dict[str, Any]], Any] = TypedDict  # type: ignore[assignment]
    graph = StateGraph(schema("State", dict.fromkeys(shape, Any)))
    for id_, before in shape.items():
        asks = {"input_schema": schema(f"Of_{id_}", dict.fromkeys(before, Any))} if before else {}
        graph.add_node(f"n_{id_}", _node(id_, before, step), **asks)
        match before:
            case ():
                graph.add_edge(START, f"n_{id_}")
            case (one,):
                graph.add_edge(f"n_{one}", f"n_{id_}")
            case _:
                graph.add_edge([f"n_{one}" for one in before], f"n_{id_}")
    compiled = graph.compile()

    async def run() -> Values:
        values: Values = await compiled.ainvoke({}, {"recursion_limit": len(shape) + 10})
        return values

    return run


def _node(id_: str, before: tuple[str, ...], step: Step) -> Callable[[Any], Awaitable[dict[str, Any]]]:
    async def node(state):  # type: ignore[no-untyped-def]  # an annotation would be read as the node's schema
        return {id_: await step(id_, {one: state[one] for one in before})}

    return node
