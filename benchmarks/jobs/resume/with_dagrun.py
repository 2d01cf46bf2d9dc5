"""Charge and then stamp; the process dies in between. Called again, it continues, and does not charge twice."""

import asyncio
import os
import sys
from pathlib import Path

import dagrun

FOLDER = Path(sys.argv[1])
CHARGES, CRASHED = FOLDER / "charges.txt", FOLDER / "crashed"


@dagrun.tool(effect="effectful")
async def charge(euros: float) -> str:
    """Charge a customer."""
    with CHARGES.open("a") as charges:
        charges.write(f"{euros}\n")
    return f"receipt for {euros}"


@dagrun.tool(effect="pure")
async def stamp(receipt: str) -> str:
    """Stamp a receipt; the first time, the process dies in the middle, as by ``kill -9``."""
    await asyncio.sleep(0.05)
    if not CRASHED.exists():
        CRASHED.touch()
        os._exit(1)
    return f"{receipt}, stamped"


async def main() -> None:
    """Begin the run, or resume it."""
    journal = dagrun.SQLiteJournal(FOLDER / "runs")
    if await journal.runs():
        async with dagrun.resume("charge", journal=journal, tools=[charge, stamp]) as run:
            result = await run.result()
    else:
        plan = dagrun.plan(output=stamp.step(charge.step(80.0)))
        result = await dagrun.run(plan, journal=journal, run_id="charge")
    print(result.output, len(CHARGES.read_text().splitlines()))


asyncio.run(main())
