"""The baseline x of every ratio: one `start_soon` per step in an anyio task group, counters, and nothing else.

A step gets what its dependencies gave, and what it gives is kept, as whoever writes this by hand would want. No scope
of its own for a step, no state, no event, no error handling: what dagrun takes beyond it, or saves, is the price of all
that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from shapes import Dependencies


async def run(
    shape: Dependencies, after: dict[str, list[str]], step: Callable[[str, dict[str, object]], Awaitable[object]]
) -> dict[str, object]:
    """Run *step* once for each step of *shape*, each in a task that starts when the last one it waits for has ended.

    Args:
        shape: What each step waits for.
        after: What waits for each step.
        step: What to run: it gets the id of a step, and what its dependencies gave.

    Returns:
        What each step gave.
    """
    given: dict[str, object] = {}
    missing = {id_: len(before) for id_, before in shape.items()}

    async def run_one(id_: str) -> None:
        given[id_] = await step(id_, {before: given[before] for before in shape[id_]})
        for waiting in after[id_]:
            missing[waiting] -= 1
            if not missing[waiting]:
                tasks.start_soon(run_one, waiting)

    async with anyio.create_task_group() as tasks:
        for id_ in [id_ for id_, count in missing.items() if not count]:
            tasks.start_soon(run_one, id_)
    return given
