"""The shapes of the plans in the three data sets that were published with LLMCompiler, with latencies for their steps.

No latencies of single calls were published with the data sets. What is known of them is from the paper (arXiv
2312.04511 v3): on Movie Recommendation a search took 0.61 s in the mean and the slowest of the eight 1.13 s, and the
model's final answer 1.62 s. The eight searches here are spread evenly so that both hold: seven around 0.54 s, and the
slowest. The other two data sets search the same encyclopedia and end in the same kind of model call, so their searches
and their last steps are **assumed** to take as long; arithmetic is a call of a model for one short formula in that
code, **assumed** to take half of a final answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from shapes import Dependencies

SEARCHES: Final = (0.47, 0.49, 0.51, 0.53, 0.56, 0.58, 0.61, 1.13)  # seconds; mean 0.61, slowest 1.13
ANSWER: Final = 1.62  # seconds of a final answer
ARITHMETIC: Final = ANSWER / 2  # assumed

SHAPES: Final[Mapping[str, Dependencies]] = {
    "two searches, compare": {"search1": (), "search2": (), "compare": ("search1", "search2")},
    "eight searches, choose": {
        **{f"search{i}": () for i in range(1, 9)},
        "choose": tuple(f"search{i}" for i in range(1, 9)),
    },
    "five questions, arithmetic": {
        **{f"search{i}": () for i in range(1, 6)},
        "sum1": ("search1", "search2"),
        "sum2": ("search3", "search4"),
        "ratio": ("sum1", "sum2"),
        "total": ("ratio", "search5"),
        "answer": ("total",),
    },
}
# The slowest search stands where it holds up most: in the middle of the plan that compares, and first elsewhere.
_SLOWEST_FIRST: Final = tuple(reversed(SEARCHES))


def seconds_of(shape: Dependencies) -> dict[str, float]:
    """How long each step of one of the `SHAPES` takes."""
    searches = iter(_SLOWEST_FIRST)
    seconds = {}
    for step in shape:
        if step.startswith("search"):
            seconds[step] = next(searches)
        else:
            seconds[step] = ANSWER if step in {"compare", "choose", "answer"} else ARITHMETIC
    return seconds
