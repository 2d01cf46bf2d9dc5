"""The features of the runs of one engine, each made when a run wants it."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from dagrun.features.shared_calls.result_cache import ResultCache
    from dagrun.runtime.deadlines import Timers
    from dagrun.runtime.run_features import Composer
    from dagrun.runtime.run_parts import RunParts
    from dagrun.runtime.run_setup import CallSettings
    from dagrun.runtime.steps.attempt import AskInside, CallSharer
    from dagrun.runtime.steps.scheduler import Scheduler

_MAKING: Final = Lock()
MAX_CACHE_BYTES: Final = 64 << 20  # of kept results of calls, unless the engine says otherwise


class EngineFeatures:
    """The `RunFeatures` of one engine. Few runs want a feature, so each is imported when one does.

    Args:
        max_cache_bytes: The most bytes that kept results of calls take.

    Attributes:
        results: The kept results of calls; `None` until a run has a tool that shares calls.
    """

    __slots__ = ("_max_cache_bytes", "results")

    def __init__(self, max_cache_bytes: int) -> None:
        self._max_cache_bytes = max_cache_bytes
        self.results: ResultCache | None = None

    def composer(self, parts: RunParts, scheduler: Scheduler) -> Composer:
        """Return the part that composes the answer of a run."""
        from dagrun.features.composing import Composing

        return Composing(parts, scheduler)

    def call_sharer(
        self,
        parts: RunParts,
        calls: CallSettings,
        *,
        root: str,
        ask_person: AskInside,
        tasks: TaskGroup,
        alarms: Timers,
    ) -> CallSharer:
        """Return the part that makes the shared calls of a run."""
        from dagrun.features.shared_calls.result_cache import ResultCache
        from dagrun.features.shared_calls.shared_calls import OwnAttempts, SharedCalls

        own = OwnAttempts(parts, calls.executors, calls.artifacts, root=root, ask_person=ask_person)
        with _MAKING:  # the runs of an engine may be in several threads
            results = self.results = self.results or ResultCache(self._max_cache_bytes)
        return SharedCalls(parts, own, results, tasks, alarms)
