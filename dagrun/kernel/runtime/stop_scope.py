"""Stop scopes: cancelled code may clean up first.

1. Code that is told to stop is cancelled once, as `asyncio.timeout` does, at an await of its own. From then on it has
   the grace period to await its clean-up.
2. When that is over, it is cancelled at every await. After `LAST_AWAITS` more awaits, and at its first one after
   `LAST_SECONDS`, its driver drops it. On asyncio it is dropped at that time even if it waits for what does not end: a
   task of its own, or a thread behind a shield.
3. A cancellation of the code around the scope means the same. The scope is shielded from it for the grace period.
4. Code inside a shield of its own is not reached; it is cancelled once when it has left the shield.
5. Only a driven coroutine (`dagrun.kernel.runtime.coroutine_driver`) has a grace period. Our own code in the scope is
   cancelled at every await at once. The driver of a coroutine says so by `is_inside`.
6. Where the code ends a program of anyio, it is cancelled again: that clean-up waits for the program, and kills it
   when it is cancelled.
7. anyio cancels the tasks of a group of the code in each turn of the loop, until they end. After `LAST_TURNS` that is a
   busy loop, and stops.

On asyncio the one cancellation is a `Task.cancel`, which is taken back (`Task.uncancel`) when the coroutine has ended:
a cancelled scope would cancel again and again whatever the task waits for, such as other tasks that clean up. On trio
nothing but a scope can cancel. There an outer scope is cancelled; at the first cancellation that arrives, the inner one
becomes a shield until the grace period is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Final, Protocol, Self

import anyio
from anyio.lowlevel import cancel_shielded_checkpoint

from dagrun.kernel.runtime.backend import (
    calm,
    can_be_cancelled_now,
    cancel_status,
    ends_program,
    is_asyncio,
    is_being_cancelled,
    is_cancellation,
    is_effectively_cancelled,
    is_shielded_above,
    scope_class,
    scopes_above,
    scopes_inside,
    wake_by_force,
)

LAST_AWAITS: Final = 10  # a `finally` that awaits in another one needs more than one cancellation
LAST_SECONDS: Final = 0.05
LAST_TURNS: Final = 3 * LAST_AWAITS  # of the loop, which go by while the code is cancelled so many times


def _nothing() -> None:
    pass


class CoroutineDriver(Protocol):
    """The driver of a suspended coroutine: `dagrun.kernel.runtime.coroutine_driver.Suspended`."""

    coroutine: Any

    def leftovers(self) -> dict[int, Any]:
        """Return the awaited objects that may outlive the coroutine, by identity."""


class StopScope:
    """A scope for the cancellation of its code; see the rules at the top of this file.

    Args:
        make: The class of the cancel scopes of the running backend.
        grace: The grace period in seconds, for code that is stopped by a cancellation around the scope.
        now: The clock of the loop.
        on_cancelled_around: Called once if the code around the scope was cancelled while a coroutine is driven in it,
            and before the scope was told to stop.

    Attributes:
        raw: The cancel scope that holds the code.
        cutoff: When the grace period is over; `None` if the code was not told to stop.
        is_inside: Whether a driven coroutine runs or waits in the scope.
        is_due: Whether the driver calls `deliver` at the next await: the one cancellation could not be delivered yet,
            or there are scopes to watch.
        driver: What drives the coroutine; `None` as long as none waits.
        left: The object of its await when it was told to stop, or dropped.
    """

    __slots__ = (
        "_awaits_left",
        "_grace",
        "_now",
        "_on_cancelled_around",
        "cutoff",
        "driver",
        "is_due",
        "is_inside",
        "left",
        "raw",
    )

    def __init__(
        self,
        make: type[anyio.CancelScope],
        grace: float,
        now: Callable[[], float],
        on_cancelled_around: Callable[[], object] = _nothing,
    ) -> None:
        self.raw = make()
        self.cutoff: float | None = None
        self.is_inside = False
        self.is_due = False
        self.driver: CoroutineDriver | None = None
        self.left: dict[int, Any] = {}
        self._awaits_left = LAST_AWAITS
        self._grace = grace
        self._now = now
        self._on_cancelled_around = on_cancelled_around

    @property
    def is_told(self) -> bool:
        """Whether the code was cancelled, or the code around the scope was cancelled while it ran."""
        return self.cutoff is not None

    def __enter__(self) -> Self:
        raise NotImplementedError

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        raise NotImplementedError

    def stop(self, cutoff: float | None = None) -> None:
        """Cancel the code; only the first call counts.

        Args:
            cutoff: When the grace period is over, on the clock of the loop; `None` for the usual one from now.
        """
        raise NotImplementedError

    # For the driver ---------------------------------------------------------------------------------------

    def deliver(self) -> None:
        """Cancel the coroutine at the await that it has just reached, if it has to be and no shield is in between."""
        raise NotImplementedError

    def hit(self, error: BaseException) -> None:
        """Note that *error* arrives at the coroutine."""
        raise NotImplementedError

    def is_overdue(self) -> bool:
        """Count one more await; return whether the coroutine has had all that it gets after the grace period."""
        if self.cutoff is None:
            return False
        late = self._now() - self.cutoff
        if late < 0:
            return False
        self._awaits_left -= 1
        return self._awaits_left < 0 or late > LAST_SECONDS

    def give_up(self) -> None:
        """Allow the coroutine no more awaits after the grace period."""
        self._awaits_left = 0

    def leave(self) -> None:
        """Undo the rest of the cancellation: the coroutine has ended, or was dropped."""
        self.is_due = False

    def _ends_program(self) -> bool:
        return self.driver is not None and ends_program(self.driver.coroutine)

    def _look(self) -> None:
        """Find possible leftovers of the coroutine, before a cancellation changes its awaits."""
        if self.driver is not None:
            self.left = self.driver.leftovers() | self.left


class _AsyncioStopScope(StopScope):
    """On asyncio: a native cancellation, and a shield for the grace period."""

    __slots__ = ("_cancels", "_cancels_before", "_has_hit", "_is_cancelled_around", "_last_call", "_task")

    _task: asyncio.Task[object]

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._cancels_before = task.cancelling()
        self._cancels = 0
        self._is_cancelled_around = False
        self._has_hit = False  # whether the one cancellation has been delivered
        self._last_call: asyncio.TimerHandle | None = None
        self.raw.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._last_call is not None:
            self._last_call.cancel()
        if self.raw.__exit__(kind, error, trace):
            return True
        return self.cutoff is not None and error is not None and is_cancellation(error) and not is_being_cancelled()

    def stop(self, cutoff: float | None = None) -> None:
        if self.cutoff is not None:
            return
        now = self._now()
        self.cutoff = end = now + self._grace if cutoff is None else cutoff
        if not self.is_inside or end <= now:
            self._look()
            self._set_last_call(end)
            self.raw.cancel()
            return
        self._is_cancelled_around = is_effectively_cancelled(self.raw)
        self._spare(end)
        # The scope around it may have cancelled it just now. But not if something had come for which it waited: it has
        # gone on, and from now on the shield keeps the scope from coming back to it.
        is_coming = self._is_cancelled_around and self._task.cancelling() > self._cancels_before
        if is_coming or not can_be_cancelled_now(self._task) or self._is_shielded():
            self.is_due = True  # `hit` takes that back, if it comes before the next await
        else:
            self._cancel()

    def deliver(self) -> None:
        if self.raw.cancel_called:
            self.is_due = False  # it is cancelled at every await
        elif not self._is_shielded() and (not self._has_hit or (self._cancels <= LAST_AWAITS and self._ends_program())):
            self._cancel()

    def hit(self, error: BaseException) -> None:
        if self.cutoff is None:
            if is_cancellation(error) and is_effectively_cancelled(self.raw):
                self.cutoff = self._now() + self._grace
                self._is_cancelled_around = True
                self.is_due = True
                if not self._is_shielded():
                    self._note_hit()
                self._spare(self.cutoff)
                self._on_cancelled_around()
        elif not self._has_hit and self._is_cancelled_around and is_cancellation(error) and not self._is_shielded():
            self._note_hit()

    def give_up(self) -> None:
        super().give_up()
        if self.is_inside:
            wake_by_force(self._task)

    def leave(self) -> None:
        self.is_due = False
        while self._cancels:
            self._cancels -= 1
            self._task.uncancel()

    def _is_shielded(self) -> bool:
        return any(scope.shield for scope in scopes_inside(self.raw, self._task))

    def _spare(self, cutoff: float) -> None:
        self.raw.shield = True
        self.raw.deadline = cutoff
        self._set_last_call(cutoff)

    def _set_last_call(self, cutoff: float) -> None:
        """Drop the coroutine soon after *cutoff*, even if the task group with the timers is cancelled by then."""
        if self.is_inside:
            seconds = max(0.0, cutoff - self._now()) + LAST_SECONDS
            self._last_call = self._task.get_loop().call_later(seconds, self.give_up)

    def _cancel(self) -> None:
        if not self._has_hit:
            self._note_hit()
        self._cancels += 1
        self.is_due = True
        self._task.cancel()

    def _note_hit(self) -> None:
        self._has_hit = True
        self._look()
        if self.left or scopes_inside(self.raw, self._task):
            self._calm(LAST_TURNS)

    def _calm(self, turns: int) -> None:
        """Stop anyio's cancellation of tasks in a group of the coroutine, after *turns* turns of the loop."""
        if self.driver is not None and turns:
            self._task.get_loop().call_soon(self._calm, turns - 1)
        elif self.driver is not None:
            tasks = [one.task for one in self.driver.leftovers().values() if one.task is not None]
            for task in (self._task, *tasks):
                calm(scopes_inside(self.raw, task))


class _TrioStopScope(StopScope):
    """On trio: an outer scope that cancels, and an inner one that is a shield for the grace period."""

    __slots__ = ("_outer", "_outer_status", "_status", "_watched")

    _watched: tuple[Any, ...] | None  # the scopes of the coroutine in which it was cancelled; none before that

    def __enter__(self) -> Self:
        # Made here: a scope that was told to stop before it is entered needs no more than the inner one.
        self._watched = None
        self._outer = type(self.raw)()
        self._outer.__enter__()
        self._outer_status = cancel_status()
        self.raw.__enter__()
        self._status = cancel_status()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        try:
            is_caught = self.raw.__exit__(kind, error, trace)
        except BaseException as raised:
            self._outer.__exit__(type(raised), raised, raised.__traceback__)
            raise
        if is_caught:
            self._outer.__exit__(None, None, None)
            return True
        return bool(self._outer.__exit__(kind, error, trace))

    def stop(self, cutoff: float | None = None) -> None:
        if self.cutoff is None:
            self.cutoff = self._now() + self._grace if cutoff is None else cutoff
            self._look()
            outer = getattr(self, "_outer", self.raw)
            outer.cancel()

    def deliver(self) -> None:
        if self._watched is not None and any(scope.cancel_called for scope in self._watched):
            self.raw.shield = self.is_due = False
        elif self._watched is not None:
            self.raw.shield = not self._ends_program()

    def hit(self, error: BaseException) -> None:
        if self._watched is not None:
            self.deliver()
            return
        if not is_cancellation(error) or not self._outer_status.effectively_cancelled:
            return
        if is_shielded_above(self._status):
            return  # that was a cancellation of its own
        is_around = self.cutoff is None
        if self.cutoff is None:
            self.cutoff = self._now() + self._grace
        # A scope of the coroutine that is itself cancelled takes the cancellation for its own behind our shield, and
        # the coroutine would go on after it. So there is no shield if one is cancelled, or will be because it is that
        # of a nursery; and the shield is taken away as soon as one is, by hand or at its deadline.
        if self._now() < self.cutoff:
            self._watched = scopes_above(self._status)
        if self._watched is not None:
            self.raw.deadline = self.cutoff
            self.raw.shield = self.is_due = True
        if is_around:
            self._on_cancelled_around()


def stop_scopes(
    grace: float, now: Callable[[], float], on_cancelled_around: Callable[[], object] = _nothing
) -> Callable[[], StopScope]:
    """Return the factory of stop scopes for the running backend.

    Args:
        grace: The grace period in seconds.
        now: The clock of the loop.
        on_cancelled_around: See `StopScope`.
    """
    kind = _AsyncioStopScope if is_asyncio() else _TrioStopScope
    return partial(kind, scope_class(), grace, now, on_cancelled_around)


async def last_turns(is_over: Callable[[], bool]) -> None:
    """Yield a few turns of the loop, until *is_over*: code past its grace period is cancelled at each await in them."""
    for _ in range(LAST_TURNS):
        if is_over():
            return
        await cancel_shielded_checkpoint()
