"""Fetch three temperatures at the same time, and name the warmest city."""

import asyncio

from langgraph.func import entrypoint, task

TEMPERATURES = {"Oslo": 4.0, "Rome": 18.0, "Cairo": 29.0}


@task
async def fetch(city: str) -> float:
    """Fetch the temperature of a city."""
    await asyncio.sleep(0.01)
    return TEMPERATURES[city]


@task
async def warmest(temperatures: dict[str, float]) -> str:
    """Name the warmest city."""
    return max(temperatures, key=lambda city: temperatures[city])


@entrypoint()
async def app(cities: list[str]) -> str:
    """Fetch, then join."""
    fetched = await asyncio.gather(*(fetch(city) for city in cities))
    return await warmest(dict(zip(cities, fetched, strict=True)))


print(asyncio.run(app.ainvoke(list(TEMPERATURES))))
