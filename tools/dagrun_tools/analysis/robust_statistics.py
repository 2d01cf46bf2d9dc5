"""Statistics that resist outliers: medians, their deviations, Theil-Sen slopes, Mann-Kendall tests."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Sequence
from statistics import NormalDist, median
from typing import Final

_NORMAL: Final = NormalDist()
_TO_SIGMA: Final = 1.4826  # the sigma of a normal distribution over its median absolute deviation
_MAX_POINTS: Final = 600  # pairs grow with the square: 600 points make 180,000 pairs
_EXACT: Final = 10  # values; with more, the normal approximation is used


def deviation(values: Sequence[float]) -> float:
    """Return the median absolute deviation of *values*, scaled to compare with a standard deviation.

    It would be 0 if over half of the values are equal; then the mean absolute deviation is used.
    """
    middle = median(values)
    distances = [abs(value - middle) for value in values]
    return _TO_SIGMA * median(distances) or 1.2533 * math.fsum(distances) / len(distances)


def scores(values: Sequence[float]) -> list[float]:
    """Return robust z-scores: the distance of each value from the median, in units of `deviation`.

    Source: B. Iglewicz and D. C. Hoaglin, How to Detect and Handle Outliers, ASQC, 1993.
    """
    middle, spread = median(values), deviation(values)
    return [(value - middle) / spread if spread else 0.0 for value in values]


def chance_of(score: float, observations: int) -> float:
    """Return the probability that none of *observations* normal values is as far out as *score* (Šidák)."""
    tail = 2 * _NORMAL.cdf(-abs(score))
    return (1 - tail) ** observations


def slope(values: Sequence[float], places: Sequence[float] | None = None) -> float:
    """Return the Theil-Sen slope of *values*: the median of the slopes between all pairs.

    Args:
        values: At least two; for more than 600, the medians of blocks are used.
        places: The place of each value on the axis, in rising order; 0, 1, 2, … if left out.

    Source: P. K. Sen, Estimates of the regression coefficient based on Kendall's tau, J. Am. Stat. Assoc. 63, 1968.
    """
    at = _thinned(range(len(values)) if places is None else places)
    known = _thinned(values)
    size = len(known)
    return median((known[j] - known[i]) / (at[j] - at[i]) for i in range(size) for j in range(i + 1, size))


def trend_confidence(values: Sequence[float]) -> float:
    """Return one minus the two-sided p-value of the Mann-Kendall test for a monotonic trend, from 0 to 1.

    It is exact for up to ten values without ties; otherwise it is the normal approximation, corrected for ties.

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
    """Return the number of rising pairs less the number of falling pairs."""
    before: list[float] = []
    balance = 0
    for count, value in enumerate(values):
        balance += bisect_left(before, value) - (count - bisect_right(before, value))
        insort(before, value)
    return balance


def _exact_p(size: int, s: int) -> float:
    """Return the share of all orders of *size* different values whose balance is at least as far from 0 as *s*."""
    inversions = [1]  # at index n: the number of orders that have n falling pairs
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
    """Return the median of the *width* values around each value; at the ends, of the first or last *width* values."""
    size, half = len(values), width // 2
    starts = (max(0, min(at - half, size - width)) for at in range(size))
    return [median(values[start : start + width]) for start in starts]
