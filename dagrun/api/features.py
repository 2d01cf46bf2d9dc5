"""The features of the runs of one engine, each made when a run wants it."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from dagrun.kernel.runtime.run_assembly import RunFeatures

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from dagrun.features.hedging import HedgeShare
    from dagrun.features.provider_limits.adaptive_limit import ProviderWindow
    from dagrun.features.shared_calls.result_cache import ResultCache
    from dagrun.kernel.decide.durations import Durations
    from dagrun.kernel.model.policy import HedgeRule
    from dagrun.kernel.runtime.deadlines import Timers
    from dagrun.kernel.runtime.plugin_calls import CallClock
    from dagrun.kernel.runtime.run_features import CallSharer, Composer, Hedging, PlacesOfCall, ProviderGate
    from dagrun.kernel.runtime.run_parts import RunParts
    from dagrun.kernel.runtime.run_setup import CallSettings
    from dagrun.kernel.runtime.steps.attempt import AskInside
    from dagrun.kernel.runtime.steps.scheduler import Scheduler

_MAKING: Final = Lock()  # the runs of an engine may be in several threads
MAX_CACHE_BYTES: Final = 64 << 20  # of kept results of calls, unless the engine says otherwise


class EngineFeatures(RunFeatures):
    """The features of the runs of one engine. Few runs want a feature, so each is imported when one does.

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

    @override
    def places(self, clock: CallClock) -> PlacesOfCall:
        from dagrun.features.provider_limits.model_concurrency import ModelConcurrency

        return ModelConcurrency(self.model_windows, clock)

    @override
    def provider_limits(self, parts: RunParts, alarms: Timers) -> ProviderGate:
        from dagrun.features.provider_limits.step_limits import ProviderLimits

        return ProviderLimits(parts, self.windows, alarms)

    @override
    def composer(self, parts: RunParts, scheduler: Scheduler) -> Composer:
        from dagrun.features.composing import Composing

        return Composing(parts, scheduler)

    @override
    def hedging(self, parts: RunParts, rule: HedgeRule, durations: Durations, scheduler: Scheduler) -> Hedging:
        from dagrun.features.hedging import Hedges, HedgeShare

        with _MAKING:
            share = self._hedge_share = self._hedge_share or HedgeShare()
        running, endings, finish = scheduler.running, scheduler.endings, scheduler.finish
        return Hedges(parts, rule, durations, share, running=running, endings=endings, finish=finish)

    @override
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
        from dagrun.features.shared_calls.result_cache import ResultCache
        from dagrun.features.shared_calls.shared_calls import OwnAttempts, SharedCalls

        own = OwnAttempts(parts, calls.executors, calls.artifacts, root=root, ask_person=ask_person)
        with _MAKING:
            results = self.results = self.results or ResultCache(self._max_cache_bytes)
        return SharedCalls(parts, own, results, tasks, alarms)
