"""An executor that polls, as LLMCompiler describes its own: a loop that looks every 10 ms which tasks can start.

Written from the published description (arXiv 2312.04511, the task fetching unit), not from its code. As there, a task
is done when its tool has returned; one whose tool raises is never done, and the loop goes on looking.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any, Final

from peers.interface import Run, Shape, Step, Values

IS_BLOCKING = False
INTERVAL: Final = 0.01  # seconds

session = nullcontext


def prepare(shape: Shape, step: Step) -> Run:
    """Nothing has to be built."""

    async def run() -> Values:
        done: dict[str, Any] = {}
        waiting = dict(shape)
        tasks = set()  # or the loop would drop them

        async def run_one(id_: str) -> None:
            done[id_] = await step(id_, {before: done[before] for before in shape[id_]})

        while len(done) < len(shape):
            for id_ in [one for one, before in waiting.items() if all(other in done for other in before)]:
                del waiting[id_]
                task = asyncio.create_task(run_one(id_))
                tasks.add(task)
            await asyncio.sleep(INTERVAL)
        return done

    return run
