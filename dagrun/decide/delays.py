"""How long to wait before the next attempt."""

from __future__ import annotations

import sys
from typing import Final

from dagrun.model.plan import RetryRule

# A server may ask for a pause; it may not park a run for a day.
MAX_RETRY_AFTER: Final = 120.0


def retry_delay(rule: RetryRule, attempt: int, draw: float, retry_after: float | None = None) -> float:
    """Give the seconds to wait after a failed attempt: exponential back-off with full jitter.

    Args:
        rule: The first delay, the factor and the longest delay.
        attempt: The attempt that has failed; 1 for the first.
        draw: Uniform in [0, 1).
        retry_after: Seconds that the other side asked for; honoured as a minimum, up to 120.

    Returns:
        ``draw * min(max_delay, first_delay * factor ** (attempt - 1))``, or *retry_after* if that is longer.

    Source: M. Brooker, Exponential Backoff And Jitter, AWS Architecture Blog, 2015.
    """
    delay = draw * _longest_delay(rule, attempt)
    return delay if retry_after is None else max(delay, min(retry_after, MAX_RETRY_AFTER))


def _longest_delay(rule: RetryRule, attempt: int) -> float:
    ceiling = sys.float_info.max if rule.max_delay is None else rule.max_delay
    try:
        return min(ceiling, rule.first_delay * rule.factor ** (attempt - 1))
    except OverflowError:  # a factor of 1e300 is allowed, and its square is not a float
        return ceiling if rule.first_delay > 0 else 0.0
