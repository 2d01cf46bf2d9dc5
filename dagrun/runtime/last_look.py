"""How the steps of a run have ended, found out once all have: in portions, if they are many.

Where something has failed, every step is looked at, and of a million that takes seconds, in which nothing else in the
loop would get its turn. The run does not end before that is known: it may still be changed, and is then looked at anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from dagrun.decide.status import Tally
from dagrun.runtime.upcalls import Upcalls


class LastLook:
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
