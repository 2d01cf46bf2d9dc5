"""The benchmark of second calls: small, and on virtual time, so that its figures are exact."""

from __future__ import annotations

import pytest

import hedging


def test_a_call_straggles_as_often_as_it_says_and_the_same_each_time() -> None:
    """Both ways must meet the same stragglers, or the comparison would be one of luck."""
    calls = [hedging.seconds_of("s", number) for number in range(2000)]

    assert calls == [hedging.seconds_of("s", number) for number in range(2000)]
    assert sum(seconds > hedging.LONGEST for seconds in calls) / len(calls) == pytest.approx(0.05, abs=0.015)


def test_one_call_gains_and_a_longer_branch_beside_it_does_not() -> None:
    """Where nothing waits for the slow call, none is made: no figure changes at all."""
    single, _, _, _, _, beside, _ = hedging.CASES
    gains, none = hedging.measure_row(single, 100), hedging.measure_row(beside, 50)

    assert gains.p99[1] < gains.p99[0] / 2
    assert 0 < gains.extra < hedging.MUST_EXTRA
    assert none.extra == 0
    assert none.p99[0] == none.p99[1]


@pytest.mark.parametrize(
    ("p95", "extra", "part", "passed"),
    [
        ((1000.0, 500.0), 5.0, 0.95, True),
        ((1000.0, 700.0), 5.0, 0.95, False),
        ((1000.0, 500.0), 16.0, 0.95, False),
        ((1000.0, 1000.0), 5.0, None, True),
        ((1000.0, 1000.0), 16.0, None, False),
    ],
)
def test_a_must_that_is_missed_is_told(
    p95: tuple[float, float], extra: float, part: float | None, passed: bool
) -> None:
    """Too little gained where something should be, or too many calls made anywhere."""
    row = hedging.Row("case", 100, (100.0, 100.0), p95, (1000.0, 1000.0), extra, part)

    assert row.passed is passed
    assert ("MISSED" in hedging.line_of(row)) is not passed
