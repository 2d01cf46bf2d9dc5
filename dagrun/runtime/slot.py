"""A slot: one attempt while it runs."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from dagrun.graph.live import Node
from dagrun.model.context import ToolContext
from dagrun.model.outcome import State
from dagrun.model.protocols import ToolCall
from dagrun.model.toolbox import AnyTool


class Slot:
    """One running attempt, and the handle by which it can be told to stop.

    Attributes:
        node: The step.
        tool: What is called.
        scope: The cancel scope around the attempt; it exists from the instant the step is running.
        call: What the executor gets; from when the arguments are filled in until the end is recorded.
        is_fresh: Whether nothing else ran on this task before.
        deadline: When the attempt must be over, on the clock of the loop; or none.
        limit: Seconds that it has, if there is a deadline.
        asked: Why it was told to stop: ``timed_out`` or ``cancelled``; `None` if it was not.
        reason: The same in words.
        cutoff: When it is abandoned if it still runs; or none.
        was_interrupted: Whether anything was thrown into it while it waited, a cancellation, say.
        is_done: Whether its end was recorded.
        tokens: Reported so far.
        cost: Reported so far; `None` if nothing was.
        context: What the tool may ask of the run, once somebody wanted it.
    """

    __slots__ = (
        "_now",
        "asked",
        "call",
        "context",
        "cost",
        "cutoff",
        "deadline",
        "is_done",
        "is_fresh",
        "limit",
        "node",
        "reason",
        "scope",
        "tokens",
        "tool",
        "was_interrupted",
    )

    def __init__(
        self, node: Node, tool: AnyTool, scope: anyio.CancelScope, is_fresh: bool, now: Callable[[], float]
    ) -> None:
        self.node = node
        self.tool = tool
        self.scope = scope
        self.call: ToolCall | None = None
        self.is_fresh = is_fresh
        self.deadline: float | None = None
        self.limit = 0.0
        self.asked: State | None = None
        self.reason = ""
        self.cutoff: float | None = None
        self.was_interrupted = False
        self.is_done = False
        self.tokens = 0
        self.cost: float | None = None
        self.context: ToolContext | None = None
        self._now = now

    def tell_to_stop(self, asked: State, reason: str, grace: float) -> None:
        """Cancel the attempt. The first reason counts; the grace period runs from then."""
        if self.asked is None:
            self.asked, self.reason = asked, reason
            self.cutoff = self._now() + grace
            if self.context is not None:
                self.context.stop.set()
            self.scope.cancel()

    def is_overdue(self) -> bool:
        """Whether its grace period is over."""
        return self.cutoff is not None and self._now() >= self.cutoff
