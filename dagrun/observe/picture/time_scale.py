"""The time axis of a drawing: round figures, and what ran at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

_ROUND: Final = (1.0, 2.0, 5.0, 10.0)
_MINUTES: Final = (60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 14400.0, 43200.0, 86400.0)


def ticks(length: float, most: int) -> list[float]:
    """Return round times from 0 to *length* seconds, at most *most* of them after 0."""
    step = _step(length, most)
    return [place * step for place in range(int(length / step + 1e-9) + 1)]


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
    """Return the curve of how many calls ran at once: the times at which it changes, and its value from then on."""
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


def thinned(curve: list[tuple[float, int]], length: float, columns: int) -> list[tuple[float, int]]:
    """Return a curve with at most two points for each of *columns*: the highest value of each counts."""
    if len(curve) <= 2 * columns or not length:
        return curve
    width = length / columns
    best: dict[int, tuple[float, int]] = {}
    for at, value in curve:
        place = int(at / width)
        if place not in best or value > best[place][1]:
            best[place] = (place * width, value)
    return [best[place] for place in sorted(best)]
