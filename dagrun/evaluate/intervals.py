"""Confidence intervals of rates and quantiles, and of their differences between paired samples."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, comb, floor, inf, sqrt
from random import Random
from statistics import NormalDist
from typing import Final

CONFIDENCE: Final = 0.95
Interval = tuple[float, float]

_RESAMPLES: Final = 400


def _z(confidence: float) -> float:
    return NormalDist().inv_cdf((1 + confidence) / 2)


_Z: Final = _z(CONFIDENCE)


def quantile(ordered: Sequence[float], q: float) -> float:
    """Return the least value that the part *q* of the values does not exceed.

    Args:
        ordered: The values, in ascending order; at least one.
        q: From 0 to 1.
    """
    return ordered[min(len(ordered) - 1, max(0, ceil(q * len(ordered)) - 1))]


def rate_interval(successes: int, of: int, confidence: float = CONFIDENCE) -> Interval:
    """Return the interval of a rate, for *successes* of *of* trials; from 0 to 1 without trials.

    Source: E. B. Wilson, Probable inference, the law of succession, and statistical inference, J. Am. Stat. Assoc.
    22(158), 1927.
    """
    if not of:
        return 0.0, 1.0
    z = _z(confidence)
    rate, z2 = successes / of, z * z
    middle = (rate + z2 / (2 * of)) / (1 + z2 / of)
    half = z / (1 + z2 / of) * sqrt(rate * (1 - rate) / of + z2 / (4 * of * of))
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
    """Return the 95 % interval of the growth of quantile *q* from *before* to *after*, values of paired trials.

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


def median_interval(ordered: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Return an interval of the median that holds for any number of values, and whatever their distribution is.

    It excludes a value only if the sign test does. Its ends are two of the values; fewer values than
    `fewest_for` bound nothing. Of independent values that do not share one distribution, it covers rather more.

    Source: W. J. Conover, Practical Nonparametric Statistics, 3rd ed., Wiley 1999, sections 3.2 and 3.4.

    Args:
        ordered: The values, in ascending order.
        confidence: How often such intervals are to cover the median.
    """
    n = len(ordered)
    outside, depth = 0, 0  # the ways in which fewer than *depth* of the values lie below the median
    while depth <= n and 2 * (outside + comb(n, depth)) <= (1 - confidence) * 2**n:
        outside += comb(n, depth)
        depth += 1
    return (ordered[depth - 1], ordered[n - depth]) if depth else (-inf, inf)


def fewest_for(confidence: float = CONFIDENCE) -> int:
    """Return how many values bound a median in `median_interval`: 6 for 95 %."""
    return next(n for n in range(2, 1_000) if (1 - confidence) * 2**n >= 2)


def paired_rates_interval(both: int, first: int, second: int, neither: int, confidence: float = CONFIDENCE) -> Interval:
    """Return the interval of the second variant's rate minus the first's, in paired trials.

    Pairs without any difference still leave an interval with a width: nothing was seen, and something may be there.

    Source: R. G. Newcombe, Improved confidence intervals for the difference between binomial proportions based on
    paired data, Statistics in Medicine 17, 1998, method 10.

    Args:
        both: The pairs in which both succeeded.
        first: The pairs in which the first alone did.
        second: The pairs in which the second alone did.
        neither: The pairs in which none did.
        confidence: How often such intervals are to cover the difference.

    Returns:
        The ends, from -1 to 1.
    """
    n = both + first + second + neither
    if not n:
        return -1.0, 1.0
    one, other = (both + first) / n, (both + second) / n
    (low, high), (other_low, other_high) = (rate_interval(both + only, n, confidence) for only in (first, second))
    product = (both + first) * (second + neither) * (both + second) * (first + neither)
    skew = both * neither - first * second
    phi = (max(skew - n / 2, 0.0) if skew > 0 else float(skew)) / sqrt(product) if product else 0.0
    down = _square_and_add(other - other_low, high - one, phi)
    up = _square_and_add(other_high - other, one - low, phi)
    return max(-1.0, other - one - down), min(1.0, other - one + up)


def _square_and_add(one: float, other: float, phi: float) -> float:
    return sqrt(max(0.0, one * one - 2 * phi * one * other + other * other))
