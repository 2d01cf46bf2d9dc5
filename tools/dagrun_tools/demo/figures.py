"""The figures that the sources of the demo serve, and those kept for the day that one of them is gone."""

from __future__ import annotations

from typing import Final

# Consumer Price Index for All Urban Consumers, annual average, 1982 to 1984 = 100.
# Source: U.S. Bureau of Labor Statistics (public domain).
PRICES: Final = {
    2000: 172.2,
    2001: 177.1,
    2002: 179.9,
    2003: 184.0,
    2004: 188.9,
    2005: 195.3,
    2006: 201.6,
    2007: 207.342,
    2008: 215.303,
    2009: 214.537,
    2010: 218.056,
    2011: 224.939,
    2012: 229.594,
    2013: 232.957,
    2014: 236.736,
    2015: 237.017,
}

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
