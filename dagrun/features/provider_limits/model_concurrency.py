"""The places of the models of planners and critics: calls wait for a provider that takes no more now, as steps do.

1. Each model has a `ProviderWindow`, which the runs of an engine share. It has no limit until the model refuses a call
   for now (HTTP 429, or an error that says when to come back) while others are under way.
2. A call that waits for its place is not made yet: it reserves nothing, and the time of its planner or critic stands
   still (`CallClock`).
3. A call that was refused because others ran beside it is made again, and does not count as an attempt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import anyio

from dagrun.errors import ModelError
from dagrun.features.provider_limits.adaptive_limit import ProviderWindow
from dagrun.kernel.runtime.plugin_calls import CallClock

_TOO_MANY: Final = 429

# The time of an answer is its length, and says nothing about whether the provider queues calls.
_NO_LATENCY: Final = 1.0


class ModelConcurrency:
    """The places of one call of a planner or a critic.

    Args:
        windows: The windows of the engine, by model.
        clock: The time of the call, which stands still while it waits for its place.

    Attributes:
        crowded: Whether the last call of a model was refused because of others beside it.
    """

    __slots__ = ("_clock_stopped", "_now", "_windows", "crowded")

    def __init__(self, windows: dict[str, Any], clock: CallClock) -> None:
        self._windows = windows
        self._now = clock.now
        self._clock_stopped = clock.stopped
        self.crowded = False

    async def take(self, model: str) -> ModelSlot:
        """Wait until the provider of a model takes one more call, and count it until it leaves its place."""
        window: ProviderWindow = self._windows.setdefault(model, ProviderWindow())
        if not _is_free(window, self._now()):
            with self._clock_stopped():
                while not _is_free(window, self._now()):
                    await _turn(window, window.wait(self._now(), 0))
        window.begin(self._now(), 0)
        self.crowded = False
        return ModelSlot(self, window, self._now)


class ModelSlot:
    """The place of one call of a model."""

    __slots__ = ("_now", "_places", "_window")

    def __init__(self, places: ModelConcurrency, window: ProviderWindow, now: Callable[[], float]) -> None:
        self._places = places
        self._window = window
        self._now = now

    def leave(self, error: BaseException | None) -> None:
        """Release the slot: the call has ended, with *error* if there is one."""
        window, now = self._window, self._now()
        window.end(now, 0, 0)
        if isinstance(error, ModelError) and _is_refused_for_now(error):
            self._places.crowded = window.refused(now, error.retry_after)
        elif error is None:
            window.succeeded(_NO_LATENCY)
        window.offer()


def _is_refused_for_now(error: ModelError) -> bool:
    return error.is_transient and (error.status == _TOO_MANY or error.retry_after is not None)


def _is_free(window: ProviderWindow, now: float) -> bool:
    return window.room() != 0 and not window.wait(now, 0)


async def _turn(window: ProviderWindow, seconds: float) -> None:
    """Wait until a call has ended, or for the *seconds* until one may begin."""
    told = anyio.Event()
    window.waiting[told] = told.set
    try:
        with anyio.move_on_after(seconds or None):
            await told.wait()
    finally:
        window.waiting.pop(told, None)
