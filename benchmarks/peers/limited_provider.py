"""Calls to a provider that takes so many at once, as a peer makes them; run by the interpreter of the peer.

    PYTHON limited_provider.py WAY < facts.json

The facts are the *limit* of the provider, the number of *calls*, and the *seconds* of each. Prints how many were done,
how many requests were refused, and the makespan in seconds, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import operator
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any, TypedDict

TRIES = 10


class Busy(Exception):
    """The provider takes no more now."""


class Provider:
    """Takes *limit* calls at once, of any thread."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.live = self.refused = self.done = 0
        self._lock = threading.Lock()

    @contextmanager
    def place(self) -> Iterator[None]:
        """Take a call, or refuse it.

        Raises:
            Busy: It takes no more now.
        """
        with self._lock:
            if self.live >= self.limit:
                self.refused += 1
                raise Busy("429")
            self.live += 1
        try:
            yield
            with self._lock:
                self.done += 1
        finally:
            with self._lock:
                self.live -= 1


class State(TypedDict):
    """The state of the LangGraph graph."""

    found: Annotated[list[int], operator.add]


def langgraph(provider: Provider, calls: int, seconds: float, *, is_told: bool) -> Callable[[], object]:
    """A task by `Send` for each call: with retries of the library, or under its ``max_concurrency``."""
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import RetryPolicy, Send

    async def ask(number: int) -> dict[str, Any]:
        with provider.place():
            await asyncio.sleep(seconds)
        return {"found": [number]}

    again = RetryPolicy(initial_interval=seconds, max_interval=30 * seconds, max_attempts=TRIES, retry_on=Busy)
    graph = StateGraph(State)
    graph.add_node("ask", ask, retry_policy=None if is_told else again)
    graph.add_conditional_edges(START, lambda state: [Send("ask", number) for number in range(calls)], ["ask"])
    graph.add_edge("ask", END)
    app = graph.compile()
    options: Any = {"max_concurrency": provider.limit} if is_told else {}
    return lambda: asyncio.run(app.ainvoke({"found": []}, options))


def hamilton(provider: Provider, calls: int, seconds: float) -> Callable[[], object]:
    """`Parallelizable` and `Collect`, with as many threads as the provider takes calls; it has no retries."""
    from hamilton import driver
    from hamilton.ad_hoc_utils import create_temporary_module
    from hamilton.execution import executors
    from hamilton.htypes import Collect, Parallelizable

    def number() -> Any:
        yield from range(calls)

    def asked(number: Any) -> Any:
        with provider.place():
            time.sleep(seconds)
        return number

    def numbers(asked: Any) -> Any:
        return list(asked)

    # Hamilton reads the types themselves, which are texts here.
    number.__annotations__ = {"return": Parallelizable[int]}
    asked.__annotations__ = {"number": int, "return": int}
    numbers.__annotations__ = {"asked": Collect[int], "return": list}
    module = create_temporary_module(number, asked, numbers, module_name="limited_provider_plan")
    built = (
        driver.Builder()
        .enable_dynamic_execution(allow_experimental_mode=True)
        .with_modules(module)
        .with_remote_executor(executors.MultiThreadingExecutor(max_tasks=provider.limit))
        .build()
    )
    return lambda: built.execute(["numbers"])


def main() -> None:
    """Make the calls, and print what came of them."""
    facts = json.load(sys.stdin)
    provider, (calls, seconds) = Provider(facts["limit"]), (facts["calls"], facts["seconds"])
    ways: dict[str, Callable[[], Callable[[], object]]] = {
        "LangGraph, back-off": lambda: langgraph(provider, calls, seconds, is_told=False),
        "LangGraph, told": lambda: langgraph(provider, calls, seconds, is_told=True),
        "Hamilton, told": lambda: hamilton(provider, calls, seconds),
    }
    run = ways[sys.argv[1]]()  # what is imported and built does not count
    began = time.perf_counter()
    with suppress(Busy):  # the tries of a call are used up, and the rest was given up with it
        run()
    found = {"done": provider.done, "refused": provider.refused, "makespan": time.perf_counter() - began}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
