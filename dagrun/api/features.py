"""The features of the runs of one engine, each made when a run wants it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dagrun.runtime.run_features import Composer
    from dagrun.runtime.run_parts import RunParts
    from dagrun.runtime.steps.scheduler import Scheduler


class EngineFeatures:
    """The `RunFeatures` of one engine. Few runs want a feature, so each is imported when one does."""

    __slots__ = ()

    def composer(self, parts: RunParts, scheduler: Scheduler) -> Composer:
        """Return the part that composes the answer of a run."""
        from dagrun.features.composing import Composing

        return Composing(parts, scheduler)
