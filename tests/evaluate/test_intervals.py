"""Intervals hold what they promise: they cover the truth about 95 times in 100, and known figures come out."""

from math import exp, inf
from random import Random
from statistics import NormalDist

import pytest

from dagrun.evaluate.intervals import difference_interval, quantile, quantile_interval, rate_interval


@pytest.mark.parametrize(
    ("successes", "of", "interval"),
    [
        (0, 10, (0.0, 0.2775)),  # R. G. Newcombe, Statistics in Medicine 17, 1998, has these figures
        (81, 263, (0.2553, 0.3662)),
        (15, 148, (0.0624, 0.1605)),
        (1, 29, (0.0061, 0.1718)),
        (10, 10, (0.7225, 1.0)),
    ],
)
def test_the_interval_of_a_rate_is_that_of_wilson(successes: int, of: int, interval: tuple[float, float]) -> None:
    assert rate_interval(successes, of) == pytest.approx(interval, abs=5e-5)


def test_nothing_is_known_of_a_rate_without_trials() -> None:
    assert rate_interval(0, 0) == (0.0, 1.0)


def test_a_quantile_is_the_least_value_that_covers_its_part() -> None:
    values = [float(i) for i in range(1, 101)]

    assert [quantile(values, q) for q in (0, 0.005, 0.01, 0.011, 0.5, 0.95, 0.99, 1)] == [1, 1, 1, 2, 50, 95, 99, 100]
    assert quantile([7.0], 0.5) == 7


@pytest.mark.parametrize("q", [0.5, 0.95])
def test_the_interval_of_a_quantile_covers_it_95_times_in_100(q: float) -> None:
    """Of a skewed distribution, as durations are: an interval from a mean and a deviation would not."""
    truth = exp(NormalDist().inv_cdf(q))
    random = Random(1)
    covered = 0
    for _ in range(1_000):
        low, high = quantile_interval(sorted(exp(random.gauss()) for _ in range(200)), q)
        covered += low <= truth <= high

    assert 930 <= covered <= 980  # 950, with four standard errors below; the ends are values, so it covers a bit more


@pytest.mark.parametrize(
    ("count", "q", "interval"),
    [
        (1, 0.99, (-inf, inf)),
        (3, 0.5, (-inf, inf)),  # one time in four, all three are on one side of the median
        (10, 0.5, (1.0, 9.0)),
        (300, 0.99, (293.0, inf)),  # one time in twenty, all are below it
        (400, 0.99, (392.0, 400.0)),
    ],
)
def test_an_end_that_no_value_bounds_is_open(count: int, q: float, interval: tuple[float, float]) -> None:
    """The greatest of few values is no bound: that would promise what nobody knows."""
    values = [float(i) for i in range(1, count + 1)]

    assert quantile_interval(values, q) == interval
    low, high = difference_interval(values, values, q)
    assert (low, high) == ((0, 0) if inf not in map(abs, interval) else (-inf, inf))


def test_what_pairs_have_in_common_falls_out_of_their_difference() -> None:
    """A tenth of a second more in every run shows, though the runs differ by seconds."""
    random = Random(2)
    before = [exp(random.gauss()) for _ in range(300)]
    after = [value + 0.1 for value in before]

    assert difference_interval(before, after, 0.5) == pytest.approx((0.1, 0.1))
    low, high = difference_interval(before, random.sample(after, len(after)), 0.5)
    assert high - low > 0.2


def test_the_difference_of_nothing_is_nothing() -> None:
    random = Random(3)
    one, other = ([exp(random.gauss()) for _ in range(300)] for _ in range(2))
    low, high = difference_interval(one, other, 0.5)

    assert low < 0 < high
    assert difference_interval(one, one, 0.95) == (0.0, 0.0)
