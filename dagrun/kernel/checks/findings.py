"""Collect the problems that a check finds, each with its place; limit advice and hints."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection
from operator import itemgetter
from typing import Final

from dagrun.errors import Problem, hint

# Indices that stand for no step. Problems are sorted by index, so these come before and after all steps.
WHOLE_PLAN: Final = -1
PLAN_OUTPUT: Final = sys.maxsize

# The most problems of each code. A plan that the host builds may have the same fault in a million places.
MAX_ERRORS: Final = 10_000
MAX_ADVICE: Final = 50

# A hint compares a name with all known names, so only a few hints are made, and none among very many names.
MAX_HINTS: Final = 50
MAX_NAMES: Final = 2_000


class Findings:
    """Collects problems.

    Args:
        place_of: Returns the path of the step with an index; by default, the path in a plan.
    """

    __slots__ = ("_counts", "_hints_left", "_place_of", "_problems")

    def __init__(self, place_of: Callable[[int], str] = "steps[{}]".format) -> None:
        self._place_of = place_of
        self._problems: list[tuple[int, Problem]] = []
        self._counts: Counter[str] = Counter()
        self._hints_left = MAX_HINTS

    def add(self, code: str, index: int, field: str = "", /, **facts: object) -> None:
        """Add a problem.

        Args:
            code: The code of the problem, such as ``DR104``.
            index: The index of the step; or `WHOLE_PLAN` or `PLAN_OUTPUT`.
            field: The place in the step, such as ``depends_on[0]``.
            facts: The facts from which the sentence is built.
        """
        self._counts[code] += 1
        if self._counts[code] > _limit(code):
            return
        path = field
        if index not in (WHOLE_PLAN, PLAN_OUTPUT):
            path = f"{self._place_of(index)}.{field}" if field else self._place_of(index)
        self._problems.append((index, Problem(code, path, {name: str(fact) for name, fact in facts.items()})))

    def has_room_for(self, code: str) -> bool:
        """Whether another problem of this code would be stored, or would be the first one too many."""
        return self._counts[code] <= _limit(code)  # the first one too many is counted, so that `problems` can say so

    def hint(self, name: str, known: Collection[str]) -> str:
        """Return a "did you mean" for *name*, or an empty text."""
        if self._hints_left <= 0 or len(known) > MAX_NAMES:
            return ""
        self._hints_left -= 1
        return hint(name, known)

    @property
    def has_errors(self) -> bool:
        """Whether there is any problem that is no advice."""
        return any(not code.startswith("DR9") for code in self._counts)

    def problems(self) -> tuple[Problem, ...]:
        """Return the problems in plan order, and a note for each code with too many problems."""
        self._problems.sort(key=itemgetter(0))  # stable: the problems of one step stay in order
        more = [
            Problem("DR990", "", {"code": code, "limit": str(_limit(code))})
            for code, count in self._counts.items()
            if count > _limit(code)
        ]
        return (*(problem for _, problem in self._problems), *more)


def _limit(code: str) -> int:
    return MAX_ADVICE if code.startswith("DR9") else MAX_ERRORS
