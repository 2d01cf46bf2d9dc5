"""Measuring: CPU time in alternating pairs, and how it grows."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import TypeAlias

Work: TypeAlias = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Pairs:
    """CPU seconds of the same work done in two ways, one pair after another.

    Attributes:
        ours: Of dagrun.
        base: Of the baseline, at the same place in the same pair.
    """

    ours: tuple[float, ...]
    base: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """The median over the pairs: what else the machine does meanwhile hits both halves of a pair alike."""
        return median(mine / theirs for mine, theirs in zip(self.ours, self.base, strict=True))


async def measure_pairs(ours: Work, base: Work, count: int) -> Pairs:
    """Do *base* and *ours* in turn, *count* times, in this process and on this loop."""
    pairs = []
    for _ in range(count):
        theirs = await cpu_seconds(base)
        pairs.append((await cpu_seconds(ours), theirs))
    return Pairs(tuple(mine for mine, _ in pairs), tuple(theirs for _, theirs in pairs))


async def cpu_seconds(work: Work) -> float:
    """The CPU time that this process takes for *work*; waiting, and other processes, do not count."""
    gc.collect()  # or this work would pay for the garbage of the one before
    start = time.process_time()
    await work()
    return time.process_time() - start


def growth_exponent(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """The exponent k of seconds = c * size ** k, by least squares on logarithms.

    Args:
        sizes: At least two different ones.
        seconds: The total for each size.
    """
    x, y = [math.log(size) for size in sizes], [math.log(value) for value in seconds]
    middle_x, middle_y = fmean(x), fmean(y)
    slope = sum((a - middle_x) * (b - middle_y) for a, b in zip(x, y, strict=True))
    return slope / sum((a - middle_x) ** 2 for a in x)
