"""Runs in the interpreter of a peer: takes a job on standard input, and answers with a line of JSON for each figure.

Nothing here or below may import dagrun: a peer's environment does not have it. The first line of an answer tells the
versions, the last one is empty. Figures are written as they come, so that a run that is stopped has given what it had.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from importlib import import_module
from importlib.metadata import version
from typing import Any, Final, TypeAlias

import anyio

from peers import measures
from peers.interface import Adapter, Cannot

Answer: TypeAlias = dict[str, Any]
MEASURES: Final[dict[str, Callable[[Adapter, Any], AsyncIterator[Answer]]]] = {
    "cost": measures.cost,
    "makespan": measures.makespan,
    "failure": measures.failure,
}


async def work(job: Answer, tell: Callable[[Answer], object]) -> None:
    """Do *job*, and *tell* each figure.

    Args:
        job: ``adapter`` in `peers.adapters`, ``packages`` whose versions are asked for, ``measure``, and its ``task``.
            The measure ``versions`` is nothing more.
        tell: Gets the figures one by one.
    """
    tell({"versions": {name: version(name) for name in job["packages"]}})
    if job["measure"] == "versions":
        return
    adapter: Any = import_module(f"peers.adapters.{job['adapter']}")
    async with adapter.session():
        try:
            async for answer in MEASURES[job["measure"]](adapter, job["task"]):
                tell(answer)
        except Cannot as error:
            tell({"cannot": str(error)})


def main() -> None:
    """Answer on what was standard output; what a peer prints goes to standard error instead."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    job = json.loads(sys.stdin.readline())

    def tell(answer: Answer) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    anyio.run(work, job, tell)
    tell({})
    os._exit(0)  # threads and servers of a peer must not hold up the next one


if __name__ == "__main__":
    main()
