"""Work that would keep the loop busy for long: done in a worker thread, if there is much of it."""

from __future__ import annotations

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
_OBJECTS: Final = 50  # that a step takes, from its check to its end, and as many again for what its tool keeps

_lock: Final = threading.Lock()
_held: list[int] = []  # the steps of each plan that is at work now
_before = (0, 0, 0)  # the thresholds that the host has set
_ours = (0, 0, 0)


@contextmanager
def full_collections_put_off(steps: int) -> Iterator[None]:
    """Put off full collections for the body, if it is about many steps.

    Args:
        steps: How many.
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
    global _before, _ours  # noqa: PLW0603 - the thresholds belong to the process, and so does what is known of them
    with _lock:
        now = gc.get_threshold()
        if not _held or now != _ours:  # the host has set them meanwhile: that is what holds from then on
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

# Of a text, what takes about as long to read and check as `MANY` steps.
_MANY_BYTES: Final = 200_000
_EDGES: Final = 50  # dependencies that take as long as a step


async def aside(steps: int, work: Callable[[], T]) -> T:
    """Do *work*, which changes nothing that anybody else holds; in a worker thread, if it is about many steps.

    A thread gives the loop its turn every few milliseconds. Who is cancelled meanwhile does not wait for it: it ends
    by itself, and what it gives is dropped.

    Args:
        steps: How many it is about.
        work: What to do.
    """
    if steps < MANY:
        return work()
    return await anyio.to_thread.run_sync(partial(_unhurried, steps, work), abandon_on_cancel=True)


def _unhurried(steps: int, work: Callable[[], T]) -> T:
    with full_collections_put_off(steps):
        return work()


def weight_of(plan: object) -> int:
    """How many steps *plan* has, or so many as take as long to read and check; 0 for what nobody can say that of."""
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
                return 0  # reading it will say what is wrong
        case _:
            return 0
