"""Learning: what a run notes of how long the calls of its tools take."""

from __future__ import annotations

from dagrun.decide.durations import Durations
from dagrun.graph.build import limits_steps
from dagrun.graph.caps import Cap
from dagrun.model.policy import Policy
from dagrun.runtime.slot import Slot


def learns(policy: Policy, shared: Cap | None) -> bool:
    """Whether a run has any use for how long calls take: its steps are put in order, or slow ones hedged.

    Args:
        policy: Of the run.
        shared: A cap that counts the steps of several runs, or none.
    """
    return policy.hedge is not None or limits_steps(policy, shared)


class Learning:
    """Notes how long calls took: at once for whoever asks, and apart, for what a journal keeps.

    Args:
        known: What is known of all runs of an engine.

    Attributes:
        new: What this run alone has seen.
    """

    __slots__ = ("_known", "new")

    def __init__(self, known: Durations) -> None:
        self._known = known
        self.new = Durations()

    def note(self, slot: Slot) -> None:
        """Take note of an attempt that has succeeded, and whose end is recorded."""
        if slot.rare is not None and slot.rare.asking is not None:
            return  # it has talked with a person meanwhile
        attempt = slot.node.latest
        assert attempt is not None
        seconds = attempt.duration
        if attempt.hedge is not None and attempt.hedge.has_won:
            # The first call was stopped: how long it would have taken nobody knows. What counts is when it was known to
            # be slow, so that this stays the limit: a longer time would move it on until no call is slow any more, and
            # the time of the second call would pull it down to what is usual.
            seconds = attempt.hedge.started - attempt.started
        self._known.add(slot.tool.name, seconds)
        self.new.add(slot.tool.name, seconds)
