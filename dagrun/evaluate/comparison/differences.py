"""The differences of two variants: an interval for each figure, the verdict in words, and the runs that it needs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil, inf, isfinite, log
from statistics import median
from typing import Any, Final, TypeAlias

from dagrun.evaluate.intervals import Interval, fewest_for, median_interval, paired_rates_interval
from dagrun.texts import shorten, visible

_MOST_RUNS: Final = 10_000  # nobody makes more; a difference that needs them is as good as none


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A run of a case with a variant.

    Attributes:
        variant: The variant.
        case: The case, with the name of its file.
        seed: The seed; the runs of all variants with one case and one seed belong together.
        passed: Whether all was as expected.
        status: How the run ended.
        seconds: From the start of the run to its end, planning included.
        tokens: The tokens of all model calls.
        cost: Their cost; `None` if a part of it is not known.
        planner_calls: How often a planner was called.
        calls: How often tools were called.
        idle: How many of these calls succeeded in steps that nothing uses; 0 for an agent, which has no steps.
        stopped_early: Whether the run says that it succeeded, and something that is expected is not there.
        misses: The missed expectations, a line each.
    """

    variant: str
    case: str
    seed: int
    passed: bool
    status: str
    seconds: float
    tokens: int
    cost: float | None
    planner_calls: int
    calls: int
    idle: int
    stopped_early: bool
    misses: tuple[str, ...] = ()

    @property
    def way(self) -> str:
        """The variant, by the name of release 0.2."""
        warnings.warn("sample.way is now variant; way is removed in 0.4", DeprecationWarning, stacklevel=2)
        return self.variant

    def as_dict(self) -> dict[str, Any]:
        """Return the run as plain JSON."""
        return asdict(self) | {"way": self.variant}  # its name in 0.2; removed in 0.4


Pair: TypeAlias = tuple[Sample, Sample]

# Figures that are a yes or a no for each run. More is better for success alone.
SHARES: Final[Mapping[str, Callable[[Sample], bool]]] = {
    "success": lambda run: run.passed,
    "idle": lambda run: run.idle > 0,
    "early_stops": lambda run: run.stopped_early,
}

# Figures that are an amount for each run. Less is better.
AMOUNTS: Final[Mapping[str, Callable[[Sample], float | None]]] = {
    "seconds": lambda run: run.seconds,
    "tokens": lambda run: run.tokens,
    "cost": lambda run: run.cost,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantDifference:
    """How two variants differ in one figure.

    Attributes:
        name: The figure.
        is_ratio: Whether the difference is a ratio (the second variant over the first), or a difference of shares (the
            second less the first).
        value: The difference that was seen; `None` if nothing could be compared.
        interval: Its interval.
        pairs: How many pairs it was seen in. Amounts are compared where both variants succeeded.
        needed: How many runs of each case would be needed at least, to tell a difference as large as the one that was
            seen; `None` if it is told already, or is too small.
    """

    name: str
    is_ratio: bool
    value: float | None
    interval: Interval
    pairs: int
    needed: int | None = None

    @property
    def is_told(self) -> bool:
        """Whether the interval leaves no room for equality."""
        same = 1.0 if self.is_ratio else 0.0
        low, high = self.interval
        return low > same or high < same

    def as_dict(self) -> dict[str, Any]:
        """Return the difference as plain JSON; an end that nothing bounds is null."""
        ends = [end if isfinite(end) else None for end in self.interval]
        value = self.value if self.value is not None and isfinite(self.value) else None
        kind = "ratio" if self.is_ratio else "difference"
        facts = {kind: value, "interval": ends, "pairs": self.pairs, "needed_runs": self.needed}
        return facts | {"is_told": self.is_told}


@dataclass(frozen=True, slots=True)
class PairwiseResult:
    """The differences of a second variant from a first.

    Attributes:
        first: The name of the first.
        second: The name of the second.
        runs: How many runs each of them has.
        differences: The differences by figure.
    """

    first: str
    second: str
    runs: int
    differences: Mapping[str, VariantDifference]


def difference_of(pairs: Sequence[Pair], name: str, confidence: float, cases: int = 1) -> VariantDifference:
    """Return how the second runs of pairs differ from the first.

    Args:
        pairs: The pairs; independent of each other, as runs with different seeds are.
        name: The figure: a key of `SHARES` or of `AMOUNTS`.
        confidence: The confidence of the interval.
        cases: How many cases the pairs are of, to count needed runs by case.
    """
    if name in SHARES:
        return _difference_of_shares(pairs, name, confidence, cases)
    amount = AMOUNTS[name]
    both = [(amount(one), amount(other)) for one, other in pairs if one.passed and other.passed]
    ratios = sorted(_ratio(one, other) for one, other in both if one is not None and other is not None)
    if not ratios or len(ratios) < len(both):
        return VariantDifference(name=name, is_ratio=True, value=None, interval=(0.0, inf), pairs=0)
    value, (low, high) = median(ratios), median_interval(ratios, confidence)
    needed: float | None = 0  # as many as bound anything
    if len(ratios) >= fewest_for(confidence):
        needed = _needed(_log(value), _log(low), _log(high), len(ratios))
    found = VariantDifference(name=name, is_ratio=True, value=value, interval=(max(0.0, low), high), pairs=len(ratios))
    return _with_needed(found, needed, confidence, len(pairs) / len(ratios) / cases)


def _difference_of_shares(pairs: Sequence[Pair], name: str, confidence: float, cases: int) -> VariantDifference:
    holds = SHARES[name]
    seen = [(holds(one), holds(other)) for one, other in pairs]
    first, second = seen.count((True, False)), seen.count((False, True))
    interval = paired_rates_interval(seen.count((True, True)), first, second, seen.count((False, False)), confidence)
    value = (second - first) / len(pairs) if pairs else None
    found = VariantDifference(name=name, is_ratio=False, value=value, interval=interval, pairs=len(pairs))
    return found if value is None else _with_needed(found, _needed(value, *interval, len(pairs)), confidence, 1 / cases)


def _ratio(one: float, other: float) -> float:
    if not one:
        return inf if other else 1.0
    return other / one


def _log(ratio: float) -> float:
    return log(ratio) if 0 < ratio < inf else inf * (1 if ratio else -1)


def _needed(value: float, low: float, high: float, pairs: int) -> float | None:
    """Return in how many pairs an interval would leave 0 out; its width shrinks with the root of their number."""
    reach = value - low if value > 0 else high - value
    return None if not value or not isfinite(reach) else pairs * (reach / value) ** 2


def _with_needed(
    found: VariantDifference, pairs: float | None, confidence: float, runs_of_a_case: float
) -> VariantDifference:
    if found.is_told or pairs is None:
        return found
    needed = max(pairs, fewest_for(confidence)) * runs_of_a_case
    return found if needed > _MOST_RUNS else replace(found, needed=ceil(needed))


MOST_SHOWN: Final = 40  # characters of the name of a case or a variant

# The words for a difference: where the second variant has less, and where it has more. Idle calls are not here: a
# planner that decides after each step may have read every output, so their number depends on the kind of the planner.
_TOLD: Final = {
    "success": ("succeeds in fewer runs", "succeeds in more runs"),
    "seconds": ("is faster", "is slower"),
    "tokens": ("uses fewer tokens", "uses more tokens"),
    "cost": ("costs less", "costs more"),
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
