"""The places of calls that have ended in the record and go on in the world.

1. A program, thread or task that outlives its call (`left_behind`) keeps the call's place under the limits on what runs
   at once and at its provider, until it ends or the run does.
2. A run whose steps all wait for such places must end, too: it has the time that the call had, ten times over, and at
   least `PATIENCE`. Then the limit is named as its ceiling.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Final

from anyio.lowlevel import current_token

from dagrun.model.outcome import State, Status
from dagrun.runtime.backend import call_soon, named_loop
from dagrun.runtime.coroutine_driver import Leftover, in_words
from dagrun.runtime.deadlines import Alarms
from dagrun.runtime.run_parts import RunParts
from dagrun.runtime.slot import Slot
from dagrun.runtime.steps.provider_limits import provider_of

PATIENCE: Final = 60.0  # seconds
TIMES: Final = 10


class KeptPlaces:
    """The places that calls of one run have left behind.

    Args:
        parts: What the parts of the run share.
        alarms: The alarms of the run.
        running: The running attempts, by step.
    """

    def __init__(self, parts: RunParts, alarms: Alarms, running: Mapping[str, Slot]) -> None:
        self._graph = parts.graph
        self._frontier = parts.frontier
        self._now = parts.now
        self._up = parts.up
        self._windows = parts.windows
        self._alarms = alarms
        self._running = running
        self._kept: dict[Slot, set[Leftover]] = {}
        self._token = current_token()

    def keep(self, slot: Slot, left: Collection[Leftover]) -> None:
        """Keep the place of an attempt that has ended until all of *left* has ended."""
        self._kept[slot] = set(left)
        if (window := self._windows.get(provider_of(slot.node))) is not None:
            window.in_flight += 1
        for one in left:
            one.on_end(partial(call_soon, self._token, partial(self._ended, slot, one)))
        attempt = slot.node.latest
        seconds = max(PATIENCE, TIMES * (0.0 if attempt is None else attempt.duration))
        self._look_in(seconds, slot)

    def _ended(self, slot: Slot, one: Leftover) -> None:
        left = self._kept.get(slot)
        if left is None:
            return  # the run has ended
        left.discard(one)
        if not left:
            self._release(slot)
            with named_loop():
                self._up.settle_down()

    def _release(self, slot: Slot) -> None:
        del self._kept[slot]
        self._frontier.release(slot.node)
        if (window := self._windows.get(provider_of(slot.node))) is not None:
            window.in_flight -= 1
            window.offer()

    def _look_in(self, seconds: float, slot: Slot) -> None:
        self._alarms.at(self._now() + seconds, partial(self._end_if_stuck, slot, seconds))

    def _end_if_stuck(self, slot: Slot, seconds: float) -> None:
        """End the run, if nothing runs, and a step waits for the place that *slot* has left behind (rule 2)."""
        if slot not in self._kept:
            return
        waiting = [node.id for node in self._graph.nodes.values() if node.state is State.READY]
        if self._running or not waiting:
            self._look_in(seconds, slot)
            return
        what = in_words(self._kept[slot])
        reason = f"ceiling on what runs at once: step {slot.node.id} was told to stop, and {what}; {waiting[0]} waits"
        self._up.stop(Status.OVER_BUDGET, reason)

    def release_all(self) -> None:
        """Release all places: the run has ended."""
        for slot in list(self._kept):
            self._release(slot)
