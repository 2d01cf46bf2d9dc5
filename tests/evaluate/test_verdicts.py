"""Verdicts: a planted difference is told, equality is not, and an interval covers the truth as often as it says."""

from collections.abc import Callable
from random import Random
from statistics import mean, median
from typing import Any

import pytest

from dagrun import VariantComparison
from dagrun.evaluate.comparison.comparison_text import text_of
from dagrun.evaluate.comparison.differences import _TOLD, AMOUNTS, SHARES, Sample, VariantDifference, difference_of
from dagrun.evaluate.intervals import fewest_for, median_interval, paired_rates_interval

# What is told ---------------------------------------------------------------------------------------------------------


def sample(way: str, seed: int, seconds: float, *, passed: bool = True, **facts: Any) -> Sample:
    given: dict[str, Any] = {"tokens": 100, "cost": 0.1, "planner_calls": 1, "calls": 2, "idle": 0}
    given |= {"status": "succeeded", "stopped_early": False, **facts}
    return Sample(variant=way, case="it", seed=seed, passed=passed, seconds=seconds, **given)


def planted(
    seed: int, runs: int, factor: float, noise: float, *, common: float = 1.0, rate: float = 1.0
) -> VariantComparison:
    """Make runs of two ways: the size of a task is what a pair has in common, *noise* is what it has not."""
    random = Random(seed)
    comparison = VariantComparison(("one", "other"), ("it",), runs)
    for number in range(runs):
        size = random.lognormvariate(0, common)
        for way, by in (("one", 1.0), ("other", factor)):
            seconds = size * by * random.lognormvariate(0, noise)
            comparison.samples.append(sample(way, number, seconds, passed=random.random() < rate))
    return comparison


def told(comparison: VariantComparison, name: str) -> VariantDifference:
    (versus,) = comparison.versus()
    return versus.differences[name]


def share_of(seeds: int, holds: Callable[[int], bool]) -> float:
    return mean(map(holds, range(seeds)))


def test_equal_ways_get_a_verdict_about_as_rarely_as_the_interval_promises() -> None:
    """The sign test of 20 pairs is wrong in 4.1 of 100; here up to three standard errors more or less."""
    rate = share_of(1_000, lambda seed: told(planted(seed, 20, 1.0, 0.3), "seconds").is_told)

    assert 0.022 <= rate <= 0.06


def test_equal_success_gets_a_verdict_about_as_rarely_as_the_interval_promises() -> None:
    rate = share_of(1_000, lambda seed: told(planted(seed, 40, 1.0, 0.3, rate=0.7), "success").is_told)

    assert 0.015 <= rate <= 0.07


def test_three_equal_ways_get_one_verdict_about_as_rarely() -> None:
    """Three pairs are three chances to be wrong, so each interval is wider."""

    def holds(seed: int) -> bool:
        random = Random(seed)
        comparison = VariantComparison(("a", "b", "c"), ("it",), 20)
        for number in range(20):
            size = random.lognormvariate(0, 1)
            comparison.samples += [sample(way, number, size * random.lognormvariate(0, 0.3)) for way in "abc"]
        return any(versus.differences["seconds"].is_told for versus in comparison.versus())

    assert share_of(600, holds) <= 0.06


def test_a_planted_difference_is_told_and_covered() -> None:
    found = [told(planted(seed, 20, 1.8, 0.3), "seconds") for seed in range(300)]

    assert mean(one.is_told for one in found) > 0.98
    assert mean(one.interval[0] <= 1.8 <= one.interval[1] for one in found) > 0.93
    assert mean(one.value or 0.0 for one in found) == pytest.approx(1.8, rel=0.03)


def test_a_planted_difference_of_success_is_told() -> None:
    def holds(seed: int) -> bool:
        random = Random(seed)
        comparison = VariantComparison(("one", "other"), ("it",), 40)
        for number in range(40):
            for way, rate in (("one", 0.4), ("other", 0.9)):
                comparison.samples.append(sample(way, number, 1.0, passed=random.random() < rate))
        return told(comparison, "success").interval[0] > 0

    assert share_of(200, holds) > 0.97


def test_runs_are_compared_in_pairs() -> None:
    """A difference of a fifth is seen although tasks differ tenfold; with the pairs mixed up it would drown."""
    paired = planted(1, 20, 1.2, 0.02, common=1.0)
    mixed = VariantComparison(paired.variants, paired.cases, paired.runs)
    others = [run.seconds for run in paired.of("other")]
    Random(3).shuffle(others)
    for run, seconds in zip(paired.of("one"), others, strict=True):
        mixed.samples += [run, sample("other", run.seed, seconds)]

    assert told(paired, "seconds").interval == pytest.approx((1.2, 1.2), rel=0.05)
    assert not told(mixed, "seconds").is_told


def test_amounts_are_compared_where_both_succeeded() -> None:
    """A run that ends early is fast, and that is no merit."""
    comparison = VariantComparison(("one", "other"), ("it",), 20)
    for number in range(20):
        failed = number % 2 == 0
        comparison.samples += [
            sample("one", number, 10.0),
            sample("other", number, 0.1 if failed else 10.0, passed=not failed),
        ]
    found = told(comparison, "seconds")

    assert (found.value, found.pairs, found.is_told) == (1.0, 10, False)
    assert comparison.figures("other").seconds == 10.0
    with pytest.raises(TypeError, match="positional-only"):  # its name was another one in 0.2
        comparison.figures(variant="other")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional-only"):
        comparison.of(variant="other")  # type: ignore[call-arg]
    assert comparison.figures("other").cost_per_success == pytest.approx(0.2)  # that of the failures is paid, too


def test_too_few_pairs_tell_nothing_however_large_the_difference_is() -> None:
    five, six = planted(1, 5, 100.0, 0.1), planted(1, 6, 100.0, 0.1)

    assert (told(five, "seconds").is_told, told(five, "seconds").needed) == (False, 6)
    assert told(six, "seconds").is_told
    assert "too few pairs: 5: at least about 6 runs of each case would be needed" in five.verdicts[0]


def test_about_as_many_runs_would_be_needed_as_are_named() -> None:
    """Two runs of a pair differ by 42 %, so some 60 pairs tell a difference of 15 % in every second comparison."""
    needed = [told(planted(seed, 20, 1.15, 0.3), "seconds").needed for seed in range(300)]
    named = [runs for runs in needed if runs is not None]

    assert 40 <= median(named) <= 160
    assert 0.3 < share_of(100, lambda seed: told(planted(seed, 60, 1.15, 0.3), "seconds").is_told) < 0.8


def test_an_unknown_cost_is_not_compared() -> None:
    comparison = planted(1, 10, 1.0, 0.3)
    comparison.samples[3] = sample("other", 1, 1.0, cost=None)
    found = told(comparison, "cost")

    assert (found.value, found.is_told, found.needed) == (None, False, None)
    assert comparison.figures("other").cost_per_success is None
    assert "not known" in text_of(comparison)


def test_equal_amounts_and_nothing_at_all_are_equal() -> None:
    pairs = [(sample("one", n, 0.0, tokens=0), sample("other", n, 0.0, tokens=0)) for n in range(20)]

    assert difference_of(pairs, "tokens", 0.95).interval == (1.0, 1.0)
    assert difference_of(pairs, "seconds", 0.95).needed is None


def test_the_verdict_is_a_sentence() -> None:
    comparison = planted(1, 20, 0.5, 0.05)
    (sentence,) = comparison.verdicts

    assert sentence.startswith("other against one: it is faster, by 1.93x (1.87 to 2.01). ")
    assert sentence.endswith("No difference can be told from 20 runs in success (+0 points, -16 to +16).")
    assert "is slower, by 2.07x" in planted(1, 20, 2.0, 0.05).verdicts[0]
    (sentence,) = planted(1, 20, 1.0, 0.3).verdicts
    assert sentence.startswith("other against one: no difference can be told from 20 runs in success (+0 points")
    assert "at least about" in sentence
    assert _TOLD.keys() | {"idle"} == SHARES.keys() | AMOUNTS.keys()


# The intervals --------------------------------------------------------------------------------------------------------


def test_the_interval_of_paired_rates_is_that_of_newcombe() -> None:
    """His figures (1998, method 10): 20, 12, 2 and 16 pairs give 0.0562 to 0.3292, of the first less the second."""
    assert paired_rates_interval(20, 12, 2, 16) == pytest.approx((-0.3292, -0.0562), abs=5e-5)
    assert paired_rates_interval(20, 2, 12, 16) == pytest.approx((0.0562, 0.3292), abs=5e-5)
    assert paired_rates_interval(0, 0, 0, 0) == (-1.0, 1.0)


def test_the_interval_of_a_median_is_that_of_the_sign_test() -> None:
    """Conover's table: of 20 values, the 6th and the 15th bound the median in 95.9 of 100 cases."""
    assert median_interval([float(n) for n in range(1, 21)]) == (6, 15)
    assert median_interval([1, 2, 3, 4, 5, 6]) == (1, 6)
    assert (fewest_for(0.95), fewest_for(0.99)) == (6, 8)
