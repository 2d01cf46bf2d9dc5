"""The slots of calls that have ended in the record, but whose leftovers still run.

1. A program, thread or task that outlives its call (`dagrun.kernel.runtime.coroutine_driver`) keeps the call's place
   under the limits on what runs at once and at its provider, until it ends or the run does.
2. A run whose steps all wait for such places must end, too: it has the time that the call had, ten times over, and at
   least `PATIENCE`. Then the limit is named as its ceiling.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from anyio.lowlevel import current_token

from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.outcome import State, Status
from dagrun.kernel.runtime.backend import Timers, call_soon, named_loop
from dagrun.kernel.runtime.coroutine_driver import Leftover, in_words
from dagrun.kernel.runtime.live_attempt import LiveAttempt
from dagrun.kernel.runtime.run_features import ProviderGate
from dagrun.kernel.runtime.run_parts import RunParts

PATIENCE: Final = 60.0  # seconds
TIMES: Final = 10


@dataclass(slots=True)
class _KeptPlace:
    """A slot still in use, and what releases it at its provider, if that has a limit."""

    left: set[Leftover]
    free: Callable[[], None] | None


class KeptPlaces:
    """The places that calls of one run have left behind.

    Args:
        parts: What the parts of the run share.
        alarms: The alarms of the run.
        running: The running attempts, by step.
        limits: Returns the limits of the providers; `None` if none has one.
    """

    def __init__(
        self,
        parts: RunParts,
        alarms: Timers,
        running: Mapping[str, LiveAttempt],
        limits: Callable[[], ProviderGate | None],
    ) -> None:
        self._graph = parts.graph
        self._frontier = parts.frontier
        self._now = parts.now
        self._up = parts.up
        self._limits = limits
        self._alarms = alarms
        self._running = running
        self._kept: dict[LiveAttempt, _KeptPlace] = {}
        self._token = current_token()

    def keep(self, live: LiveAttempt, left: Collection[Leftover]) -> None:
        """Keep the place of an attempt that has ended until all of *left* has ended."""
        limits = self._limits()
        self._kept[live] = _KeptPlace(set(left), None if limits is None else limits.hold(live))
        for one in left:
            one.on_end(partial(call_soon, self._token, partial(self._ended, live, one)))
        attempt = live.node.latest
        seconds = max(PATIENCE, TIMES * (0.0 if attempt is None else attempt.duration))
        self._look_in(seconds, live)

    def _ended(self, live: LiveAttempt, one: Leftover) -> None:
        place = self._kept.get(live)
        if place is None:
            return  # the run has ended
        place.left.discard(one)
        if not place.left:
            self._release(live)
            with named_loop():
                self._up.on_external_change()

    def _release(self, live: LiveAttempt) -> None:
        place = self._kept.pop(live)
        self._frontier.release(live.node)
        if place.free is not None:
            place.free()

    def _look_in(self, seconds: float, live: LiveAttempt) -> None:
        self._alarms.at(self._now() + seconds, partial(self._end_if_stuck, live, seconds))

    def _end_if_stuck(self, live: LiveAttempt, seconds: float) -> None:
        """End the run, if nothing runs, and each ready step waits for a place, as *live* has left one (rule 2)."""
        if live not in self._kept:
            return
        waiting = [node for node in self._graph.nodes.values() if node.state is State.READY]
        is_busy = self._running or self._graph.questions or self._graph.triggers
        if is_busy or not waiting or not all(map(self._is_blocked, waiting)):
            self._look_in(seconds, live)
            return
        what = in_words(self._kept[live].left)
        reason = (
            f"ceiling on what runs at once: step {live.node.id} was told to stop, and {what}; {waiting[0].id} waits"
        )
        self._up.stop(Status.OVER_BUDGET, reason)

    def _is_blocked(self, node: Node) -> bool:
        """Whether a ready step needs a place that is taken, and does not only wait for the time of its next attempt."""
        limits = self._limits()
        return self._frontier.is_blocked(node) or (limits is not None and limits.is_full(node))

    def release_all(self) -> None:
        """Release all places: the run has ended."""
        for live in list(self._kept):
            self._release(live)
