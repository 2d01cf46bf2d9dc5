"""A sales report: figures of three regions side by side, a chart beside the table, and a branch that may fail alone.

The source of the east answers only at the second attempt. The forecast fails for good, and only it is missing.
"""

import statistics

import anyio

import dagrun

SALES = {
    "north": [1200.0, 1350.5, 1410.0, 1525.0],
    "south": [980.0, 1010.0, 990.5, 1105.0],
    "east": [2050.0, 1995.0, 2110.0, 2240.5],
}
asked = {"east": 0}


@dagrun.tool(effect="read", timeout=2)
async def sales(region: str) -> list[float]:
    """Read the sales of four quarters."""
    await anyio.sleep(0.1)  # stands for a slow database
    if region == "east":
        asked["east"] += 1
        if asked["east"] == 1:
            raise ConnectionError("connection reset by the database")
    return SALES[region]


@dagrun.tool(effect="pure")
def growth(quarters: list[float]) -> float:
    """Return the growth from the first to the last quarter, in percent."""
    return round(100 * (quarters[-1] / quarters[0] - 1), 1)


@dagrun.tool(effect="read")
def forecast(history: dict[str, list[float]]) -> dict[str, float]:
    """Ask the forecasting service, which is down."""
    raise dagrun.ToolError(f"the forecasting service is down; {len(history)} series wait")


@dagrun.tool(effect="pure")
def bars(history: dict[str, list[float]]) -> list[str]:
    """Draw a bar for each region: one block for every 1,000 of its mean."""
    means = {region: statistics.fmean(quarters) for region, quarters in history.items()}
    return [f"{region:6}{'#' * round(mean / 250)} {mean:,.0f}" for region, mean in means.items()]


@dagrun.tool(effect="pure")
def report(chart: list[str], growths: dict[str, float], outlook: dict[str, float] | None) -> list[str]:
    """Put the parts together."""
    best = max(growths, key=growths.__getitem__)
    return [*chart, f"grows most: {best}, {growths[best]} %", f"outlook: {outlook or 'not available'}"]


def main() -> None:
    history = {region: sales.options(id=f"sales-{region}").step(region=region) for region in SALES}
    chart = bars.step(history=history)
    growths = {region: growth.options(id=f"growth-{region}").step(quarters=history[region]) for region in SALES}
    outlook = forecast.options(on_failure="default", default=None).step(history=history)
    lines = report.step(chart=chart, growths=growths, outlook=outlook)

    result = dagrun.run_sync(dagrun.plan(output=lines), policy=dagrun.Policy(retry=dagrun.RetryRule(first_delay=0.05)))

    print(result.status, "- attempts for the east:", len(result.steps["sales-east"].attempts))
    print(*result[lines], sep="\n")
    print("forecast:", result.steps["forecast"].reason)


if __name__ == "__main__":
    main()

# prints: succeeded - attempts for the east: 2
# prints: north ##### 1,371
# prints: south #### 1,021
# prints: east  ######## 2,099
# prints: grows most: north, 27.1 %
# prints: outlook: not available
# prints: forecast: the forecasting service is down; 3 series wait
