"""Workers: an elastic pool of tasks, each of which runs one step after another.

A step that never suspends needs no task of its own. Another worker is woken for the ready steps only when a step
suspends, and only one at a time: each wakes the next when its own step suspends. So steps that suspend for one turn of
the loop share a few workers, and steps that wait longer get one each.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import Context
from types import TracebackType
from typing import Final, Self

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from dagrun.kernel.graph.node import Node
from dagrun.kernel.graph.step_order import Frontier
from dagrun.kernel.runtime.backend import (
    event_class,
    innermost_of,
    is_being_cancelled,
    is_cancellation,
    leave_leaked_scopes,
    uncancel_task,
)
from dagrun.kernel.runtime.stop_scope import StopScope


class WorkerScope:
    """A scope around the steps of one worker, entered by ``with``.

    A running step has the scope to itself. A step that ends as it should leaves the scope unchanged, and the next step
    may run in it; after any other end, the worker ends, and the scope with it. That spares most steps a scope of their
    own, which would be a quarter of the cost of a step.

    Args:
        scope: The cancel scope; not entered yet.

    Attributes:
        scope: The cancel scope.
        has_leaked: Whether a step has left a scope or a task group of its own open in it; then it was left at once.
        is_innermost: Returns whether no other scope is open in it.
    """

    __slots__ = ("has_leaked", "is_innermost", "scope")

    is_innermost: Callable[[], bool]

    def __init__(self, scope: StopScope) -> None:
        self.scope = scope
        self.has_leaked = False

    def __enter__(self) -> Self:
        self.scope.__enter__()
        self.is_innermost = innermost_of(self.scope.raw)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self.has_leaked:
            return error is not None and is_cancellation(error)
        return bool(self.scope.__exit__(kind, error, trace))

    def close_leaks(self) -> None:
        """Close by force the scopes and task groups that the step has left open."""
        self.has_leaked = True
        try:
            self.scope.__exit__(None, None, None)
        except RuntimeError:
            leave_leaked_scopes(self.scope.raw)


KEEP_IDLE: Final = 16  # beyond that, waiting costs more than starting again
STREAK: Final = 50  # steps in a row, after which other tasks get a turn
BREATH: Final = 0.005  # seconds, after which other tasks get a turn


class Workers:
    """The pool of one run.

    Args:
        tasks: The task group that owns every worker.
        frontier: Holds the ready steps.
        run_step: Runs one step to the end of its attempt; returns whether the task can run another step afterwards.
        context: The context variables of the run, for every worker.
        now: The clock of the loop.
        new_scope: Makes the scope of each worker.
    """

    def __init__(
        self,
        tasks: TaskGroup,
        frontier: Frontier,
        run_step: Callable[[Node, WorkerScope, bool], Awaitable[bool]],
        context: Context,
        *,
        now: Callable[[], float],
        new_scope: Callable[[], StopScope],
    ) -> None:
        self._tasks = tasks
        self._frontier = frontier
        self._run_step = run_step
        self._context = context
        self._now = now
        self._idle: list[anyio.Event] = []
        self._on_the_way: list[Node] = []  # steps that were taken, and handed to a task that has not begun yet
        frontier.elsewhere.append(self._on_the_way)
        self._coming = 0  # workers that were woken or started and have not looked at the frontier yet
        self._suspensions = 0
        self._new_scope = new_scope
        self._new_event = event_class()
        self._is_over = False

    def nudge(self) -> None:
        """Wake a worker for the ready steps: called when a step suspends, or becomes ready by itself."""
        if self._coming < 1 and not self._is_over and self._frontier.room():
            self._wake()

    def suspended(self) -> None:
        """Note that a step has suspended: its worker cannot run the next step, and other tasks get a turn."""
        self._suspensions += 1
        self.nudge()

    def stop(self) -> None:
        """End the idle workers: the run has ended."""
        self._is_over = True
        for event in self._idle:
            event.set()
        self._idle.clear()

    def _wake(self) -> None:
        self._coming += 1
        if self._idle:
            self._idle.pop().set()
        else:
            self._start(None)

    def _start(self, node: Node | None) -> None:
        self._tasks.create_task(self._work(node), name="dagrun worker", context=self._context)

    async def _work(self, node: Node | None) -> None:
        """Run ready steps one after another; retire after an end that was not clean."""
        try:
            await self._in_scope(node)
            await uncancel_task()
        finally:
            self.nudge()

    async def _in_scope(self, node: Node | None) -> None:
        try:
            with WorkerScope(self._new_scope()) as own:
                await self._go_on(node, own)
        except BaseException as error:
            # A cancellation that a tool left behind and that ends an idle worker does no harm, if it stops here.
            if not is_cancellation(error) or is_being_cancelled():
                raise

    async def _go_on(self, node: Node | None, own: WorkerScope) -> None:
        if node is None:
            self._coming -= 1
        elif node in self._on_the_way:
            self._on_the_way.remove(node)
        else:  # a splice has taken it back meanwhile
            self._frontier.release(node)
            node = None
        is_fresh, streak, since = True, 0, self._now()
        while True:
            node = node or self._frontier.take()
            if node is None:
                if not await self._rest():
                    return
                streak, since = 0, self._now()
                continue
            before = self._suspensions
            if not is_fresh and (node.on_fallback or not node.plan.may_repeat):
                # A cancellation that an earlier step left behind must not hit a call that cannot be repeated.
                self._on_the_way.append(node)
                self._start(node)
            elif not await self._run_step(node, own, is_fresh):
                return
            node, is_fresh, streak = None, False, streak + 1
            if self._suspensions != before:  # this very step has suspended: else no other worker could have run
                streak, since = 0, self._now()
            elif streak >= STREAK or self._now() - since > BREATH:
                await checkpoint()
                streak, since = 0, self._now()

    async def _rest(self) -> bool:
        """Wait for a step to become ready; return whether to continue."""
        if self._is_over or len(self._idle) >= KEEP_IDLE:
            return False
        event = self._new_event()
        self._idle.append(event)
        try:
            await event.wait()
        except BaseException:
            if event in self._idle:
                self._idle.remove(event)
            else:
                self._coming -= 1  # it was woken, and ends before it takes a step: its end wakes another worker
            raise
        if self._is_over:
            return False
        self._coming -= 1
        return True
