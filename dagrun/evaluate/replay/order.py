"""Delivers outcomes to a replayed run in the order of its record, as long as the run follows it.

Outcomes are found by key, and take as long as they took. That does not say which of two things at one instant came
first. So each waits for the events that came before it, but never longer than a moment: under another policy, say, they
may not come at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import anyio

from dagrun.kernel.model import event as events
from dagrun.kernel.model.event import Event

_PATIENCE: Final = 0.001  # seconds
# Not followed: what changes no step, or is told together with the event that comes next.
_NOT_FOLLOWED: Final = (
    events.Progress,
    events.Gap,
    events.ConfidenceReported,
    events.ModelReserved,
    events.ModelCharged,
    events.PlannerCalled,
    events.RunResumed,
    events.RunReopened,
)


class Order:
    """The events of a session, in order.

    Args:
        recorded: The events on record.

    Attributes:
        difference: Where the run left its record, in a sentence; empty if it has followed it so far.
        last: The number of the event at which the run had come to the end of its record; 0 if it has not.
    """

    def __init__(self, recorded: Sequence[Event]) -> None:
        self._expected = [event for event in recorded if _is_followed(event)]
        self._places: dict[int, int] = {}  # by number of an event: how many others must have come before it
        place = 0
        for event in recorded:
            self._places[event.seq] = place
            place += _is_followed(event)
        self._seen = 0
        self._moved = anyio.Event()
        self.difference = ""
        self.last = 0

    def see(self, event: Event) -> None:
        """Note an event of the replayed run."""
        if not _is_followed(event):
            return
        if not self.difference and self._seen < len(self._expected):
            recorded = self._expected[self._seen]
            if _facts(recorded) != _facts(event):
                self.difference = f"{_named(event)} came in place of {_named(recorded)} (event {recorded.seq})"
        self._seen += 1
        if self._seen == len(self._expected) and not self.difference:
            self.last = event.seq
        self.wake()

    def wake(self) -> None:
        """Wake all waiting calls: an outcome has arrived, or is about to in this turn of the loop."""
        self._moved.set()
        self._moved = anyio.Event()

    def is_next(self, event: Event) -> bool:
        """Whether all has come that comes before an event on record."""
        return self._seen >= self._places[event.seq]

    async def turn(self, at: float, event: Event, began: Event | None = None) -> None:
        """Wait until a time, and until all has come that came before an event.

        Args:
            at: The time on the clock of the loop.
            event: The event on record that comes of what waits.
            began: The event of its begin. If that comes last, nothing is waited for: the call did not wait, either.
        """
        if at > anyio.current_time():
            await anyio.sleep_until(at)
        before = self._places[event.seq]
        if began is not None and before == self._places[began.seq] + 1:
            before -= 1
        if self._seen < before and not self.difference:
            with anyio.move_on_after(_PATIENCE):
                while self._seen < before and not self.difference:
                    await self._moved.wait()
        self.wake()

    async def moved(self) -> None:
        """Wait until something comes."""
        await self._moved.wait()


def _is_followed(event: Event) -> bool:
    return event.origin == "planner" if isinstance(event, events.PatchRefused) else not isinstance(event, _NOT_FOLLOWED)


def _facts(event: Event) -> tuple[object, ...]:
    decision = event.decision.recovery if isinstance(event, events.AttemptEnded) else None
    return (type(event), *(getattr(event, name, None) for name in ("step", "attempt", "state")), decision)


def _named(event: Event) -> str:
    step, state = getattr(event, "step", ""), getattr(event, "state", None)
    attempt = f" attempt {event.attempt}" if isinstance(event, events.AttemptStarted | events.AttemptEnded) else ""
    of_step = f" of step {step}{attempt}" if step else ""
    return f"{type(event).__name__}{of_step}{'' if state is None else f' ({state})'}"
