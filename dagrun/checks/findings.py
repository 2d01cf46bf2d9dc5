"""What a check has found so far: every problem with its place, advice kept short, hints kept cheap."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection
from operator import itemgetter
from typing import Final

from dagrun.errors import Problem
from dagrun.model import toolbox

# Places that are no step: problems are told in the order of the plan, with these at its ends.
WHOLE_PLAN: Final = -1
PLAN_OUTPUT: Final = sys.maxsize

# Of each code. A plan that the host builds may have a million steps with the same fault; nobody reads them all.
MAX_ERRORS: Final = 10_000
MAX_ADVICE: Final = 50

# Looking for similar names compares with every name there is, so it is done a few times, and never in a crowd.
MAX_HINTS: Final = 50
MAX_NAMES: Final = 2_000


class Findings:
    """Collects problems.

    Args:
        place_of: Says where the step of an index is written; by default in a plan.
    """

    __slots__ = ("_counts", "_found", "_hints_left", "_place_of")

    def __init__(self, place_of: Callable[[int], str] = "steps[{}]".format) -> None:
        self._place_of = place_of
        self._found: list[tuple[int, Problem]] = []
        self._counts: Counter[str] = Counter()
        self._hints_left = MAX_HINTS

    def add(self, code: str, index: int, field: str = "", /, **facts: object) -> None:
        """Add a problem.

        Args:
            code: Such as ``DR104``.
            index: Of the step; or `WHOLE_PLAN`, or `PLAN_OUTPUT`.
            field: Where in the step, such as ``depends_on[0]``.
            facts: What the sentence is built from.
        """
        self._counts[code] += 1
        if self._counts[code] > _limit(code):
            return
        path = field
        if index not in (WHOLE_PLAN, PLAN_OUTPUT):
            path = f"{self._place_of(index)}.{field}" if field else self._place_of(index)
        self._found.append((index, Problem(code, path, {name: str(fact) for name, fact in facts.items()})))

    def wants(self, code: str) -> bool:
        """Whether another problem of this code would be kept."""
        return self._counts[code] <= _limit(code)  # the first one too many is counted, so that the end can say so

    def hint(self, name: str, known: Collection[str]) -> str:
        """A "did you mean" for *name*, or nothing."""
        if self._hints_left <= 0 or len(known) > MAX_NAMES:
            return ""
        self._hints_left -= 1
        return toolbox.hint(name, known)

    @property
    def count(self) -> int:
        """How many problems were added, told or not."""
        return sum(self._counts.values())

    @property
    def has_errors(self) -> bool:
        """Whether there is anything but advice."""
        return any(not code.startswith("DR9") for code in self._counts)

    def problems(self) -> tuple[Problem, ...]:
        """Everything found, in the order of the plan."""
        self._found.sort(key=itemgetter(0))  # stable: within a step, in the order of finding
        more = [
            Problem("DR990", "", {"code": code, "limit": str(_limit(code))})
            for code, count in self._counts.items()
            if count > _limit(code)
        ]
        return (*(problem for _, problem in self._found), *more)


def _limit(code: str) -> int:
    return MAX_ADVICE if code.startswith("DR9") else MAX_ERRORS
