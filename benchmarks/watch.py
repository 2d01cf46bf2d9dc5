"""What a report costs: CPU seconds beyond the replay of the record, and bytes, for 1,000 and 10,000 steps.

    python benchmarks/watch.py

The budgets are 0.25 s and 0.5 MB for 1,000 steps, and 1.5 s and 2 MB for 10,000.
"""

from __future__ import annotations

import sys
import time
from typing import Any, Final

import anyio

import dagrun
from dagrun import MemoryJournal, Plan, Policy, Step, tool
from dagrun.observe.report.report import make_report
from dagrun.observe.view.document import view_of
from dagrun.testing import virtual_backend

BUDGETS: Final = {1_000: (0.25, 500_000), 10_000: (1.5, 2_000_000)}


async def played(count: int) -> tuple[Any, float]:
    """Return a run read back from its record, and the CPU seconds that reading it took."""

    @tool(effect="read")
    async def fetch(number: int, after: Any = None) -> dict[str, int]:
        """Fetch something."""
        await anyio.sleep(0.01 * (number % 17 + 1))
        return {"number": number}

    steps = [
        Step(id=f"s{n}", tool="fetch", args={"number": n, "after": [f"${{s{max(0, n - 37)}}}"] if n > 99 else []})
        for n in range(count)
    ]
    journal = MemoryJournal()
    policy = Policy(max_running=50)
    await dagrun.run(Plan(steps=steps), tools=[fetch], journal=journal, run_id="r", policy=policy)
    begun = time.process_time()
    past = await dagrun.replay("r", journal=journal)
    return past, time.process_time() - begun


def main() -> int:
    """Measure, and compare with the budgets."""
    backend, options = virtual_backend("asyncio")
    is_good = True
    for count, (seconds, most) in BUDGETS.items():
        past, replay = anyio.run(played, count, backend=backend, backend_options=options)
        begun = time.process_time()
        size = len(make_report(view_of(past)))
        took = time.process_time() - begun
        is_good = is_good and took <= seconds and size <= most
        print(f"{count:>6,} steps  replay {replay:.2f} s  view and page {took:.2f} s  {size:,} bytes")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
