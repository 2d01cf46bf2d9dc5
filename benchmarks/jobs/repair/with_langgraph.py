"""Convert the sum of orders; their file is gone, and a planner finds another source while the rate is looked up."""

import asyncio
from collections import Counter

from langgraph.func import entrypoint, task

CALLS: Counter[str] = Counter()


@task
async def exchange_rate() -> float:
    """Look up the rate, which takes a while."""
    CALLS["exchange_rate"] += 1
    await asyncio.sleep(0.05)
    return 0.5


@task
async def read_orders() -> list[float]:
    """Read the orders of today."""
    raise FileNotFoundError("orders.csv is gone")


@task
async def read_archive() -> list[float]:
    """Read the orders from the archive."""
    return [100.0, 150.0]


@task
async def convert(orders: list[float], rate: float) -> float:
    """Convert the sum."""
    return sum(orders) * rate


SOURCES = {"read_orders": read_orders, "read_archive": read_archive}


async def plan_again(failed: str, error: Exception) -> str:
    """Name another source in the place of one that has failed."""
    return "read_archive"


@entrypoint()
async def app(_: dict[str, object]) -> float:
    """Read and look up, then convert; the author must foresee which task a planner may replace."""
    rate = exchange_rate()
    try:
        orders = await SOURCES["read_orders"]()
    except FileNotFoundError as error:
        orders = await SOURCES[await plan_again("read_orders", error)]()
    return await convert(orders, await rate)


print(asyncio.run(app.ainvoke({})), CALLS["exchange_rate"])
