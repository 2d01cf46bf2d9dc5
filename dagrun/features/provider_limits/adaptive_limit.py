"""How much one provider takes: calls at once, as it shows by refusing some, and calls and tokens a minute.

The window is AIMD (additive increase, multiplicative decrease; D.-M. Chiu, R. Jain, Analysis of the increase and
decrease algorithms for congestion avoidance in computer networks, Computer Networks and ISDN Systems 17, 1989), with
two changes:

1. There is no window until a call is refused with others beside it. It is then as wide as the number of calls that the
   provider was carrying, which is what it takes, and not half of a number that was never tried.
2. A refused probe takes the window back by that one place, and the next probe comes only after twice as many successes,
   up to 32 windows of them. So a provider with a fixed limit refuses a handful of calls, and no time is lost.

When calls take twice as long as they did at their best, the window does not grow. When that holds for each single one
of a window of calls, at least eight, the provider queues them, and the window shrinks by a tenth: a queue makes all
calls slow, while one that hangs holds up nobody else. The time is passed in, in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

_MAX_PATIENCE: Final = 32  # windows of successes between two probes
_SLOW: Final = 2.0  # times the best average: calls are queued
_PROOF: Final = 8  # slow calls in a row, at least, until a queue is believed in
_SHRINK: Final = 0.9
_MOST: Final = 3.0  # times the average: a call counts for no more
_WEIGHT: Final = 0.2  # of the newest call in the average
_FORGET: Final = 1.002  # the best average grows by so much a call, so that a changed provider is believed in the end


class Bucket:
    """A token bucket: so many units a minute, at most a tenth of that at once.

    Args:
        per_minute: The rate.
        now: The time.
    """

    __slots__ = ("_at", "_level", "_rate", "size")

    def __init__(self, per_minute: float, now: float) -> None:
        self.size = max(1.0, per_minute / 10)
        self._rate = per_minute / 60
        self._level = self.size
        self._at = now

    def wait(self, amount: float, now: float) -> float:
        """Return the seconds until *amount* is available; for more than the bucket holds, until it is full."""
        self._fill(now)
        lacking = min(amount, self.size) - self._level
        return lacking / self._rate if lacking > 1e-9 else 0.0

    def take(self, amount: float, now: float) -> None:
        """Take *amount*; a negative amount returns an unused reservation. The level may become negative."""
        self._fill(now)
        self._level = min(self.size, self._level - amount)

    def _fill(self, now: float) -> None:
        self._level = min(self.size, self._level + max(0.0, now - self._at) * self._rate)
        self._at = now


class ProviderWindow:
    """The concurrency window and the rates of one provider, for all runs of an engine.

    Attributes:
        limit: The most calls at once; `None` as long as none was refused.
        in_flight: The calls that are counted now.
        requests: Calls a minute; `None` for no limit.
        tokens: Tokens a minute; `None` for no limit.
        waiting: By run, the callback for when there may be room.
    """

    __slots__ = ("_average", "_best", "_patience", "_paused_until", "_slow", "_successes", "in_flight", "limit",
                 "requests", "tokens", "waiting")  # fmt: skip

    def __init__(self, requests: Bucket | None = None, tokens: Bucket | None = None) -> None:
        self.limit: int | None = None
        self.in_flight = 0
        self.requests = requests
        self.tokens = tokens
        self.waiting: dict[object, Callable[[], object]] = {}
        self._paused_until = -math.inf
        self._patience = 1
        self._successes = 0
        self._slow = 0
        self._average = 0.0
        self._best = math.inf

    def room(self) -> int | None:
        """Return how many calls more fit into the window; `None` for any number."""
        return None if self.limit is None else max(0, self.limit - self.in_flight)

    def wait(self, now: float, tokens: float) -> float:
        """Return the seconds until a call may begin; 0 if it may begin now, or only waits for another call to end."""
        waits = [self._paused_until - now]
        if self.requests is not None:
            waits.append(self.requests.wait(1, now))
        if self.tokens is not None:
            waits.append(self.tokens.wait(tokens, now))
        return max(0.0, *waits)

    def begin(self, now: float, tokens: float) -> None:
        """Count a call that begins, and may use so many tokens."""
        self.in_flight += 1
        if self.requests is not None:
            self.requests.take(1, now)
        if self.tokens is not None:
            self.tokens.take(tokens, now)

    def end(self, now: float, reserved: float, used: float) -> None:
        """Take a call out that has ended, however it did."""
        self.in_flight -= 1
        if self.tokens is not None:
            self.tokens.take(used - reserved, now)

    def succeeded(self, seconds: float | None) -> None:
        """Record an answered call: widen the window after enough of them, or narrow it if they are slow.

        Args:
            seconds: How long it took; `None` if that is not known.
        """
        if seconds is None:
            return
        if self._best == math.inf:
            self._average = seconds
        else:  # a queue makes all calls slow; one that hangs says little, so it counts for no more than a few
            seconds = min(seconds, _MOST * self._average)
            self._average += _WEIGHT * (seconds - self._average)
        self._best = min(self._best * _FORGET, self._average)
        if self.limit is None:
            return
        self._successes += 1
        self._slow = self._slow + 1 if seconds > _SLOW * self._best else 0
        if self._average > _SLOW * self._best:
            if self._slow >= max(self.limit, _PROOF):
                self.limit, self._successes, self._slow = max(1, math.floor(self.limit * _SHRINK)), 0, 0
        elif self._successes >= self._patience * self.limit and self.in_flight + 1 >= self.limit:
            self.limit, self._successes = self.limit + 1, 0

    def refused(self, now: float, retry_after: float | None) -> bool:
        """Record a refused call, after its `end`; return whether concurrent calls are the reason."""
        carried = self.in_flight
        if carried == 0:  # not even one call is taken now: that is no matter of width
            self.limit = 1 if self.limit is not None else None
            self._paused_until = max(self._paused_until, now + (retry_after or 0.0))
            return False
        if self.limit is None or carried < self.limit:
            self.limit = carried
            self._patience = min(2 * self._patience, _MAX_PATIENCE)
        self._successes = 0
        return True

    def offer(self) -> None:
        """Wake the waiting runs, as there may be room; the longest waiting first."""
        waiting, self.waiting = self.waiting, {}
        for tell in waiting.values():
            tell()
