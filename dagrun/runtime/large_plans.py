"""Work on plans of 2,000 steps and more: in a worker thread, and without full garbage collections."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import anyio.to_thread

from dagrun.checks.checked_plan import CheckedPlan
from dagrun.model.plan import Plan

MANY: Final = 2_000  # steps; below that a full collection is short
_OBJECTS: Final = 50  # of a step, from its check to its end, and as many again for what its tool keeps

_lock: Final = threading.Lock()
_held: list[int] = []  # the number of steps of each plan that is being worked on now
_before = (0, 0, 0)  # the thresholds that the host has set
_ours = (0, 0, 0)  # those that were set here


@contextmanager
def full_collections_put_off(steps: int) -> Iterator[None]:
    """Put off full garbage collections for the body, if it works on many steps.

    Args:
        steps: The number of steps.
    """
    if steps < MANY or not gc.isenabled():
        yield
        return
    _change(steps, is_over=False)
    try:
        yield
    finally:
        _change(steps, is_over=True)


def _change(steps: int, *, is_over: bool) -> None:
    global _before, _ours  # noqa: PLW0603 - the thresholds belong to the process
    with _lock:
        now = gc.get_threshold()
        if not _held or now != _ours:  # the host has set new ones meanwhile, which count from now on
            _before = now
        if is_over:
            _held.remove(steps)
        else:
            _held.append(steps)
        young, middle, old = _before
        room = sum(_held) * _OBJECTS // max(1, young * middle)
        _ours = (young, middle, old + room)
        gc.set_threshold(*_ours)


T = TypeVar("T")

# A text of that size takes about as long to read and check as `MANY` steps.
_MANY_BYTES: Final = 200_000
_EDGES: Final = 50  # dependencies that take as long as a step


async def aside(steps: int, work: Callable[[], T]) -> T:
    """Do *work*, which changes no shared object; in a worker thread, if it is about many steps.

    A thread gives the loop a turn every few milliseconds. A caller that is cancelled does not wait for the thread: the
    thread ends by itself, and its result is dropped. On a clock that jumps, the loop would go on to the next time limit
    meanwhile, so there the work is done at once.

    Args:
        steps: The number of steps that it is about.
        work: The work.
    """
    if steps < MANY:
        return work()
    if _jumps():
        return _unhurried(steps, work)
    return await anyio.to_thread.run_sync(partial(_unhurried, steps, work), abandon_on_cancel=True)


def _jumps() -> bool:
    """Whether the clock of the loop jumps to the next timer, whatever a thread does."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # of trio
        return False
    return getattr(loop, "jumps", False) is True


def _unhurried(steps: int, work: Callable[[], T]) -> T:
    with full_collections_put_off(steps):
        return work()


def weight_of(plan: object) -> int:
    """Return the number of steps of *plan*, or of steps that take as long to read and check; 0 if it is not known."""
    match plan:
        case CheckedPlan():
            return len(plan.steps)
        case Plan():
            count = len(plan.steps)
            return count if count >= MANY else max(count, sum(len(s.depends_on) for s in plan.steps) // _EDGES)
        case str() | bytes():
            return len(plan) * MANY // _MANY_BYTES
        case Path():
            try:
                return plan.stat().st_size * MANY // _MANY_BYTES
            except (OSError, ValueError):
                return 0  # reading it will tell the error
        case _:
            return 0
