"""The steps that can no longer run because of how others have ended: skipped, in portions if they are many.

To skip a million steps takes seconds, in which nothing else in the loop would get its turn. None of them can start, so
nobody can tell when each is skipped but by looking: whatever changes the plan, or asks somebody about it, has all that
is left skipped first, and the run does not end before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import ClassVar

from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from dagrun.decide.run_status import Tally
from dagrun.graph.live_graph import LiveGraph
from dagrun.runtime.upcalls import Upcalls


def may_wait(graph: LiveGraph) -> bool:
    """Whether steps may be settled a turn of the loop later.

    Not while a planner or a person is at work on the run, who might change it meanwhile.
    """
    return not (graph.is_drafting or graph.triggers or graph.questions)


class Skips:
    """Skips what can no longer run.

    Args:
        graph: The state; read here.
        up: Is told after each portion.

    Attributes:
        portion: The most steps that are skipped in one turn of the loop.
    """

    portion: ClassVar[int] = 500

    def __init__(self, graph: LiveGraph, up: Upcalls) -> None:
        self._graph = graph
        self._up = up
        self._left: deque[Iterator[None]] = deque()
        self._is_amid = False
        self._is_at_work = False
        self._tasks: TaskGroup | None = None

    def open(self, tasks: TaskGroup) -> None:
        """Skip in portions from now on."""
        self._tasks = tasks

    @property
    def is_pending(self) -> bool:
        """Whether steps are left to be skipped in a later turn."""
        return bool(self._left)

    def take(self, skipping: Iterator[None]) -> None:
        """Skip all that cannot run because of how a step has ended: at once, or some of it, and the rest later.

        Args:
            skipping: Skips them; gives way after each.
        """
        if self._tasks is None or self._is_amid:  # what comes of a skip comes before the next one
            _exhaust(skipping)
        elif self._left:
            self._left.append(skipping)
        else:
            self._skip_some(skipping)
            if self._left and not self._is_at_work:
                self._is_at_work = True
                self._tasks.start_soon(self._work, name="dagrun skip")

    def _skip_some(self, skipping: Iterator[None]) -> None:
        was, self._is_amid = self._is_amid, True
        try:
            count = sum(1 for _ in islice(skipping, self.portion))
        finally:
            self._is_amid = was
        if count == self.portion:
            self._left.appendleft(skipping)
        if self._left and (self._tasks is None or not may_wait(self._graph)):
            self.skip_rest()

    def skip_rest(self) -> None:
        """Skip all that is left."""
        was, self._is_amid = self._is_amid, True
        try:
            _exhaust(self.rest())
        finally:
            self._is_amid = was

    def rest(self) -> Iterator[None]:
        """Go through all that is left; gives way after each."""
        while self._left:
            yield from self._left.popleft()

    def at_once(self) -> None:
        """Skip all that is left, and from now on whatever comes at once."""
        self._tasks = None
        self.skip_rest()

    async def _work(self) -> None:
        try:
            while self._left:
                self._skip_some(self._left.popleft())
                if self._left:
                    self._up.settle_down()
                    await checkpoint()
        finally:
            # No turn may come between the last look at what is left and this: what fails in it would wait for nobody.
            self._is_at_work = False
        self._up.settle_down()  # also if others have skipped the rest: the run may have ended with it


def _exhaust(skipping: Iterator[None]) -> None:
    for _ in skipping:
        pass


class FinalTally:
    """Counts how steps have ended.

    Args:
        up: Is told when all is counted.

    Attributes:
        portion: The most steps that are looked at in one turn of the loop.
    """

    portion: ClassVar[int] = 1_000

    def __init__(self, up: Upcalls) -> None:
        self._up = up
        self._seen = -1
        self._tally: Tally
        self._left: Iterator[None]
        self._is_done = False
        self._is_at_work = False
        self._tasks: TaskGroup | None = None

    def open(self, tasks: TaskGroup) -> None:
        """Count in portions from now on."""
        self._tasks = tasks

    @property
    def is_pending(self) -> bool:
        """Whether steps are left to be counted in a later turn."""
        return self._is_at_work and self._tasks is not None

    def found(self, counting: Callable[[Tally], Iterator[None]], now: Callable[[], int]) -> Tally | None:
        """How the steps have ended that did not succeed; `None` if that is found out in later turns of the loop.

        Args:
            counting: Counts all in the tally that it is given; gives way after each.
            now: The number of the last event: what was counted before another one holds no longer.
        """
        if self._seen != now():
            self._seen, self._is_done = now(), False
            self._tally = Tally()
            self._left = counting(self._tally)
            self._count_some()
        while self._tasks is None and not self._is_done:
            self._count_some()
        if self._is_done:
            return self._tally
        if self._tasks is not None and not self._is_at_work:
            self._is_at_work = True
            self._tasks.start_soon(self._work, now, name="dagrun last look")
        return None

    def at_once(self) -> None:
        """Count all at once from now on."""
        self._tasks = None

    def _count_some(self) -> None:
        left, self._is_done = self._left, True
        for number, _ in enumerate(left, 1):
            if number == self.portion:
                self._is_done = False
                break

    async def _work(self, now: Callable[[], int]) -> None:
        try:
            while self._seen == now() and not self._is_done:
                self._count_some()
                await checkpoint()
        finally:
            self._is_at_work = False
        self._up.settle_down()
