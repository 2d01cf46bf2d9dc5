"""Objects that the runs of one engine share: the features, each made when a run wants it, and durations of tool calls.

An engine learns how long calls take, and journals keep that from one process to the next.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from threading import Lock
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

import anyio
from typing_extensions import override

from dagrun.kernel.decide.durations import Durations
from dagrun.kernel.model.journal import Journal, SupportsDurations
from dagrun.kernel.runtime.run import Run, RunFeatures

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from dagrun.features.hedging import HedgeShare
    from dagrun.features.provider_limits.adaptive_limit import ProviderWindow
    from dagrun.features.shared_calls.result_cache import ResultCache
    from dagrun.kernel.graph.node import Node
    from dagrun.kernel.model.policy import HedgeRule
    from dagrun.kernel.model.secrets import Secrets
    from dagrun.kernel.model.value import ArtifactStore
    from dagrun.kernel.runtime.backend import Timers
    from dagrun.kernel.runtime.live_attempt import LiveAttempt
    from dagrun.kernel.runtime.plugin_calls import CallClock
    from dagrun.kernel.runtime.run_features import (
        CallSharer,
        CallStream,
        Composer,
        FrameFiles,
        Hedging,
        PlacesOfCall,
        ProviderGate,
    )
    from dagrun.kernel.runtime.run_parts import CallSettings, RunParts
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
    def stream(self, parts: RunParts, scheduler: Scheduler, live: LiveAttempt, fan: Node) -> CallStream:
        from dagrun.features.live_streams import LiveStream

        return LiveStream(live, fan, parts, scheduler.stopping, scheduler.endings)

    @override
    def frames(self, artifacts: ArtifactStore, secrets: Secrets) -> FrameFiles:
        from dagrun.features.frame_files import FramesOfRun

        return FramesOfRun(artifacts, secrets)

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


_LOG: Final = logging.getLogger("dagrun.run")

# A run works without durations, so neither its start nor its end waits longer for a journal.
_PATIENCE: Final = 5.0  # seconds


class LearnedDurations:
    """The durations of one engine. A fault of a journal is only logged: a run works without durations.

    Args:
        durations: Known durations; the runs add theirs; `None` for none yet.
    """

    def __init__(self, durations: Durations | None) -> None:
        self.durations = Durations() if durations is None else durations
        self._is_given = durations is not None  # then they may already include what a journal keeps
        self._asked: WeakSet[SupportsDurations] = WeakSet()
        self._lock = anyio.Lock()

    async def recall(self, journal: Journal | None) -> None:
        """Add the durations that *journal* keeps, if it keeps any and was not asked before."""
        if journal is None or self._is_given or not isinstance(journal, SupportsDurations):
            return  # without a journal in most cases
        async with self._lock:  # a run that starts at the same time must not begin without them
            try:
                if journal in self._asked:
                    return
                stored = None
                with anyio.move_on_after(_PATIENCE):
                    stored = await journal.durations()
                self._asked.add(journal)
                if stored is None:
                    raise TimeoutError(f"the journal did not answer within {_PATIENCE:g} s")
                self.durations.merge(Durations.from_dict(stored))
            except Exception as error:  # noqa: BLE001  (a journal is a plug-in, and a run needs no durations)
                with suppress(TypeError):  # a journal without weak references is asked again
                    self._asked.add(journal)
                _LOG.warning("how long calls took before is not known, because it cannot be read: %s", error)

    @asynccontextmanager
    async def kept(self, journal: Journal | None, running: Run) -> AsyncIterator[None]:
        """After the body, however it ends, add the durations that *running* has learned to *journal*."""
        try:
            yield
        finally:
            new = running.learned
            if new is not None and len(new) and isinstance(journal, SupportsDurations):
                with anyio.move_on_after(_PATIENCE, shield=True) as scope:
                    await _keep(journal, new)
                if scope.cancelled_caught:
                    _LOG.warning("how long calls took is not kept: the journal did not take it within %g s", _PATIENCE)


async def _keep(journal: SupportsDurations, new: Durations) -> None:
    try:
        await journal.keep_durations(new.as_dict())
    except Exception as error:  # noqa: BLE001
        _LOG.warning("how long calls took is not kept: %s", error)
