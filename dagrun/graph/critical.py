"""Longest paths: which step should start first, and how fast a run could have been."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from dagrun.graph.checked import CheckedPlan


def remaining_paths(
    order: Sequence[str], successors: Mapping[str, Iterable[str]], seconds: Callable[[str], float]
) -> dict[str, float]:
    """The longest path from each step to the end, itself included.

    Args:
        order: Ids in a topological order.
        successors: For each id, the ids that wait for it.
        seconds: The duration of a step, in seconds (or 1 for hops).

    Returns:
        For each id, in the unit of *seconds*.
    """
    longest: dict[str, float] = {}
    for step in reversed(order):
        longest[step] = seconds(step) + max((longest[after] for after in successors[step]), default=0.0)
    return longest


def topological_order(successors: Mapping[str, Sequence[str]], degree: Mapping[str, int]) -> list[str]:
    """Ids in an order in which every step comes after its dependencies; steps on a cycle are left out.

    Args:
        successors: For each id, the ids that wait for it.
        degree: For each id, how many it waits for.
    """
    left = dict(degree)
    order = [step for step, count in left.items() if not count]
    for step in order:  # the list grows while it is walked
        for after in successors[step]:
            left[after] -= 1
            if not left[after]:
                order.append(after)
    return order


def priorities(plan: CheckedPlan) -> dict[str, float]:
    """Longest remaining path of each step by its estimate; a step without one counts as the mean of the others.

    Where no step has an estimate, the path is counted in hops.
    """
    usual = usual_seconds(plan)

    def seconds(step: str) -> float:
        estimate = plan.steps[step].step.estimate
        return usual if estimate is None else estimate

    order = topological_order(plan.successors, {id_: len(s.depends_on) for id_, s in plan.steps.items()})
    return remaining_paths(order, plan.successors, seconds)


def usual_seconds(plan: CheckedPlan) -> float:
    """What a step without an estimate counts as: the mean of the others, or 1 hop."""
    known = [s.step.estimate for s in plan.steps.values() if s.step.estimate is not None]
    return sum(known) / len(known) if known else 1.0
