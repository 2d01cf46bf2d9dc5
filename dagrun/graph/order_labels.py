"""Order labels: the place of every step in one order in which the plan could be carried out.

A step that has not settled has a higher label than those that it waits for. New edges that agree with the labels can
close no cycle, so most patches are placed without a walk over the graph; for the others the walk is confined to the
labels in between. The idea is that of dynamic topological sorting (D. J. Pearce, P. H. J. Kelly, A dynamic topological
sort algorithm for directed acyclic graphs, ACM J. Exp. Algorithmics 11, 2007), with fractions for labels, so that there
is always room between two steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from dagrun.checks.checked_plan import CheckedPlan
from dagrun.graph.longest_paths import order_of, topological_order

Edge = tuple[str, str]  # a step, and one that waits for it


class Cycle(Exception):
    """Steps wait for each other; the ids in the order of the waiting, the first not repeated."""

    def __init__(self, steps: list[str]) -> None:
        super().__init__(steps)
        self.steps = steps


def first_labels(plan: CheckedPlan) -> dict[str, float]:
    """The labels of a plan as it is checked."""
    ids = list(plan.steps)
    return {ids[place]: float(label) for label, place in enumerate(order_of(plan))}


class Labels:
    """The labels of a plan as they would be with some edges more; the old ones stay as they are.

    Args:
        old: The labels so far, by id.
        after: For an id, the steps that would wait for it and that have not settled.
    """

    def __init__(self, old: Mapping[str, float], after: Callable[[str], Iterable[str]]) -> None:
        self.changed: dict[str, float] = {}
        self._old = old
        self._after = after

    def place(self, needs: Mapping[str, Iterable[str]], new: Iterable[str]) -> None:
        """Find labels for new steps, and for new edges between old ones.

        Args:
            needs: For each step whose edges are new, the steps that it waits for and that have not settled.
            new: Those of them that have no label yet.

        Raises:
            Cycle: There are none.
        """
        fresh = set(new)
        self._place_new(needs, fresh)
        for id_, before in needs.items():
            for need in before:
                if not self[need] < self[id_]:
                    self._lift(id_, need)

    def __getitem__(self, id_: str) -> float:
        found = self.changed.get(id_)
        return self._old[id_] if found is None else found

    def _place_new(self, needs: Mapping[str, Iterable[str]], fresh: set[str]) -> None:
        """Put each new step between what it waits for and what waits for it, where that can be had."""
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
        """Move *step*, and what waits for it as far as that is in the way, above *need*."""
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
            self._spread()  # after some fifty patches at one place, fractions run out
            self._lift(step, need)
            return
        self.changed.update(zip(moved, labels, strict=True))

    def _spread(self) -> None:
        """Make room everywhere: the same order, with whole numbers."""
        known = {**self._old, **self.changed}
        self.changed = {id_: float(place) for place, id_ in enumerate(sorted(known, key=known.__getitem__))}


def _between(low: float, high: float) -> float:
    if low == -math.inf:
        return 0.0 if high == math.inf else high - 1.0
    if high == math.inf or not low < high:
        return low + 1.0
    return low + (high - low) / 2


def _path(came: Mapping[str, str], at: str, need: str) -> list[str]:
    """The steps from *at* back to *need*: each waits for the next, and *need* waits for *at*."""
    path = [at]
    while path[-1] != need:
        path.append(came[path[-1]])
    return [need, *path[:-1]]


def _cycle_in(needs: Mapping[str, list[str]]) -> list[str]:
    """One cycle among steps of which each waits for another of them, or follows one that does."""
    at = next(id_ for id_ in needs if any(need in needs for need in needs[id_]))
    passed: dict[str, int] = {}
    while at not in passed:
        passed[at] = len(passed)
        at = next(need for need in needs[at] if need in needs)
    return list(passed)[passed[at] :]
