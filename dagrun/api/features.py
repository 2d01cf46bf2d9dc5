"""The features of the runs of one engine, each made when a run wants it."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from dagrun.features.hedging import HedgeShare
    from dagrun.features.provider_limits.adaptive_limit import ProviderWindow
    from dagrun.features.shared_calls.result_cache import ResultCache
    from dagrun.kernel.decide.durations import Durations
    from dagrun.kernel.model.executor import Executor
    from dagrun.kernel.model.policy import HedgeRule, WorkerLimits
    from dagrun.kernel.runtime.deadlines import Timers
    from dagrun.kernel.runtime.live_attempt import ProviderGate
    from dagrun.kernel.runtime.plugin_calls import CallClock, PlacesOfCall
    from dagrun.kernel.runtime.run_features import Composer
    from dagrun.kernel.runtime.run_parts import RunParts
    from dagrun.kernel.runtime.run_setup import CallSettings
    from dagrun.kernel.runtime.steps.attempt import AskInside, CallSharer
    from dagrun.kernel.runtime.steps.scheduler import Hedging, Scheduler

_MAKING: Final = Lock()  # the runs of an engine may be in several threads
MAX_CACHE_BYTES: Final = 64 << 20  # of kept results of calls, unless the engine says otherwise


class EngineFeatures:
    """The `RunFeatures` of one engine. Few runs want a feature, so each is imported when one does.

    Args:
        max_cache_bytes: The most bytes that kept results of calls take.

    Attributes:
        windows: What each provider takes, by its name; empty until one has refused a call, or has a rate.
        model_windows: The same of the models of planners and critics, by model.
        results: The kept results of calls; `None` until a run has a tool that shares calls.
    """

    __slots__ = ("_hedge_share", "_max_cache_bytes", "model_windows", "results", "windows")

    def __init__(self, max_cache_bytes: int) -> None:
        self._max_cache_bytes = max_cache_bytes
        self._hedge_share: HedgeShare | None = None
        self.windows: dict[str, ProviderWindow] = {}
        self.model_windows: dict[str, ProviderWindow] = {}
        self.results: ResultCache | None = None

    def places(self, clock: CallClock) -> PlacesOfCall:
        """Return the places of the models that one call of a planner or a critic asks."""
        from dagrun.features.provider_limits.model_concurrency import ModelConcurrency

        return ModelConcurrency(self.model_windows, clock)

    def provider_limits(self, parts: RunParts, alarms: Timers) -> ProviderGate:
        """Return the limits of the providers of a run."""
        from dagrun.features.provider_limits.step_limits import ProviderLimits

        return ProviderLimits(parts, self.windows, alarms)

    def composer(self, parts: RunParts, scheduler: Scheduler) -> Composer:
        """Return the part that composes the answer of a run."""
        from dagrun.features.composing import Composing

        return Composing(parts, scheduler)

    def hedging(self, parts: RunParts, rule: HedgeRule, durations: Durations, scheduler: Scheduler) -> Hedging:
        """Return the part that makes the second calls of a run."""
        from dagrun.features.hedging import Hedges, HedgeShare

        with _MAKING:
            share = self._hedge_share = self._hedge_share or HedgeShare()
        running, endings, finish = scheduler.running, scheduler.endings, scheduler.finish
        return Hedges(parts, rule, durations, share, running=running, endings=endings, finish=finish)

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
        with _MAKING:
            results = self.results = self.results or ResultCache(self._max_cache_bytes)
        return SharedCalls(parts, own, results, tasks, alarms)


def worker_processes(limits: WorkerLimits) -> Executor:
    """Return the executor of worker processes, within *limits*."""
    from dagrun.executors.processes.executor import ProcessExecutor

    return ProcessExecutor(max_processes=limits.max_processes, max_memory=limits.max_process_memory)
