"""Work that would keep the loop busy for long: done in a worker thread, if there is much of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import anyio.to_thread

from dagrun.graph.checked import CheckedPlan
from dagrun.graph.collecting import MANY, full_collections_put_off
from dagrun.model.plan import Plan

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
