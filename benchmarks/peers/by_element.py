"""Two maps one after the other and a reduce, as a peer writes them; run by the interpreter of the peer.

    PYTHON by_element.py PEER < rows.json

Prints the makespan in seconds. A row has the seconds of the first and of the second stage.
"""

from __future__ import annotations

import asyncio
import json
import operator
import sys
import time
from typing import Annotated, Any, TypedDict


class State(TypedDict):
    """The state of the LangGraph graph."""

    rows: list[dict[str, Any]]
    fetched: Annotated[list[dict[str, Any]], operator.add]
    parsed: Annotated[list[int], operator.add]


def langgraph(rows: list[dict[str, Any]]) -> float:
    """Map with `Send`: each stage is a superstep, which ends when all of its tasks have."""
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import Send

    async def fetch(row: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(row["first"])
        return {"fetched": [row]}

    async def parse(row: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(row["then"])
        return {"parsed": [row["n"]]}

    async def spread(state: State) -> dict[str, Any]:
        return {}

    graph = StateGraph(State)
    graph.add_node("fetch", fetch)
    graph.add_node("spread", spread)
    graph.add_node("parse", parse)
    graph.add_conditional_edges(START, lambda state: [Send("fetch", row) for row in state["rows"]], ["fetch"])
    graph.add_edge("fetch", "spread")
    graph.add_conditional_edges("spread", lambda state: [Send("parse", row) for row in state["fetched"]], ["parse"])
    graph.add_edge("parse", END)
    app = graph.compile()

    async def run() -> float:
        began = time.perf_counter()
        found = await app.ainvoke({"rows": rows, "fetched": [], "parsed": []})
        assert sorted(found["parsed"]) == sorted(row["n"] for row in rows)
        return time.perf_counter() - began

    return asyncio.run(run())


def hamilton(rows: list[dict[str, Any]]) -> float:
    """Map with `Parallelizable`: what stands between it and `Collect` is one task for each element."""
    from hamilton import driver
    from hamilton.ad_hoc_utils import create_temporary_module
    from hamilton.execution import executors
    from hamilton.htypes import Collect, Parallelizable

    def row() -> Any:
        yield from rows

    def fetched(row: Any) -> Any:
        time.sleep(row["first"])
        return row

    def parsed(fetched: Any) -> Any:
        time.sleep(fetched["then"])
        return fetched["n"]

    def numbers(parsed: Any) -> Any:
        return list(parsed)

    # Hamilton reads the types themselves, which are texts here.
    row.__annotations__ = {"return": Parallelizable[dict]}
    fetched.__annotations__ = {"row": dict, "return": dict}
    parsed.__annotations__ = {"fetched": dict, "return": int}
    numbers.__annotations__ = {"parsed": Collect[int], "return": list}
    module = create_temporary_module(row, fetched, parsed, numbers, module_name="by_element_plan")
    built = (
        driver.Builder()
        .enable_dynamic_execution(allow_experimental_mode=True)
        .with_modules(module)
        .with_remote_executor(executors.MultiThreadingExecutor(max_tasks=len(rows)))
        .build()
    )
    began = time.perf_counter()
    found = built.execute(["numbers"])["numbers"]
    assert sorted(found) == sorted(row["n"] for row in rows)
    return time.perf_counter() - began


if __name__ == "__main__":
    print({"LangGraph": langgraph, "Hamilton": hamilton}[sys.argv[1]](json.load(sys.stdin)))
