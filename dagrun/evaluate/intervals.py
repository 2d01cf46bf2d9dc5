"""Confidence intervals of rates and quantiles, and of differences of quantiles between paired samples."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, inf, sqrt
from random import Random
from statistics import NormalDist
from typing import Final

CONFIDENCE: Final = 0.95
Interval = tuple[float, float]

_Z: Final = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
_RESAMPLES: Final = 400


def quantile(ordered: Sequence[float], q: float) -> float:
    """Return the least value that the part *q* of the values does not exceed.

    Args:
        ordered: The values, in ascending order; at least one.
        q: From 0 to 1.
    """
    return ordered[min(len(ordered) - 1, max(0, ceil(q * len(ordered)) - 1))]


def rate_interval(successes: int, of: int) -> Interval:
    """Return the 95 % interval of a rate of which *successes* of *of* trials were seen; from 0 to 1 without trials.

    Source: E. B. Wilson, Probable inference, the law of succession, and statistical inference, J. Am. Stat. Assoc.
    22(158), 1927.
    """
    if not of:
        return 0.0, 1.0
    rate, z2 = successes / of, _Z * _Z
    middle = (rate + z2 / (2 * of)) / (1 + z2 / of)
    half = _Z / (1 + z2 / of) * sqrt(rate * (1 - rate) / of + z2 / (4 * of * of))
    return max(0.0, middle - half), min(1.0, middle + half)


def quantile_interval(ordered: Sequence[float], q: float) -> Interval:
    """Return a 95 % interval of a quantile, whatever the distribution is; two of the values are its ends.

    The number of values below the true quantile is binomial; it is taken as normal. An end that no value bounds is
    infinite: of the 99th percentile, that is the upper one of fewer than some 380 values.

    Source: W. J. Conover, Practical Nonparametric Statistics, 3rd ed., Wiley 1999, section 3.2.
    """
    n = len(ordered)
    middle, half = n * q, _Z * sqrt(n * q * (1 - q))
    low, high = floor(middle - half) - 1, ceil(middle + half) - 1
    return ordered[low] if low >= 0 else -inf, ordered[high] if high < n else inf


def difference_interval(before: Sequence[float], after: Sequence[float], q: float) -> Interval:
    """Return the 95 % interval of how much the quantile *q* grows from *before* to *after*, values of the same trials.

    Trials are drawn again in pairs, so what both have in common falls out. The draws are the same each time. Trials
    that are too few to bound the quantile (`quantile_interval`) bound no difference.

    Source: B. Efron, R. J. Tibshirani, An Introduction to the Bootstrap, Chapman & Hall 1993, chapter 13.

    Args:
        before: The values, one a trial.
        after: The values of the same trials, in the same order.
        q: From 0 to 1.
    """
    n = len(before)
    if inf in map(abs, quantile_interval(before, q)):  # of any values, in any order
        return -inf, inf
    random = Random(n)
    differences = []
    for _ in range(_RESAMPLES):
        drawn = random.choices(range(n), k=n)
        one, other = sorted([before[i] for i in drawn]), sorted([after[i] for i in drawn])
        differences.append(quantile(other, q) - quantile(one, q))
    differences.sort()
    return quantile(differences, (1 - CONFIDENCE) / 2), quantile(differences, (1 + CONFIDENCE) / 2)
