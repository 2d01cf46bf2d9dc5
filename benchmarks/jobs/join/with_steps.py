"""Fetch three temperatures at the same time, and name the warmest city."""

import asyncio

import dagrun

TEMPERATURES = {"Oslo": 4.0, "Rome": 18.0, "Cairo": 29.0}


@dagrun.tool(effect="read")
async def fetch(city: str) -> float:
    """Fetch the temperature of a city."""
    await asyncio.sleep(0.01)
    return TEMPERATURES[city]


@dagrun.tool(effect="pure")
async def warmest(temperatures: dict[str, float]) -> str:
    """Name the warmest city."""
    return max(temperatures, key=lambda city: temperatures[city])


fetches = [dagrun.Step(id=city.lower(), tool="fetch", args={"city": city}) for city in TEMPERATURES]
fetched = {step.args["city"]: f"${{{step.id}}}" for step in fetches}
join = dagrun.Step(id="warmest", tool="warmest", args={"temperatures": fetched})
print(dagrun.run_sync(dagrun.Plan(steps=[*fetches, join]), tools=[fetch, warmest]).output)
