"""Calls that wait for tasks of their own, at any depth, some of which swallow every cancellation."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, Final

import anyio

Work = Callable[[], Coroutine[Any, Any, None]]
Way = Callable[[Work], Coroutine[Any, Any, None]]
STORM: Final = 500  # cancellations, which is more than any proof needs
FOR_EVER: Final = 100.0  # seconds


class Poller:
    """Looks every half second, whatever happens.

    Attributes:
        swallowed: How many cancellations it has swallowed.
    """

    def __init__(self) -> None:
        self.swallowed = 0
        self._end = anyio.current_time() + FOR_EVER

    async def __call__(self) -> None:
        """Look until the end of time, or until it is cancelled as often as in a busy loop."""
        while self.swallowed < STORM and anyio.current_time() < self._end:
            try:
                await asyncio.sleep(0.5)
            except asyncio.CancelledError:
                self.swallowed += 1


async def direct(work: Work) -> None:
    """Await it."""
    await work()


async def in_a_task(work: Work) -> None:
    """Await a task."""
    await asyncio.create_task(_of(work))


async def gathered(work: Work) -> None:
    """Await two tasks, one of which ends at once."""
    await asyncio.gather(work(), asyncio.sleep(0))


async def in_a_group_of_anyio(work: Work) -> None:
    """Wait for the tasks of a group."""
    async with anyio.create_task_group() as group:
        group.start_soon(work)


async def in_a_group_of_asyncio(work: Work) -> None:
    """Wait for the tasks of a group."""
    async with asyncio.TaskGroup() as group:
        group.create_task(_of(work))


async def waited_for(work: Work) -> None:
    """Wait for a task, and again if that is cut off, as it must be known how it ends."""
    task = asyncio.create_task(_of(work))
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()


async def shielded(work: Work) -> None:
    """Await it behind a shield."""
    with anyio.CancelScope(shield=True):
        await work()


async def _of(work: Work) -> None:
    await work()


WAYS: Final = (direct, in_a_task, gathered, in_a_group_of_anyio, in_a_group_of_asyncio, waited_for, shielded)


def nested(*ways: Way) -> Way:
    """Return the way in which each of *ways* awaits the next."""

    async def outermost(work: Work) -> None:
        for way in reversed(ways):
            work = _bound(way, work)
        await work()

    return outermost


def _bound(way: Way, work: Work) -> Work:
    return lambda: way(work)


def random_way(draw: random.Random) -> tuple[str, Way]:
    """Return a random nesting, and its name."""
    ways = draw.choices(WAYS, k=draw.randint(1, 4))
    return " > ".join(way.__name__ for way in ways), nested(*ways)
