"""The optional features of a run, as the runtime calls them.

1. The runtime knows the protocol of a feature, and never imports the feature. `dagrun.api` passes them in.
2. `RunFeatures` makes the part of a feature for one run, if the run wants it. What the runs of an engine share stays in
   the feature.
3. A run without a feature has `None` in its place, and pays for one test.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self

import anyio

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from dagrun.kernel.decide.durations import Durations
    from dagrun.kernel.model.policy import HedgeRule
    from dagrun.kernel.runtime.deadlines import Timers
    from dagrun.kernel.runtime.live_attempt import ProviderGate
    from dagrun.kernel.runtime.plugin_calls import CallClock, PlacesOfCall
    from dagrun.kernel.runtime.result import RunResult
    from dagrun.kernel.runtime.run_parts import RunParts
    from dagrun.kernel.runtime.run_setup import CallSettings
    from dagrun.kernel.runtime.steps.attempt import AskInside, CallSharer
    from dagrun.kernel.runtime.steps.scheduler import Hedging, Scheduler


class AnswerPiece(str):
    """A piece of an answer, as text.

    Attributes:
        is_anew: Whether the answer begins again with it, because the call that wrote the pieces before has failed.
    """

    __slots__ = ("is_anew",)
    is_anew: bool

    def __new__(cls, text: str, *, is_anew: bool = False) -> Self:
        """Make a piece of *text*."""
        piece = super().__new__(cls, text)
        piece.is_anew = is_anew
        return piece


class Composer(Protocol):
    """Composes the answer of a run as its last step; see `dagrun.features.composing`."""

    def tell(self) -> None:
        """Wake the readers of the answer: the run has ended."""

    def stream(self, ended: anyio.Event, result: Callable[[], Awaitable[RunResult]]) -> AsyncIterator[AnswerPiece]:
        """Yield the pieces of the answer."""
        ...


class RunFeatures(Protocol):
    """Makes the parts of a run that belong to features."""

    @property
    def windows(self) -> Mapping[str, Any]:
        """The limits that providers have shown to the runs of the engine; empty as long as there are none."""
        ...

    def places(self, clock: CallClock) -> PlacesOfCall:
        """Return the places of the models that one call of a planner or a critic asks; *clock* is its time."""
        ...

    def provider_limits(self, parts: RunParts, alarms: Timers) -> ProviderGate:
        """Return the limits of the providers of a run: one has refused a call for now, or the policy has a rate."""
        ...

    def composer(self, parts: RunParts, scheduler: Scheduler) -> Composer:
        """Return the part that composes the answer: the run has the option *compose*."""
        ...

    def hedging(self, parts: RunParts, rule: HedgeRule, durations: Durations, scheduler: Scheduler) -> Hedging:
        """Return the part that makes second calls beside slow ones: the policy has a *rule* for it.

        Args:
            parts: What the parts of the run share.
            rule: Which calls get a second one, and when.
            durations: How long the calls of each tool took.
            scheduler: Knows the running attempts.
        """
        ...

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
        """Return the part that shares calls: the run has tools with a cache or a batch form.

        Args:
            parts: What the parts of the run share.
            calls: The settings of its calls.
            root: As for `AttemptRunner`.
            ask_person: As for `AttemptRunner`.
            tasks: The task group of the run.
            alarms: The alarms of the run.
        """
        ...
