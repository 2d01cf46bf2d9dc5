"""Fan out over a list that exists only in the run, at most so many at once, and reduce what comes back.

Each element is a step of its own: one fails for good, and only its value is missing.
"""

from collections.abc import Sequence

import anyio

import dagrun

most = {"now": 0, "ever": 0}


@dagrun.tool(effect="read")
async def list_shops() -> list[str]:
    """List the shops; nobody knows how many before the run."""
    return [f"shop-{number:02}" for number in range(12)]


@dagrun.tool(effect="read")
async def revenue(shop: str) -> int:
    """Ask one shop for its revenue."""
    most["now"] += 1
    most["ever"] = max(most["ever"], most["now"])
    try:
        await anyio.sleep(0.05)
    finally:
        most["now"] -= 1
    if shop == "shop-07":
        raise dagrun.ToolError("the till is broken")
    return 100 + int(shop[-2:])


@dagrun.tool(effect="pure")
def total(revenues: Sequence[int | None]) -> str:
    """Add up the shops that answered; null stands for one that did not."""
    known = [revenue for revenue in revenues if revenue is not None]
    return f"{sum(known)} from {len(known)} of {len(revenues)} shops"


def main() -> None:
    shops = list_shops.step()
    revenues = revenue.options(max_parallel=4, on_failure="default", default=None).each(shops).step(shop=dagrun.item)
    answer = total.step(revenues=revenues)

    result = dagrun.run_sync(dagrun.plan(output=answer))

    print(result.status, "-", result[answer])
    print("at once:", most["ever"])
    for id, step in result.steps.items():
        if step.failure:
            print(id, "failed:", step.failure.message)


if __name__ == "__main__":
    main()

# prints: succeeded - 1159 from 11 of 12 shops
# prints: at once: 4
# prints: revenue[7] failed: the till is broken
