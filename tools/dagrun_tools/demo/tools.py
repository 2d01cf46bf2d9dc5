"""The two tools that the demo adds to the tools of the package."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, Field

from dagrun import ToolError, tool
from dagrun_tools.facts import Point, Series, Statistics
from dagrun_tools.numerals import tidy

# 30-year fixed-rate mortgages in the United States, average of the year in percent.
# Source: Freddie Mac, Primary Mortgage Market Survey.
RATES: Final = {
    2000: 8.05,
    2001: 6.97,
    2002: 6.54,
    2003: 5.83,
    2004: 5.84,
    2005: 5.87,
    2006: 6.41,
    2007: 6.34,
    2008: 6.03,
    2009: 5.04,
    2010: 4.69,
    2011: 4.45,
    2012: 3.66,
    2013: 3.98,
    2014: 4.17,
    2015: 3.85,
}


class PricePage(BaseModel):
    """A page of the price index, as the source serves it."""

    index: dict[str, float] = Field(description="The consumer price index by year.")


@tool(effect="pure", timeout=10)
async def mortgage_rates_on_file(url: str) -> Series:
    """Give the mortgage rates that were kept when they could still be fetched; stands in for their source.

    Args:
        url: Where they would have come from.
    """
    points = [Point(period=str(year), value=rate) for year, rate in RATES.items()]
    return Series(
        name="30-year mortgage rate", unit="% a year", points=points, source="Freddie Mac PMMS (copy on file)"
    )


@tool(effect="pure", timeout=10)
async def in_constant_dollars(data: Statistics, prices: list[PricePage]) -> Series:
    """Put the value of each month into dollars of the last year, by the consumer price index.

    Args:
        data: What `calculate_stats` gives, in dollars.
        prices: The pages of the price index.
    """
    index = {year: level for page in prices for year, level in page.index.items()}
    if missing := sorted({month.period[:4] for month in data.months} - index.keys()):
        raise ToolError(f"the price index has no {', '.join(missing)}", missing_input="prices")
    last = max(index)
    points = [
        Point(period=month.period, value=tidy(round(month.total * index[last] / index[month.period[:4]], 2)))
        for month in data.months
    ]
    return Series(
        name=f"in dollars of {last}", unit=data.unit, points=points, source="CPI-U, Bureau of Labor Statistics"
    )
