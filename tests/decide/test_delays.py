"""Back-off: never longer than the rule says, never shorter than the other side asked for, always a number."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagrun import RetryRule
from dagrun.kernel.decide.recovery import retry_delay

SECONDS = st.floats(min_value=0, allow_nan=False, allow_infinity=False)
RULES = st.builds(
    RetryRule,
    first_delay=SECONDS,
    factor=st.floats(min_value=1, allow_nan=False, allow_infinity=False),
    max_delay=st.none() | SECONDS,
)
DRAWS = st.floats(min_value=0, max_value=1, exclude_max=True)


@pytest.mark.parametrize(("attempt", "longest"), [(1, 0.5), (2, 1.0), (3, 2.0), (7, 30.0), (100, 30.0)])
def test_longest_delay_doubles_up_to_the_cap(attempt: int, longest: float) -> None:
    """The defaults: half a second, doubled each time, at most half a minute."""
    assert retry_delay(RetryRule(), attempt, 0.5) == pytest.approx(longest / 2)


def test_jitter_is_full() -> None:
    """A draw of zero waits not at all: steps that failed together must not come back together."""
    assert retry_delay(RetryRule(), 5, 0.0) == 0.0


@pytest.mark.parametrize(
    ("retry_after", "delay"), [(None, 0.25), (0.1, 0.25), (7.0, 7.0), (120.0, 120.0), (86400.0, 120.0)]
)
def test_retry_after_is_a_minimum_with_a_cap(retry_after: float | None, delay: float) -> None:
    """A server that asks for a day would park the run; one that asks for less than we wait anyway changes nothing."""
    assert retry_delay(RetryRule(), 1, 0.5, retry_after) == delay


@given(RULES, st.integers(1, 100), DRAWS)
def test_delay_is_always_a_finite_number_within_the_rule(rule: RetryRule, attempt: int, draw: float) -> None:
    """A factor of 1e300 is allowed, and its square overflows; zero times infinity is no delay at all."""
    delay = retry_delay(rule, attempt, draw)
    assert math.isfinite(delay)
    assert 0 <= delay <= (math.inf if rule.max_delay is None else rule.max_delay)


@given(RULES, st.integers(1, 99), DRAWS)
def test_delay_never_shrinks_from_attempt_to_attempt(rule: RetryRule, attempt: int, draw: float) -> None:
    """With the same draw, each attempt waits at least as long as the one before it."""
    assert retry_delay(rule, attempt, draw) <= retry_delay(rule, attempt + 1, draw)
