"""Statistics that a few wild values cannot upset: medians, their deviation, Theil-Sen slopes, Mann-Kendall tests."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Sequence
from statistics import NormalDist, median
from typing import Final

_NORMAL: Final = NormalDist()
_TO_SIGMA: Final = 1.4826  # the median absolute deviation of a normal distribution is its sigma over this
_MAX_POINTS: Final = 600  # pairs grow with the square: 600 points make 180,000
_EXACT: Final = 10  # up to here the exact distribution is used


def deviation(values: Sequence[float]) -> float:
    """The spread of *values* by their median absolute deviation, scaled to compare with a standard deviation.

    Where over half of the values are equal, that would be 0: the mean absolute deviation stands in.
    """
    middle = median(values)
    distances = [abs(value - middle) for value in values]
    return _TO_SIGMA * median(distances) or 1.2533 * math.fsum(distances) / len(distances)


def scores(values: Sequence[float]) -> list[float]:
    """Robust z-scores: the distance of each value from the median, in units of `deviation`.

    Source: B. Iglewicz and D. C. Hoaglin, How to Detect and Handle Outliers, ASQC, 1993.
    """
    middle, spread = median(values), deviation(values)
    return [(value - middle) / spread if spread else 0.0 for value in values]


def chance_of(score: float, observations: int) -> float:
    """How likely it is that none of *observations* normal values is as far out as *score* (Šidák)."""
    tail = 2 * _NORMAL.cdf(-abs(score))
    return (1 - tail) ** observations


def slope(values: Sequence[float], places: Sequence[float] | None = None) -> float:
    """The Theil-Sen slope of *values*: the median of the slopes between all pairs.

    Args:
        values: At least two; of more than 600, the medians of blocks are used.
        places: Where each value stands, in rising order; 0, 1, 2, … if left out.

    Source: P. K. Sen, Estimates of the regression coefficient based on Kendall's tau, J. Am. Stat. Assoc. 63, 1968.
    """
    at = _thinned(range(len(values)) if places is None else places)
    known = _thinned(values)
    size = len(known)
    return median((known[j] - known[i]) / (at[j] - at[i]) for i in range(size) for j in range(i + 1, size))


def trend_confidence(values: Sequence[float]) -> float:
    """One minus the two-sided p-value of the Mann-Kendall test for a monotonic trend, from 0 to 1.

    Exact up to ten values without ties, else by the normal approximation, corrected for ties.

    Source: H. B. Mann, Nonparametric tests against trend, Econometrica 13, 1945.
    """
    values = _thinned(values)
    size = len(values)
    s = _balance(values)
    ties = [count for count in Counter(values).values() if count > 1]
    if size <= _EXACT and not ties:
        return 1 - _exact_p(size, s)
    variance = (size * (size - 1) * (2 * size + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties)) / 18
    if variance <= 0:
        return 0.0
    z = max(0, abs(s) - 1) / math.sqrt(variance)
    return 1 - 2 * _NORMAL.cdf(-z)


def _balance(values: Sequence[float]) -> int:
    """How many more pairs rise than fall."""
    before: list[float] = []
    balance = 0
    for count, value in enumerate(values):
        balance += bisect_left(before, value) - (count - bisect_right(before, value))
        insort(before, value)
    return balance


def _exact_p(size: int, s: int) -> float:
    """How many orders of *size* different values are at least as trending as *s*, as a share of all orders."""
    inversions = [1]  # how many orders have 0, 1, 2, … pairs the wrong way round
    for width in range(2, size + 1):
        grown = [0] * (len(inversions) + width - 1)
        for at, count in enumerate(inversions):
            for shift in range(width):
                grown[at + shift] += count
        inversions = grown
    pairs = size * (size - 1) // 2
    extreme = sum(count for at, count in enumerate(inversions) if abs(pairs - 2 * at) >= abs(s))
    return extreme / math.factorial(size)


def _thinned(values: Sequence[float]) -> Sequence[float]:
    width = math.ceil(len(values) / _MAX_POINTS)
    if width <= 1:
        return values
    return [median(values[at : at + width]) for at in range(0, len(values) - width + 1, width)]


def running_median(values: Sequence[float], width: int) -> list[float]:
    """The median of the *width* values around each one; at the ends, of the first and the last ones."""
    size, half = len(values), width // 2
    starts = (max(0, min(at - half, size - width)) for at in range(size))
    return [median(values[start : start + width]) for start in starts]
