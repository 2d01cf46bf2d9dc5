"""Longest paths: which step should start first, and how fast a run could have been."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from dagrun.kernel.checks.checked_plan import CheckedPlan, CheckedStep

K = TypeVar("K", str, int)


class After(Protocol[K]):
    """The successors of each step, all by id or all by place."""

    def __getitem__(self, step: K, /) -> Sequence[K]: ...


def remaining_paths(order: Sequence[K], successors: After[K], seconds: Callable[[K], float]) -> dict[K, float]:
    """Return the longest path from each step to the end, the step itself included.

    Args:
        order: The steps in a topological order, by id or by place.
        successors: The steps that wait for each.
        seconds: The duration of a step, in seconds (or 1 for hops).

    Returns:
        The length of the path by step, in the unit of *seconds*.
    """
    longest: dict[K, float] = {}
    for step in reversed(order):
        longest[step] = seconds(step) + max((longest[after] for after in successors[step]), default=0.0)
    return longest


def topological_order(successors: After[K], degree: Mapping[K, int]) -> list[K]:
    """Return the steps in topological order, without those on or after a cycle.

    Args:
        successors: The steps that wait for each, by id or by place.
        degree: The number of steps that each waits for.
    """
    left = dict(degree)
    order = [step for step, count in left.items() if not count]
    for step in order:  # the list grows while it is walked
        for after in successors[step]:
            left[after] -= 1
            if not left[after]:
                order.append(after)
    return order


def order_of(plan: CheckedPlan) -> Sequence[int]:
    """Return the steps of *plan* in topological order, by place."""
    if plan.is_ordered:
        return range(len(plan.after))
    return topological_order(plan.after, {place: len(s.depends_on) for place, s in enumerate(plan.steps.values())})


def priorities(plan: CheckedPlan, expected: Expected) -> dict[str, float]:
    """Return the longest remaining path of each step, in the unit of *expected*."""
    steps = list(plan.steps.values())
    longest = remaining_paths(order_of(plan), plan.after, lambda place: expected.seconds(steps[place]))
    return {id_: longest[place] for place, id_ in enumerate(plan.steps)}


class Expected:
    """How long steps are expected to take. This is the one place where that is decided.

    A step counts as the first of these that is known:

    1. its own estimate;
    2. the median of the calls of its tool;
    3. the mean of those steps of the plan of which 1 or 2 is known;
    4. the mean of the medians of all tools;
    5. 1: then a path is as long as the number of its steps.

    The medians are read on first use and hold for the whole run, because paths can only be compared by the same
    knowledge. The durations that a run learns serve the runs after it.

    Args:
        plan: The plan that the run begins with.
        learned: Returns the medians of the calls of tools, in seconds, by name of the tool.
    """

    __slots__ = ("_learn", "_learned", "_plan", "_usual")

    def __init__(self, plan: CheckedPlan, learned: Callable[[], Mapping[str, float]] = dict) -> None:
        self._plan = plan
        self._learn = learned
        self._learned: Mapping[str, float] = {}
        self._usual: float | None = None

    def seconds(self, checked: CheckedStep) -> float:
        """Return how long a step is expected to take, in seconds, or 1 where nothing is known; it may be a new step."""
        usual = self.usual
        known = self._known(checked)
        return usual if known is None else known

    @property
    def usual(self) -> float:
        """The default duration of a step without recorded calls."""
        if self._usual is None:
            self._learned = self._learn()
            durations = (self._known(checked) for checked in self._plan.steps.values())
            known = [seconds for seconds in durations if seconds is not None] or list(self._learned.values())
            self._usual = sum(known) / len(known) if known else 1.0
        return self._usual

    @property
    def learned(self) -> Mapping[str, float]:
        """The known medians of calls, in seconds, by name of the tool."""
        assert self.usual > 0  # the medians are read with it
        return self._learned

    def _known(self, checked: CheckedStep) -> float | None:
        estimate = checked.step.estimate
        return self._learned.get(checked.tool.name) if estimate is None else estimate
