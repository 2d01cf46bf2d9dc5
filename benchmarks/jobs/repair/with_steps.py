"""Convert the sum of orders; their file is gone, and a planner finds another source while the rate is looked up."""

import asyncio
from collections import Counter

import dagrun

CALLS: Counter[str] = Counter()


@dagrun.tool(effect="read")
async def exchange_rate() -> float:
    """Look up the rate, which takes a while."""
    CALLS["exchange_rate"] += 1
    await asyncio.sleep(0.05)
    return 0.5


@dagrun.tool(effect="read")
async def read_orders() -> list[float]:
    """Read the orders of today."""
    raise FileNotFoundError("orders.csv is gone")


@dagrun.tool(effect="read")
async def read_archive() -> list[float]:
    """Read the orders from the archive."""
    return [100.0, 150.0]


@dagrun.tool(effect="pure")
async def convert(orders: list[float], rate: float) -> float:
    """Convert the sum."""
    return sum(orders) * rate


class Planner:
    """Puts the archive in the place of a source that has failed."""

    async def revise(self, brief: dagrun.Brief) -> dagrun.Patch:
        """Answer with a patch."""
        archive = dagrun.Step(id="archive", tool="read_archive")
        return dagrun.Patch(edits=[dagrun.Replace(id=brief.triggers[0].step, step=archive)])


arguments = {"orders": "${orders}", "rate": "${rate}"}
plan = dagrun.Plan(
    steps=[
        dagrun.Step(id="orders", tool="read_orders"),
        dagrun.Step(id="rate", tool="exchange_rate"),
        dagrun.Step(id="total", tool="convert", args=arguments),
    ]
)
tools = [exchange_rate, read_orders, read_archive, convert]
result = dagrun.run_sync(plan, tools=tools, planner=Planner())
print(result.output, CALLS["exchange_rate"])
