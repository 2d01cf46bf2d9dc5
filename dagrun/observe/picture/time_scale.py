"""The time axis of a drawing: round figures, shortened idle stretches, and the number of concurrent calls."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

IDLE: Final = 0.2  # of a run: a longer stretch in which nothing ran is folded,
ALL_IDLE: Final = 0.5  # if such stretches are at least half of it: else a back-off of a short run would be folded
FOLDED: Final = 0.04  # of the time that is not folded: as long as this a folded stretch is drawn

_ROUND: Final = (1.0, 2.0, 5.0, 10.0)
_MINUTES: Final = (60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 14400.0, 43200.0, 86400.0)


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on an axis: its time, and its text."""

    at: float
    text: str


class TimeScale:
    """Where a time is on an axis, from 0 to 1. Bursts of work with hours between them stay readable.

    Args:
        length: The length of the run, in seconds.
        folds: The stretches that are drawn short, in order.
    """

    def __init__(self, length: float, folds: Sequence[tuple[float, float]]) -> None:
        self.length = max(length, 1e-6)
        self.folds = folds
        self._busy = self.length - sum(end - start for start, end in folds)
        self._whole = self._place(self.length)

    def __call__(self, at: float) -> float:
        """Return the place of a time."""
        return min(self._place(at) / self._whole, 1.0)

    def _place(self, at: float) -> float:
        place = at
        for start, end in self.folds:
            if at > start:
                place -= (min(at, end) - start) * (1 - FOLDED * self._busy / (end - start))
        return place

    def ticks(self, most: int) -> Iterator[Tick]:
        """Yield round times, about *most* of them; after a folded stretch they count from its end."""
        step = _step(self._whole, most)
        begins = [0.0, *(end for _, end in self.folds)]
        ends = [*(start for start, _ in self.folds), self.length]
        for begin, end in zip(begins, ends, strict=True):
            for count in range(bool(begin), int((end - begin) / step + 1e-9) + 1):
                text = tick_text(count * step, self._whole)
                yield Tick(begin + count * step, f"+{text}" if begin else text)


def idle_stretches(view: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Return the stretches of over a fifth of the run without a call or a planner at work.

    There are none if they are less than half of the run, or all of it.
    """
    at = view["at"]
    busy = [(call["started"], call["ended"]) for step in view["steps"] for call in step["attempts"]]
    busy += [(work["started"], work["ended"]) for work in view["planner"]]
    found, last = [], 0.0
    for start, end in sorted((start, at if end is None else end) for start, end in busy):
        if start - last > IDLE * at:
            found.append((last, start))
        last = max(last, end)
    if busy and at - last > IDLE * at:
        found.append((last, at))
    return found if ALL_IDLE * at <= sum(end - start for start, end in found) < at else []


def _step(length: float, most: int) -> float:
    if length > 90:
        step = next((step for step in _MINUTES if step * most >= length), 0.0)
        return step or 86400.0 * math.ceil(length / 86400.0 / most)
    power = 10.0 ** math.floor(math.log10(max(length / most, 1e-6)))
    return next(power * factor for factor in _ROUND if power * factor * most >= length - 1e-12)


def tick_text(at: float, length: float) -> str:
    """Write a time on the axis of a run of *length* seconds, with its unit."""
    if not at:
        return "0"
    if length > 90:
        minutes, seconds = divmod(round(at), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours} h {minutes:02d}" if hours else f"{minutes} min" + f" {seconds:02d} s" * bool(seconds)
    return f"{at * 1000:g} ms" if length < 0.2 else f"{round(at, 6):g} s"


def running_at_once(view: Mapping[str, Any]) -> list[tuple[float, int]]:
    """Return the number of concurrent calls over time: the times at which it changes, and its value from then on."""
    turns: dict[float, int] = {}
    for step in view["steps"]:
        for call in step["attempts"]:
            ended = view["at"] if call["ended"] is None else call["ended"]
            turns[call["started"]] = turns.get(call["started"], 0) + 1
            turns[ended] = turns.get(ended, 0) - 1
    curve, running = [(0.0, 0)], 0
    for at in sorted(turns):
        running += turns[at]
        curve.append((at, running))
    return curve


def downsampled(curve: list[tuple[float, int]], scale: TimeScale, columns: int) -> list[tuple[float, int]]:
    """Return a curve with at most two points for each of *columns* if it has many: its highest value, and its last.

    The last one holds until the curve changes again, so that a peak is not drawn on through a pause.
    """
    if len(curve) <= 2 * columns:
        return curve
    best: dict[int, tuple[float, int]] = {}
    last: dict[int, tuple[float, int]] = {}
    for at, value in curve:
        place = min(int(scale(at) * columns), columns - 1)
        if place not in best or value > best[place][1]:
            best[place] = (at, value)
        last[place] = (at, value)
    return sorted({*best.values(), *last.values()})
