"""The limits of providers in one run: steps wait in line for a provider that takes no more calls now.

1. A provider is the pool of a step, or else its tool. Its `ProviderWindow` is shared by the runs of an engine. There is
   one for each pool with a rate in the policy, and for each provider that has refused a call for now (HTTP 429, or an
   error that says when to come back).
2. A ready step of such a provider starts if there is room, and stands in line otherwise; it takes no place meanwhile.
   The line moves when a call ends, and when a pause or a rate allows. A second call beside a slow one counts like any
   other, and is not made while there is no room, or a step waits for it.
3. A call that was refused because others ran beside it does not count as an attempt of the retry rule of its step. A
   refused call without others does: else a run would ask a provider forever that takes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

from dagrun.features.provider_limits.adaptive_limit import Bucket, ProviderWindow
from dagrun.kernel.decide.recovery import is_refused_for_now
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.outcome import Outcome, State
from dagrun.kernel.model.tool import AnyTool
from dagrun.kernel.runtime.backend import Timers
from dagrun.kernel.runtime.live_attempt import LiveAttempt
from dagrun.kernel.runtime.run_parts import RunParts


class ProviderLimits:
    """The limits of the providers that one run calls.

    Args:
        parts: What the parts of the run share.
        windows: The windows of the engine, by provider.
        alarms: The alarms of the run.
    """

    def __init__(self, parts: RunParts, windows: dict[str, ProviderWindow], alarms: Timers) -> None:
        self._rates = {name: pool for name, pool in parts.policy.pools.items() if pool.has_rate}
        self._windows = windows
        self._frontier = parts.frontier
        self._now = parts.now
        self._up = parts.up
        self._lines: dict[str, list[Node]] = {}
        self._alarmed: dict[str, float] = {}
        self._alarms = alarms

    def may_start(self, node: Node) -> bool:
        """Whether a ready step may call its provider now; if not, it stands in line from now on."""
        key = provider_of(node)
        window = self._window(key, node.plan.pool)
        if window is None:
            return True
        seconds = window.wait(self._now(), node.tool.max_tokens or 0)
        if not seconds and window.room() != 0:
            return True
        self._line(key).append(node)
        self._wait(key, window, seconds)
        return False

    def has_room(self, node: Node) -> bool:
        """Whether the provider of a step takes one more call now, beside the one that runs; nothing waits for that."""
        window = self._window(provider_of(node), node.plan.pool)
        if window is None:
            return True
        return not window.waiting and window.room() != 0 and not window.wait(self._now(), node.tool.max_tokens or 0)

    def is_full(self, node: Node) -> bool:
        """Whether the provider of a ready step takes no call until another one ends."""
        window = self._windows.get(provider_of(node))
        return window is not None and window.room() == 0

    def _window(self, key: str, pool: str | None) -> ProviderWindow | None:
        window = self._windows.get(key)
        rate = self._rates.get(pool) if window is None and pool is not None else None
        if rate is not None:
            per_minute = (rate.requests_per_minute, rate.tokens_per_minute)
            buckets = [None if most is None else Bucket(most, self._now()) for most in per_minute]
            window = self._windows[key] = ProviderWindow(*buckets)
        return window

    def _line(self, key: str) -> list[Node]:
        if key not in self._lines:
            self._lines[key] = []
            self._frontier.elsewhere.append(self._lines[key])
        return self._lines[key]

    def _wait(self, key: str, window: ProviderWindow, seconds: float) -> None:
        """Check the queue again when a call has ended, or after *seconds*."""
        window.waiting.setdefault(self, partial(self._feed, key))
        at = self._now() + seconds
        if seconds and at < self._alarmed.get(key, math.inf):  # what a call gives back may bring the time forward
            self._alarmed[key] = at
            self._alarms.at(at, partial(self._after_pause, key, at))

    def _after_pause(self, key: str, at: float) -> None:
        if self._alarmed.get(key) == at:
            del self._alarmed[key]
            self._windows[key].offer()

    def _feed(self, key: str) -> None:
        """Release as many steps from the queue as there is room for; each asks again when it starts."""
        line, window = self._lines[key], self._windows[key]
        line[:] = [node for node in line if node.state is State.READY]
        if not line:
            return
        room, seconds = window.room(), window.wait(self._now(), line[0].tool.max_tokens or 0)
        count = 0 if seconds else len(line) if room is None else min(room, len(line))
        if window.requests is not None or window.tokens is not None:
            count = min(count, 1)  # the next one asks when this one has begun
        for node in line[:count]:
            self._frontier.push(node)
        del line[:count]
        if line:
            self._wait(key, window, seconds)
        if count:
            self._up.nudge()

    def begin(self, live: LiveAttempt) -> None:
        """Count a call that begins, if there is a window for its provider."""
        window = self._windows.get(provider_of(live.node))
        if window is not None:
            self._count(live, window, self._now())
            if window.waiting and window.room() != 0:
                window.offer()

    def _count(self, live: LiveAttempt, window: ProviderWindow, began: float | None) -> None:
        reserved = live.tool.max_tokens or 0
        live.make_rare().window = (window, reserved, began)
        window.begin(self._now(), reserved)

    def end(self, live: LiveAttempt, outcome: Outcome | None, running: Collection[LiveAttempt]) -> bool:
        """Take a call out that has ended; return whether it does not count as an attempt (rule 3).

        Args:
            live: The call.
            outcome: Its end; `None` if it has none.
            running: The calls of the run that still run.
        """
        is_refused = outcome is not None and is_refused_for_now(outcome)
        key = provider_of(live.node)
        if is_refused and key not in self._windows:
            window = self._windows[key] = ProviderWindow()
            for other in dict.fromkeys((live, *_calls_of(running))):
                if provider_of(other.node) == key and (other.rare is None or other.rare.has_place):
                    self._count(other, window, None)
        counted: Any = live.rare.window if live.rare is not None else None
        if counted is None:
            return False
        (window, reserved, began), live.make_rare().window = counted, None
        now, is_width = self._now(), False
        window.end(now, reserved, live.tokens or (reserved if outcome is None else 0))
        if is_refused and outcome is not None and outcome.failure is not None:
            is_width = window.refused(now, outcome.failure.retry_after)
        elif outcome is not None and outcome.state is State.SUCCEEDED:
            window.succeeded(None if began is None else now - began)
        window.offer()
        return is_width

    def hold(self, live: LiveAttempt) -> Callable[[], None] | None:
        """Count what a call has left behind; return what ends that, or `None` if its provider has no window.

        After a fallback or a first refusal, the step has another window than the counting one.
        """
        window = self._windows.get(provider_of(live.node, live.tool))
        if window is None:
            return None
        window.in_flight += 1
        return partial(_release, window)

    def leave(self) -> None:
        """Stop waiting: the run has ended."""
        for window in self._windows.values():
            window.waiting.pop(self, None)


def _release(window: ProviderWindow) -> None:
    window.in_flight -= 1
    window.offer()


def _calls_of(running: Collection[LiveAttempt]) -> Iterator[LiveAttempt]:
    """Yield the running calls of attempts, and their hedged calls."""
    for live in running:
        yield live
        second = live.rare.second if live.rare is not None else None
        if second is not None and not second.is_closed:
            yield second.live


def provider_of(node: Node, tool: AnyTool | None = None) -> str:
    """Return the name of the provider of a step (rule 1), or of a call of it with another *tool* than its next one."""
    pool = node.plan.pool
    return f"pool {pool}" if pool is not None else f"tool {(tool or node.tool).name}"
