"""Order labels: numbers that put the steps of a changing plan into a topological order.

A step that has not settled has a higher label than the steps that it waits for. New edges that agree with the labels
cannot close a cycle, so most patches need no walk over the graph. For the others the walk stays between the two labels
of the edge. This is dynamic topological sorting (D. J. Pearce, P. H. J. Kelly, A dynamic topological sort algorithm for
directed acyclic graphs, ACM J. Exp. Algorithmics 11, 2007). The labels are fractions, so there is room between any two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from dagrun.kernel.checks.checked_plan import CheckedPlan
from dagrun.kernel.graph.longest_paths import order_of, topological_order

Edge = tuple[str, str]  # a step, and one that waits for it


class Cycle(Exception):
    """Steps wait for each other in a circle: their ids, each before the one that it waits for, and none twice."""

    def __init__(self, steps: list[str]) -> None:
        super().__init__(steps)
        self.steps = steps


def first_labels(plan: CheckedPlan) -> dict[str, float]:
    """Return the labels of a plan that has not been changed."""
    ids = list(plan.steps)
    return {ids[place]: float(label) for label, place in enumerate(order_of(plan))}


class Labels:
    """The labels of a plan with some edges more. The old labels are not changed.

    Args:
        old: The labels so far, by id.
        after: Returns the steps that would wait for a step and have not settled.

    Attributes:
        changed: The labels that are new or different.
    """

    def __init__(self, old: Mapping[str, float], after: Callable[[str], Iterable[str]]) -> None:
        self.changed: dict[str, float] = {}
        self._old = old
        self._after = after

    def place(self, needs: Mapping[str, Iterable[str]], new: Iterable[str]) -> None:
        """Find labels for new steps, and for new edges between old steps.

        Args:
            needs: For each step with new edges, the steps that it waits for and that have not settled.
            new: The keys of *needs* that have no label yet.

        Raises:
            Cycle: The edges close a cycle.
        """
        fresh = set(new)
        self._place_new(needs, fresh)
        for id_, before in needs.items():
            for need in before:
                if not self[need] < self[id_]:
                    self._lift(id_, need)

    def __getitem__(self, id_: str) -> float:
        changed = self.changed.get(id_)
        return self._old[id_] if changed is None else changed

    def _place_new(self, needs: Mapping[str, Iterable[str]], fresh: set[str]) -> None:
        """Put each new step between the steps that it waits for and those that wait for it, where there is room."""
        inner = {id_: [after for after in self._after(id_) if after in fresh] for id_ in fresh}
        degree = {id_: sum(1 for need in needs[id_] if need in fresh) for id_ in fresh}
        order = topological_order(inner, {id_: degree[id_] for id_ in needs if id_ in fresh})
        if len(order) < len(fresh):
            placed = set(order)
            raise Cycle(_cycle_in({id_: list(needs[id_]) for id_ in needs if id_ in fresh and id_ not in placed}))
        above: dict[str, float] = {}
        for id_ in reversed(order):
            limits = [above[after] if after in fresh else self[after] for after in self._after(id_)]
            above[id_] = min(limits, default=math.inf)
        for id_ in order:
            low = max((self[need] for need in needs[id_]), default=-math.inf)
            self.changed[id_] = _between(low, above[id_])

    def _lift(self, step: str, need: str) -> None:
        """Move *step*, and the later steps that are in the way, above *need*."""
        floor = self[need]
        came: dict[str, str] = {step: need}
        stack = [step]
        ceiling = math.inf
        while stack:
            at = stack.pop()
            for after in self._after(at):
                if after == need:
                    raise Cycle(_path(came, at, need))
                if self[after] > floor:
                    ceiling = min(ceiling, self[after])
                elif after not in came:
                    came[after] = at
                    stack.append(after)
        moved = sorted(came, key=self.__getitem__)
        room = 1.0 if ceiling == math.inf else (ceiling - floor) / (len(moved) + 1)
        labels = [floor + number * room for number in range(1, len(moved) + 1)]
        if not floor < labels[0] or not labels[-1] < ceiling or len(set(labels)) < len(labels):
            self._spread()  # after about fifty patches at one place there are no floats left in between
            self._lift(step, need)
            return
        self.changed.update(zip(moved, labels, strict=True))

    def _spread(self) -> None:
        """Number all steps again with whole numbers, in the same order."""
        known = {**self._old, **self.changed}
        self.changed = {id_: float(place) for place, id_ in enumerate(sorted(known, key=known.__getitem__))}


def _between(low: float, high: float) -> float:
    if low == -math.inf:
        return 0.0 if high == math.inf else high - 1.0
    if high == math.inf or not low < high:
        return low + 1.0
    return low + (high - low) / 2


def _path(came: Mapping[str, str], at: str, need: str) -> list[str]:
    """Return the steps from *at* back to *need*: each waits for the next, and *need* waits for *at*."""
    path = [at]
    while path[-1] != need:
        path.append(came[path[-1]])
    return [need, *path[:-1]]


def _cycle_in(needs: Mapping[str, list[str]]) -> list[str]:
    """Return one cycle among steps that are all on a cycle or behind one."""
    at = next(id_ for id_ in needs if any(need in needs for need in needs[id_]))
    passed: dict[str, int] = {}
    while at not in passed:
        passed[at] = len(passed)
        at = next(need for need in needs[at] if need in needs)
    return list(passed)[passed[at] :]
