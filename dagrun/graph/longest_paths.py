"""Longest paths: which step should start first, and how fast a run could have been."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from dagrun.checks.checked_plan import CheckedPlan, CheckedStep

K = TypeVar("K", str, int)


class After(Protocol[K]):
    """For each step those that wait for it, all by id or all by place."""

    def __getitem__(self, step: K, /) -> Sequence[K]: ...


def remaining_paths(order: Sequence[K], successors: After[K], seconds: Callable[[K], float]) -> dict[K, float]:
    """The longest path from each step to the end, itself included.

    Args:
        order: The steps in a topological order, by id or by place.
        successors: For each, those that wait for it.
        seconds: The duration of a step, in seconds (or 1 for hops).

    Returns:
        For each, in the unit of *seconds*.
    """
    longest: dict[K, float] = {}
    for step in reversed(order):
        longest[step] = seconds(step) + max((longest[after] for after in successors[step]), default=0.0)
    return longest


def topological_order(successors: After[K], degree: Mapping[K, int]) -> list[K]:
    """The steps in an order in which each comes after its dependencies; steps on a cycle are left out.

    Args:
        successors: For each step, by id or by place, those that wait for it.
        degree: For each, how many it waits for.
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
    """The steps of *plan*, by place, in an order in which each comes after its dependencies."""
    if plan.is_ordered:
        return range(len(plan.after))
    return topological_order(plan.after, {place: len(s.depends_on) for place, s in enumerate(plan.steps.values())})


def priorities(plan: CheckedPlan, expected: Expected) -> dict[str, float]:
    """Longest remaining path of each step, in the unit of *expected*."""
    steps = list(plan.steps.values())
    longest = remaining_paths(order_of(plan), plan.after, lambda place: expected.seconds(steps[place]))
    return {id_: longest[place] for place, id_ in enumerate(plan.steps)}


class Expected:
    """How long steps are expected to take: the one place where that is decided.

    A step counts as its own estimate; without one as its tool was learned, the median of its calls; without that as
    the mean of the steps of the plan of which either is known, or of the tools that were learned if there is none.
    Where nothing at all is known, each step counts as 1, and a path is as long as it has steps.

    It is found out when first asked for, and holds for the whole run: in a comparison of paths all must be by the same
    knowledge. What a run learns is for the runs after it.

    Args:
        plan: What the run begins with.
        learned: Gives the medians of the tools that were seen, in seconds, by name.
    """

    __slots__ = ("_learn", "_learned", "_plan", "_usual")

    def __init__(self, plan: CheckedPlan, learned: Callable[[], Mapping[str, float]] = dict) -> None:
        self._plan = plan
        self._learn = learned
        self._learned: Mapping[str, float] = {}
        self._usual: float | None = None

    def seconds(self, checked: CheckedStep) -> float:
        """How long a step is expected to take, in seconds, or 1 where nothing is known; the step may be a new one."""
        usual = self.usual
        known = self._known(checked)
        return usual if known is None else known

    @property
    def usual(self) -> float:
        """What a step counts as of which nothing is known."""
        if self._usual is None:
            self._learned = self._learn()
            found = (self._known(checked) for checked in self._plan.steps.values())
            known = [seconds for seconds in found if seconds is not None] or list(self._learned.values())
            self._usual = sum(known) / len(known) if known else 1.0
        return self._usual

    def _known(self, checked: CheckedStep) -> float | None:
        estimate = checked.step.estimate
        return self._learned.get(checked.tool.name) if estimate is None else estimate
