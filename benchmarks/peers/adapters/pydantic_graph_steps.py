"""pydantic-graph: one node that runs a step, and maps over the steps which that has released, back to itself.

Its joins wait for all that came out of one fork, so a graph with a node per step would have to be made of nested forks,
and most graphs are not. This way it takes any graph without waves; the counting is the user's own code.
"""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from typing import Any

from pydantic_graph import GraphBuilder
from pydantic_graph.join import reduce_null

from peers.interface import Run, Shape, Step, Values
from shapes import successors

IS_BLOCKING = False

session = nullcontext


def prepare(shape: Shape, step: Step) -> Run:
    """Build the graph: begin, then the step that is run again and again, then a join when nothing is left."""
    after = successors(dict(shape))
    missing = Counter({id_: len(before) for id_, before in shape.items()})
    done: dict[str, Any] = {}

    # Without annotations, which pydantic-graph would want to see hold for its own classes.
    async def begin(context):  # type: ignore[no-untyped-def]
        return [id_ for id_, before in shape.items() if not before]

    async def work(context):  # type: ignore[no-untyped-def]
        id_ = context.inputs
        done[id_] = await step(id_, {one: done[one] for one in shape[id_]})
        missing.subtract(after[id_])
        return [one for one in after[id_] if not missing[one]]

    graph = _build(begin, work)

    async def run() -> Values:
        await graph.run()
        return done

    return run


def _build(begin: Any, work: Any) -> Any:
    builder = GraphBuilder(output_type=type(None))
    first, again = builder.step(begin, node_id="begin"), builder.step(work, node_id="work")
    end = builder.join(reduce_null, initial=None)
    released = builder.match(list, matches=bool).map().to(again)
    builder.add(
        builder.edge_from(builder.start_node).to(first),
        builder.edge_from(first).map().to(again),
        builder.edge_from(again).to(builder.decision().branch(released).branch(builder.match(list).to(end))),
        builder.edge_from(end).to(builder.end_node),
    )
    return builder.build()
