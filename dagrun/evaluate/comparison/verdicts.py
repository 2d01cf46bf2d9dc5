"""Verdicts on two variants, in words; where there is none, the number of runs it needs."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Final

from dagrun.errors import shorten, visible
from dagrun.evaluate.comparison.differences import PairwiseResult, VariantDifference

MOST_SHOWN: Final = 40  # characters of the name of a case or a way

# How a difference that is told is put: where the second way has less, and where it has more. Idle calls are not here:
# a planner that decides after each step may have read every output, so that ways differ in how many can be seen.
_TOLD: Final = {
    "success": ("succeeds in fewer runs", "succeeds in more runs"),
    "seconds": ("is faster", "is slower"),
    "tokens": ("uses fewer tokens", "uses more tokens"),
    "cost": ("costs less", "costs more"),
    "repeated": ("repeats calls in fewer runs", "repeats calls in more runs"),
    "early_stops": ("stops early in fewer runs", "stops early in more runs"),
}


def verdict(versus: PairwiseResult) -> str:
    """Return the verdict on a pair of variants in a sentence; for success and time also a missing one."""
    first, second = (visible(shorten(name, MOST_SHOWN)) for name in (versus.first, versus.second))
    told = [_told(found) for name in _TOLD if (found := versus.differences[name]).is_told]
    open_ones = [found for name in ("success", "seconds") if not (found := versus.differences[name]).is_told]
    untold = "; ".join(map(_untold, open_ones))
    runs = f"{versus.runs} run{'s' * (versus.runs != 1)}"
    if not told:
        return f"{second} against {first}: no difference can be told from {runs} in {untold}."
    text = f"{second} against {first}: it {_joined(told)}"
    return f"{text}. No difference can be told from {runs} in {untold}." if untold else f"{text}."


def _told(found: VariantDifference) -> str:
    low, high = found.interval
    value = found.value or 0.0
    if not found.is_ratio:
        word = _TOLD[found.name][value > 0]
        ends = sorted((abs(low), abs(high)))
        return f"{word}, by {_points(abs(value))} ({_points(ends[0], unit='')} to {_points(ends[1], unit='')})"
    is_more = value > 1
    ends = [low, high] if is_more else [_inverse(high), _inverse(low)]
    by = f"{times(value if is_more else _inverse(value))} ({times(ends[0], '')} to {times(ends[1], '')})"
    return f"{_TOLD[found.name][is_more]}, by {by}"


def _untold(found: VariantDifference) -> str:
    low, high = found.interval
    if found.value is None:
        return f"{found.name} (nothing to compare: no run of a case succeeded by both)"
    if not found.is_ratio:
        seen = f"{100 * found.value:+.0f} points, {100 * low:+.0f} to {100 * high:+.0f}"
    elif isfinite(high):
        seen = f"{times(found.value)}, {times(low, '')} to {times(high, '')}"
    else:
        seen = f"{times(found.value)}, too few pairs: {found.pairs}"
    if found.needed is not None:
        return f"{found.name} ({seen}: at least about {found.needed:,} runs of each case would be needed)"
    return f"{found.name} ({seen})"


def _inverse(ratio: float) -> float:
    return 1 / ratio if ratio else float("inf")


def times(ratio: float, unit: str = "x") -> str:
    """Return a ratio as a text with two digits after the point."""
    text = f"{ratio:.2f}" if ratio < 100 else f"{ratio:,.0f}"
    return text + unit if isfinite(ratio) else "any number"


def _points(share: float, unit: str = " points") -> str:
    return f"{100 * share:.0f}{unit}"


def _joined(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{'; '.join(parts[:-1])}; and {parts[-1]}"
