"""Durations of the calls of each tool, learned as calls end, in a sketch of fixed size."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate
from math import ceil, log
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dagrun.errors import RecordRefused

RELATIVE_ERROR: Final = 0.05
SHORTEST: Final = 1e-6  # one microsecond
LONGEST: Final = 864_000.0  # ten days

# Above this many calls of a tool old ones fade. A changed speed is learned within half as many calls.
FADES_ABOVE: Final = 1_000

_MAX_TOOLS: Final = 10_000
_MAX_COUNT: Final = 2 * FADES_ABOVE

_GROWTH: Final = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
_PER_LOG: Final = 1 / log(_GROWTH)
_FIRST: Final = 1 - log(SHORTEST) * _PER_LOG  # bucket 0 is for durations up to the shortest
_LAST: Final = ceil(log(LONGEST) * _PER_LOG + _FIRST)
_BUCKETS: Final = _LAST + 1


class Durations:
    """The durations of the calls of each tool.

    Quantiles are right to within 5 %, for durations between a microsecond and ten days; a duration outside counts as
    the nearer end. A tool takes about 2 KB, however many calls were added. Above 1,000 calls of a tool all its counts
    are halved, so that old calls count less and less.

    Source: C. Masson, J. E. Rim, H. K. Lee, DDSketch: a fast and fully-mergeable quantile sketch with relative-error
    guarantees, Proc. VLDB Endowment 12(12), 2019; here with a fixed range.
    """

    __slots__ = ("_tools",)

    def __init__(self) -> None:
        self._tools: dict[str, _Sketch] = {}

    def __repr__(self) -> str:
        known = ", ".join(f"{tool}: {sketch.total}" for tool, sketch in sorted(self._tools.items()))
        return f"<Durations {known or 'of nothing yet'}>"

    def __len__(self) -> int:
        """Return the number of tools."""
        return len(self._tools)

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the tools."""
        return iter(self._tools)

    def add(self, tool: str, seconds: float) -> None:
        """Add one call of *tool* that took *seconds*."""
        sketch = self._tools.get(tool)
        if sketch is None:
            sketch = self._tools[tool] = _Sketch()
        if not seconds > SHORTEST:
            bucket = 0
        elif seconds < LONGEST:
            bucket = int(log(seconds) * _PER_LOG + _FIRST)
        else:
            bucket = _LAST
        sketch.counts[bucket] += 1
        sketch.sums = None
        sketch.total += 1
        if sketch.total > FADES_ABOVE:
            sketch.fade()

    def count(self, tool: str) -> int:
        """Return how many calls of *tool* are remembered: 0 if it is unknown, at most 1,000."""
        sketch = self._tools.get(tool)
        return 0 if sketch is None else sketch.total

    def quantile(self, tool: str, q: float) -> float | None:
        """Return the duration that the share *q* of the calls of *tool* did not exceed, to within 5 %.

        Args:
            tool: The name of the tool.
            q: From 0 (the shortest) to 1 (the longest); 0.5 is the median.

        Returns:
            The duration in seconds; `None` if the tool is unknown.

        Raises:
            ValueError: *q* is not from 0 to 1.
        """
        if not 0 <= q <= 1:
            raise ValueError(f"a quantile is asked for by a share from 0 to 1, not {q}")
        sketch = self._tools.get(tool)
        return None if sketch is None else sketch.quantile(q)

    def sample(self, tool: str, u: float) -> float | None:
        """Return the duration below which the share *u* of the calls of *tool* ended, between the steps of the sketch.

        With *u* drawn evenly from 0 to 1, the durations are distributed like the calls'.

        Args:
            tool: The name of the tool.
            u: From 0 to 1.

        Returns:
            The duration in seconds; `None` if the tool is unknown.
        """
        sketch = self._tools.get(tool)
        return None if sketch is None else sketch.sample(u)

    def median(self, tool: str) -> float | None:
        """Return the median of the calls of *tool*, in seconds; `None` if it is unknown."""
        return self.quantile(tool, 0.5)

    def medians_of(self, tools: Iterable[str]) -> dict[str, float]:
        """Return the medians of the known ones of *tools*, in seconds, by name."""
        return {tool: sketch.quantile(0.5) for tool in tools if (sketch := self._tools.get(tool)) is not None}

    def merge(self, other: Durations) -> None:
        """Add the calls of *other*; where both know a tool well, they count alike."""
        for tool, sketch in other._tools.items():
            own = self._tools.get(tool)
            if own is None:
                own = self._tools[tool] = _Sketch()
            own.merge(sketch)

    def as_dict(self) -> dict[str, Any]:
        """Return the durations as plain JSON, for `from_dict`."""
        return {"format": 1, "tools": {tool: sketch.as_dict() for tool, sketch in sorted(self._tools.items())}}

    @classmethod
    def from_dict(cls, plain: object) -> Durations:
        """Read a result of `as_dict`.

        Raises:
            RecordRefused: It is not such a result; the error says where.
        """
        if not isinstance(plain, dict):
            raise RecordRefused(f"an object of JSON is wanted, not {type(plain).__name__}", "durations")
        try:
            kept = _KeptDurations.model_validate(plain)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(("durations", *(str(part) for part in first["loc"])))
            raise RecordRefused(first["msg"].removeprefix("Value error, "), place) from error
        durations = cls()
        for tool, counts in kept.tools.items():
            sketch = durations._tools[tool] = _Sketch()
            sketch.counts[counts.first : counts.first + len(counts.counts)] = counts.counts
            sketch.total = sum(counts.counts)
            while sketch.total > FADES_ABOVE:
                sketch.fade()
        return durations


class _Sketch:
    """The calls of one tool, counted by duration, in buckets that grow by a tenth."""

    __slots__ = ("counts", "sums", "total")

    def __init__(self) -> None:
        self.counts = [0] * _BUCKETS
        self.total = 0
        self.sums: list[int] | None = None  # a cache: the sums of the counts up to each bucket

    def fade(self) -> None:
        """Halve all counts."""
        # The sums are halved, not the counts: else every count of 1 would be lost, and with it the whole tail.
        halves = [total // 2 for total in accumulate(self.counts)]
        self.counts = [after - before for before, after in zip([0, *halves], halves, strict=False)]
        self.total = halves[-1]
        self.sums = None

    def merge(self, other: _Sketch) -> None:
        self.counts = [own + others for own, others in zip(self.counts, other.counts, strict=True)]
        self.total += other.total
        self.sums = None
        while self.total > FADES_ABOVE:
            self.fade()

    def quantile(self, q: float) -> float:
        sums = self._sums()
        return _middle(bisect_left(sums, max(q * sums[-1], 1)))

    def sample(self, u: float) -> float:
        sums = self._sums()
        bucket = bisect_left(sums, max(u * sums[-1], 1e-9))
        if not bucket:
            return SHORTEST
        below = sums[bucket - 1]
        within = (u * sums[-1] - below) / (sums[bucket] - below)
        seconds: float = _GROWTH ** (bucket - _FIRST + within)
        return min(seconds, LONGEST)

    def _sums(self) -> list[int]:
        sums = self.sums  # read once: a large plan is put in order in a thread, while other runs add calls
        if sums is None:
            sums = self.sums = list(accumulate(self.counts))
        return sums

    def as_dict(self) -> dict[str, Any]:
        seen = [bucket for bucket, count in enumerate(self.counts) if count]
        return {"first": seen[0], "counts": self.counts[seen[0] : seen[-1] + 1]}


def _middle(bucket: int) -> float:
    """Return the representative duration of *bucket*, at equal relative distance from both ends."""
    if not bucket:
        return SHORTEST
    lower: float = _GROWTH ** (bucket - _FIRST)
    return min(lower * (1 + RELATIVE_ERROR), LONGEST)


_Count = Annotated[int, Field(ge=0, le=_MAX_COUNT)]


class _KeptCounts(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    first: int = Field(ge=0, le=_LAST)
    counts: list[_Count] = Field(min_length=1, max_length=_BUCKETS)

    @model_validator(mode="after")
    def _fit(self) -> _KeptCounts:
        if self.first + len(self.counts) > _BUCKETS:
            raise ValueError(f"the counts go beyond the last of {_BUCKETS} buckets")
        if not any(self.counts):
            raise ValueError("no call is counted")
        return self


class _KeptDurations(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    format: Literal[1]
    tools: dict[Annotated[str, Field(min_length=1, max_length=200)], _KeptCounts] = Field(max_length=_MAX_TOOLS)
