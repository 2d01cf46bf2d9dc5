"""Charge and then stamp; the process dies in between. Called again, it continues, and does not charge twice."""

import asyncio
import os
import sys
from pathlib import Path

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.func import entrypoint, task

FOLDER = Path(sys.argv[1])
CHARGES, CRASHED = FOLDER / "charges.txt", FOLDER / "crashed"


@task
async def charge(euros: float) -> str:
    """Charge a customer."""
    with CHARGES.open("a") as charges:
        charges.write(f"{euros}\n")
    return f"receipt for {euros}"


@task
async def stamp(receipt: str) -> str:
    """Stamp a receipt; the first time, the process dies in the middle, as by ``kill -9``."""
    await asyncio.sleep(0.05)
    if not CRASHED.exists():
        CRASHED.touch()
        os._exit(1)
    return f"{receipt}, stamped"


async def main() -> None:
    """Begin the run, or resume it."""
    async with AsyncSqliteSaver.from_conn_string(str(FOLDER / "runs.db")) as saver:

        @entrypoint(checkpointer=saver)
        async def app(euros: float) -> str:
            return await stamp(await charge(euros))

        thread = {"configurable": {"thread_id": "charge"}}
        has_begun = await saver.aget_tuple(thread) is not None
        answer = await app.ainvoke(None if has_begun else 80.0, thread, durability="sync")
        print(answer, len(CHARGES.read_text().splitlines()))


asyncio.run(main())
