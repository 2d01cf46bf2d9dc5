"""Long work in portions, one in each turn of the loop: skipping steps, and counting their ends.

To skip or to count 100,000 steps takes tenths of a second, in which no other task in the loop would get its turn.
`Portions` is what the three works of that kind share. The third is in `dagrun.runtime.steps.run_completion`: it
settles what is left of a run that is ended early. They differ in what waits for what:

1. Skipping (`Skips`) begins at once. The steps can no longer start in any case, so nothing goes wrong while only some
   of them are skipped. A change of the plan, and a question to the planner or a person, have the rest skipped first.
   The run does not end before all are skipped.
2. Counting (`FinalTally`) begins when every step has settled, and the end of the run waits for it. A change of the run
   meanwhile makes the count void: it begins anew when every step has settled again.
3. Settling (`RunCompletion`) begins in a later turn. It does the rest of the skipping itself, in its own portions, and
   the end of the run waits for it.

If the code around a run is cancelled, or the run is closed, there will be no more turns: all three finish at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import ClassVar, Final

from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from dagrun.decide.run_status import Tally
from dagrun.graph.live_graph import LiveGraph
from dagrun.runtime.run_callbacks import RunCallbacks

MANY: Final = 5_000  # steps that wait for one step
STEPS_A_TURN: Final = 100  # that are skipped or settled in each later turn of the loop: about 1.5 ms


def may_wait(graph: LiveGraph) -> bool:
    """Whether steps may be settled in a later turn of the loop.

    Not while a planner or a person is at work on the run: they might change it meanwhile.
    """
    return not (graph.is_drafting or graph.triggers or graph.questions)


class Portions:
    """Work that a task of its own does, a portion in each turn of the loop.

    Args:
        up: Is told when the task has ended.

    Attributes:
        task_name: Of the task.
    """

    task_name: ClassVar[str]

    def __init__(self, up: RunCallbacks) -> None:
        self._up = up
        self._is_at_work = False
        self._tasks: TaskGroup | None = None

    def open(self, tasks: TaskGroup) -> None:
        """Work in portions from now on."""
        self._tasks = tasks

    def at_once(self) -> None:
        """Do all work at once from now on: there is no task any more that could do the rest."""
        self._tasks = None

    def _start(self) -> None:
        """Have the rest done by a task, unless it is at work already."""
        if self._tasks is not None and not self._is_at_work:
            self._is_at_work = True
            self._tasks.start_soon(self._work, name=self.task_name)

    async def _work(self) -> None:
        try:
            while self._do_some():
                self._after_portion()
                await checkpoint()
        finally:
            # No turn may come between the last look at what is left and this: new work would not be done by any task.
            self._is_at_work = False
        self._after_all()

    def _do_some(self) -> bool:
        """Do a portion, if anything is left; return whether there may be more."""
        raise NotImplementedError

    def _after_portion(self) -> None:
        """Follow a portion after which there is more."""

    def _after_all(self) -> None:
        """Follow the last portion, also if other code has done it: the run may have ended with it."""
        self._up.on_external_change()


class Skips(Portions):
    """Skips the steps that can no longer run.

    Args:
        graph: The state; read here.
        up: Is told after each portion.

    Attributes:
        portion: The most steps that are skipped at once; more are skipped later, some in each turn of the loop.
    """

    task_name = "dagrun skip"
    portion: ClassVar[int] = 500

    def __init__(self, graph: LiveGraph, up: RunCallbacks) -> None:
        super().__init__(up)
        self._graph = graph
        self._left: deque[Iterator[None]] = deque()
        self._is_amid = False

    @property
    def is_pending(self) -> bool:
        """Whether steps are left to be skipped in a later turn."""
        return bool(self._left)

    def take(self, skipping: Iterator[None], waiting: int) -> None:
        """Skip the steps that cannot run because of how a step has ended: at once, or some now and the rest later.

        Args:
            skipping: Skips them, and yields after each.
            waiting: How many steps wait for that step itself. If they are many, this turn of the loop has enough to do
                with blocking them, and all are skipped later.
        """
        if self._tasks is None or self._is_amid:  # what follows from a skip comes before the next skip
            _exhaust(skipping)
        elif self._left:
            self._left.append(skipping)
        elif waiting > MANY and may_wait(self._graph):
            self._left.append(skipping)
            self._start()
        else:
            self._skip_some(skipping, self.portion)
            if self._left:
                self._start()

    def _skip_some(self, skipping: Iterator[None], most: int) -> None:
        was, self._is_amid = self._is_amid, True
        try:
            has_more = take_some(skipping, most)
        finally:
            self._is_amid = was
        if has_more:
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
        """Skip all that is left, and yield after each step."""
        while self._left:
            yield from self._left.popleft()

    def at_once(self) -> None:
        """Skip all that is left, and from now on everything at once."""
        super().at_once()
        self.skip_rest()

    def _do_some(self) -> bool:
        if self._left:
            self._skip_some(self._left.popleft(), min(self.portion, STEPS_A_TURN))
        return bool(self._left)

    def _after_portion(self) -> None:
        self._up.on_external_change()


class FinalTally(Portions):
    """Counts how steps have ended.

    Args:
        up: Is told when all are counted.

    Attributes:
        portion: The most steps that are looked at in one turn of the loop.
    """

    task_name = "dagrun last look"
    portion: ClassVar[int] = 1_000

    def __init__(self, up: RunCallbacks) -> None:
        super().__init__(up)
        self._seen = -1
        self._tally: Tally
        self._left: Iterator[None]
        self._is_done = False

    @property
    def is_pending(self) -> bool:
        """Whether steps are left to be counted in a later turn."""
        return self._is_at_work and self._tasks is not None

    def found(self, counting: Callable[[Tally], Iterator[None]], now: int) -> Tally | None:
        """Return how the steps have ended that did not succeed; `None` if later turns of the loop find that out.

        Args:
            counting: Counts all in the tally that it is given; yields after each, and stops if the run has changed.
            now: The number of the last event; a count before that event is void.
        """
        if self._seen != now:
            self._seen, self._is_done = now, False
            self._tally = Tally()
            self._left = counting(self._tally)
            self._count_some()
        while self._tasks is None and not self._is_done:
            self._count_some()
        if self._is_done:
            return self._tally
        self._start()
        return None

    def _count_some(self) -> None:
        self._is_done = not take_some(self._left, self.portion)

    def _do_some(self) -> bool:
        if not self._is_done:
            self._count_some()
        return not self._is_done


def take_some(work: Iterator[None], most: int) -> bool:
    """Continue *work* until it has yielded *most* times; return whether there may be more of it."""
    return sum(1 for _ in islice(work, most)) == most


def _exhaust(work: Iterator[None]) -> None:
    for _ in work:
        pass
