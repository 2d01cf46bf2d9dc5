"""LlamaIndex Workflows: an event for each step that can start, all taken by one step method with many workers.

A workflow's methods are fixed with its class, so a graph is expressed by events: the method that ends last of those
that a step waits for sends the event that starts it. The counting is the user's own code.
"""
# mypy: disallow-subclassing-any=False, disallow-untyped-decorators=False

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from typing import Any

from workflows import Context, Workflow, step
from workflows.events import Event, StartEvent, StopEvent

from peers.interface import Run, Shape, Step, Values
from shapes import successors

IS_BLOCKING = False

session = nullcontext


class Ready(Event):
    """A step can start."""

    id: str


def prepare(shape: Shape, run_step: Step) -> Run:
    """Make the class; its instance is made for each run, as it holds the state."""
    after = successors(dict(shape))

    class Graph(Workflow):
        def __init__(self) -> None:
            super().__init__(timeout=None)
            self.missing = Counter({id_: len(before) for id_, before in shape.items()})
            self.done: dict[str, Any] = {}

        @step
        async def begin(self, ctx: Context, ev: StartEvent) -> Ready | None:
            for id_ in (one for one, before in shape.items() if not before):
                ctx.send_event(Ready(id=id_))
            return None

        @step(num_workers=len(shape))
        async def work(self, ctx: Context, ev: Ready) -> Ready | StopEvent | None:
            values = {one: self.done[one] for one in shape[ev.id]}
            self.done[ev.id] = await run_step(ev.id, values)
            self.missing.subtract(after[ev.id])
            for id_ in (one for one in after[ev.id] if not self.missing[one]):
                ctx.send_event(Ready(id=id_))
            return StopEvent(result=self.done) if len(self.done) == len(shape) else None

    async def run() -> Values:
        values: Values = await Graph().run()
        return values

    return run
