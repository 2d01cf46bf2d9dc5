"""Steps that are to be skipped or cancelled: some hundred in each turn of the loop.

To settle 10,000 steps takes a tenth of a second, in which no other task in the loop would get its turn. The steps can
no longer start in any case, so nothing goes wrong while only some of them are settled, and the run does not end before
all are. What changes the plan, and a question to the planner or a person, has the rest settled first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.runtime.run_callbacks import RunCallbacks


class Backlog:
    """Settles steps, and leaves those that are too many for one turn of the loop to a task of its own.

    Args:
        graph: The state; read here.
        up: Is told after each turn: the run may have ended with it.

    Attributes:
        portion: The most steps that are looked at in one turn.
    """

    portion: ClassVar[int] = 200

    def __init__(self, graph: LiveGraph, up: RunCallbacks) -> None:
        self._graph = graph
        self._up = up
        self._left: list[Iterator[None]] = []  # the last is worked on; what follows from one of its steps comes on top
        self._is_settling = False
        self._is_at_work = False
        self._tasks: TaskGroup | None = None

    def open(self, tasks: TaskGroup) -> None:
        """Leave steps to later turns from now on."""
        self._tasks = tasks

    def close(self) -> None:
        """Settle all that is left, and from now on everything at once: soon there is no task that could do it."""
        self._tasks = None
        self.finish()

    @property
    def is_pending(self) -> bool:
        """Whether steps are left to be settled, or the run may end in the next turn, as they all are."""
        return bool(self._left) or (self._is_at_work and self._tasks is not None)

    def take(self, work: Iterator[None]) -> None:
        """Settle steps, after those that are left.

        Args:
            work: Settles them, and yields after each. What follows from a step is done before the next one.
        """
        if self._is_settling:
            self._left.append(work)
            return
        is_first = not self._left
        self._left.insert(0, work)
        if is_first or self._may_not_wait:
            self._settle(self.portion)
        if self._left and not self._is_at_work and self._tasks is not None:
            self._is_at_work = True
            self._tasks.start_soon(self._work, name="dagrun backlog")

    def finish(self) -> None:
        """Settle all that is left."""
        if self._left and not self._is_settling:
            self._settle(None)

    @property
    def _may_not_wait(self) -> bool:
        """Whether a planner or a person may change the run at any time; or there is no task."""
        graph = self._graph
        return self._tasks is None or bool(graph.is_drafting or graph.triggers or graph.questions)

    def _settle(self, most: int | None) -> None:
        """Settle so many steps; all, if *most* is `None`, or if they may not wait."""
        self._is_settling, count = True, 0
        try:
            while self._left and (most is None or count < most or self._may_not_wait):
                work, count = self._left[-1], count + 1
                if next(work, self) is self:
                    self._left.remove(work)
        finally:
            self._is_settling = False

    async def _work(self) -> None:
        try:
            while self._left:
                self._settle(self.portion)
                self._up.on_external_change()  # shows what is done; the run ends in a turn of its own
                await checkpoint()
        finally:
            self._is_at_work = False
        self._up.on_external_change()  # also if other code has settled the rest
