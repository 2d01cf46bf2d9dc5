"""Fetch three temperatures at the same time, and name the warmest city."""

import asyncio
import sys

from hamilton import async_driver

TEMPERATURES = {"Oslo": 4.0, "Rome": 18.0, "Cairo": 29.0}


async def _fetch(city: str) -> float:
    """Fetch the temperature of a city."""
    await asyncio.sleep(0.01)
    return TEMPERATURES[city]


async def oslo() -> float:
    """Fetch for Oslo."""
    return await _fetch("Oslo")


async def rome() -> float:
    """Fetch for Rome."""
    return await _fetch("Rome")


async def cairo() -> float:
    """Fetch for Cairo."""
    return await _fetch("Cairo")


async def warmest(oslo: float, rome: float, cairo: float) -> str:
    """Name the warmest city."""
    temperatures = {"Oslo": oslo, "Rome": rome, "Cairo": cairo}
    return max(temperatures, key=lambda city: temperatures[city])


async def _main() -> None:
    driver = await async_driver.Builder().with_modules(sys.modules[__name__]).build()
    print((await driver.execute(["warmest"]))["warmest"])


asyncio.run(_main())
