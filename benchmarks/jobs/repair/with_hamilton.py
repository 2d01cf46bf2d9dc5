"""Convert the sum of orders; their file is gone, and a second graph with another source takes the rate from a cache."""

import sys
import time
from collections import Counter
from tempfile import TemporaryDirectory

from hamilton import driver
from hamilton.function_modifiers import config

CALLS: Counter[str] = Counter()


def exchange_rate() -> float:
    """Look up the rate, which takes a while."""
    CALLS["exchange_rate"] += 1
    time.sleep(0.05)
    return 0.5


@config.when(source="today")
def orders__today() -> list[float]:
    """Read the orders of today."""
    raise FileNotFoundError("orders.csv is gone")


@config.when(source="archive")
def orders__archive() -> list[float]:
    """Read the orders from the archive."""
    return [100.0, 150.0]


def convert(exchange_rate: float, orders: list[float]) -> float:
    """Convert the sum."""
    return sum(orders) * exchange_rate


def _plan_again(error: Exception) -> str:
    """Name another source in the place of one that has failed."""
    return "archive"


def _run(source: str, cache: str) -> float:
    builder = driver.Builder().with_modules(sys.modules[__name__]).with_config({"source": source})
    return builder.with_cache(cache).build().execute(["convert"])["convert"]


with TemporaryDirectory() as _cache:
    try:
        _total = _run("today", _cache)
    except FileNotFoundError as _error:
        _total = _run(_plan_again(_error), _cache)
print(_total, CALLS["exchange_rate"])
