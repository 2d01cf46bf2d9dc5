"""Slopes, tests and scores, compared with known values."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from dagrun import ToolError
from dagrun_tools.analysis.calculate_stats import calculate_stats
from dagrun_tools.analysis.detect_trends import TrendConfig, detect_trends
from dagrun_tools.analysis.robust_statistics import scores, slope, trend_confidence
from data_steps import Steps, steps_in


@pytest.fixture
def steps(tmp_path: Path) -> Iterator[Steps]:
    with steps_in(tmp_path) as made:
        yield made


def test_a_slope_does_not_follow_one_wild_value() -> None:
    """Least squares would give 8; the median of the slopes stays at 2."""
    values = [2.0 * at for at in range(20)]
    values[10] = 1e6
    assert slope(values) == pytest.approx(2)


def test_long_series_are_thinned_and_keep_their_slope() -> None:
    """All pairs of 10,000 points would take half a minute."""
    assert slope([0.5 * at for at in range(10_000)]) == pytest.approx(0.5)


def test_confidence_of_short_series_is_that_of_counting_all_orders() -> None:
    """Five values have 120 orders; the exact distribution must agree with the count of all of them."""
    balances = {}
    for order in itertools.permutations(range(5)):
        balances[order] = sum((b > a) - (b < a) for a, b in itertools.combinations(order, 2))
    for order, balance in list(balances.items())[::7]:
        extreme = sum(abs(other) >= abs(balance) for other in balances.values())
        assert trend_confidence([float(v) for v in order]) == pytest.approx(1 - extreme / 120)


def test_three_rising_values_prove_little() -> None:
    """Two of the six orders of three values are monotonic, so the confidence is two thirds."""
    assert trend_confidence([1, 2, 3]) == pytest.approx(2 / 3)


def test_constant_series_have_no_trend_and_no_outliers() -> None:
    """There is no division by a spread of zero."""
    assert trend_confidence([5.0] * 30) == 0
    assert scores([5.0] * 30) == [0.0] * 30


def test_scores_find_a_spike_in_a_series_that_is_mostly_constant() -> None:
    """The median absolute deviation of such a series is zero."""
    assert scores([5.0] * 29 + [50.0])[-1] > 5


@pytest.mark.parametrize(("sensitivity", "count"), [("low", 0), ("medium", 1), ("high", 1)])
def test_sensitivity_is_a_threshold_on_the_score(steps: Steps, sensitivity: str, count: int) -> None:
    """A day 4.4 deviations out is an anomaly at one setting and noise at another."""
    rows = "".join(
        f"2025-10-{day:02d},a,{100 + (day % 3 - 1) * 10 + (65 if day == 16 else 0)}\n" for day in range(1, 31)
    )
    data = calculate_stats(steps.context, steps.clean(f"date,product,revenue\n{rows}"))
    found = detect_trends(steps.context, data, TrendConfig.model_validate({"sensitivity": sensitivity}))
    assert len(found.anomalies) == count
    assert found.threshold == {"low": 5.0, "medium": 4.0, "high": 3.0}[sensitivity]


def test_a_slope_of_days_is_told_in_months(steps: Steps) -> None:
    """Revenue that rises by 1 a day each day rises by 30.4 times 30.4 a month, months missing or not."""
    rows = "".join(f"2025-{month:02d}-{day:02d},{31 * month + day}\n" for month in (1, 3, 5) for day in range(1, 32))
    data = calculate_stats(steps.context, steps.clean(f"date,revenue\n{rows}"))
    found = detect_trends(steps.context, data)
    assert found.trends[0].direction == "rising"
    assert found.trends[0].slope == pytest.approx(30.44**2, rel=0.2)


def test_a_season_is_no_anomaly(steps: Steps) -> None:
    """Each December is high; only the one month that breaks the pattern stands out."""
    usual = {(y, m): 1000 + 400 * (m == 12) + (7 * y + 13 * m) % 20 for y in range(2010, 2016) for m in range(1, 13)}
    rows = [f"{y},{m},{value + 500 * ((y, m) == (2013, 6))}" for (y, m), value in usual.items()]
    data = calculate_stats(steps.context, steps.clean("year,month,sales\n" + "\n".join(rows) + "\n"))
    found = detect_trends(steps.context, data)
    assert [(a.start, a.direction) for a in found.anomalies] == [("2013-06", "peak")]


def test_storms_and_tax_credits_are_found_in_the_housing_data(steps: Steps) -> None:
    """Hurricane Ike hit Beaumont in September 2008; a tax credit ended in April 2010."""
    from dagrun_tools.tables.load_csv import load_csv

    data = calculate_stats(steps.context, load_csv(steps.context, "sample:texas_housing_sales"))
    found = {(a.series, a.start, a.direction) for a in detect_trends(steps.context, data).anomalies}
    assert ("Beaumont", "2008-09", "dip") in found
    assert ("Dallas", "2010-04", "peak") in found


def test_no_time_no_trends(steps: Steps) -> None:
    """The error is a sentence, not a traceback."""
    data = calculate_stats(steps.context, steps.clean("city,sales\na,1\nb,3\na,2\nb,4\n"))
    with pytest.raises(ToolError, match="no time"):
        detect_trends(steps.context, data)
