"""The order of steps: the longest paths, the ready steps in starting order, and the labels that keep cycles out.

1. *Longest paths* say which step should start first, and how fast a run could have been.
2. The *frontier* has the ready steps in starting order, limited by the caps.
3. *Labels* are numbers that put the steps of a changing plan into a topological order. A step that has not settled has
   a higher label than the steps that it waits for. New edges that agree with the labels cannot close a cycle, so most
   patches need no walk over the graph. For the others the walk stays between the two labels of the edge. This is
   dynamic topological sorting (D. J. Pearce, P. H. J. Kelly, A dynamic topological sort algorithm for directed acyclic
   graphs, ACM J. Exp. Algorithmics 11, 2007). The labels are fractions, so there is room between any two.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Final, Protocol, TypeAlias, TypeVar

from dagrun.kernel.checks.checked_plan import CheckedPlan, CheckedStep
from dagrun.kernel.graph.node import Cap, Node
from dagrun.kernel.model.outcome import State

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
    3. the mean over the steps of the plan with 1 or 2 known;
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


# Nodes do not compare. Priority, place in the plan and index of the element always tell two entries apart.
Entry: TypeAlias = tuple[float, int, int, Node]

_READY: Final = State.READY


class Frontier:
    """Ready steps in starting order.

    Without a cap the step that was ready first starts first. Under a cap the step with the longest remaining path
    starts first, ties in the order of the plan. A step whose own cap is full waits at that cap, out of the way of the
    others.

    Args:
        total: The cap on all running steps; `None` for no limit.
        priorities: The longest remaining path by step id, in seconds or hops; `None` where no cap makes it matter. A
            splice changes the mapping in place and calls `reorder`, or brings the first cap and calls `rank`.

    Attributes:
        on_room: Called when a slot of a total cap that is shared with other runs becomes free.
        elsewhere: Lists of other parts in which ready steps wait; steps that are withdrawn leave them as well.
    """

    __slots__ = ("_heap", "_queue", "_total", "elsewhere", "on_room", "priorities")

    def __init__(
        self,
        total: Cap | None = None,
        priorities: dict[str, float] | None = None,
    ) -> None:
        self._total = total
        self.priorities = priorities
        self.on_room: Callable[[], object] | None = None
        self._queue: deque[Node] = deque()
        self._heap: list[Entry] = []
        self.elsewhere: list[list[Node]] = []

    def __repr__(self) -> str:
        nodes = [*self._queue, *(entry[-1] for entry in self._heap)]
        facts = [f"{sum(1 for node in nodes if node.state is _READY)} ready"]
        if self._total is not None:
            facts.append(f"{self._total.used} of {self._total.limit} slots taken")
        return f"<{type(self).__name__}: {', '.join(facts)}>"

    @property
    def is_empty(self) -> bool:
        """Whether no step waits here that could be taken now or later."""
        while self._queue and self._queue[0].state is not _READY:
            self._queue.popleft()
        while self._heap and self._heap[0][-1].state is not _READY:
            self._unpark(heappop(self._heap)[-1].caps)
        return not self._queue and not self._heap

    def push(self, node: Node) -> None:
        """Add a step that has become ready."""
        if self.priorities is None:
            self._queue.append(node)
        else:
            heappush(self._heap, self._entry(node, self.priorities))

    @staticmethod
    def _entry(node: Node, priorities: Mapping[str, float]) -> Entry:
        family = node.id if node.parent is None else node.parent.id
        return (-priorities.get(family, 0.0), node.order, node.index, node)

    def refill(self, nodes: Collection[Node]) -> None:
        """Replace all ready steps by *nodes*: a run is resumed, and no step has been taken yet."""
        self._queue.clear()
        self._heap.clear()
        for node in nodes:
            self.push(node)

    def occupy(self, node: Node) -> None:
        """Take the slots of a step that runs without having been taken from here."""
        if self.priorities is not None:
            for cap in (*node.caps, *((self._total,) if self._total is not None else ())):
                cap.used += 1

    def has_more_room(self, node: Node) -> bool:
        """Whether slots are free for a second call of a running step; `occupy` takes them."""
        total = self._total
        if any(cap.is_full for cap in node.caps):
            return False
        # A promised slot is for a ready step.
        return total is None or (self not in total.promised and total.free_for(self) > 0)

    def withdraw(self, nodes: Collection[Node]) -> None:
        """Remove ready steps that have not started; they may be pushed again later."""
        withdrawn = set(nodes)
        if not withdrawn:
            return
        for line in self.elsewhere:
            line[:] = [node for node in line if node not in withdrawn]
        self._queue = deque(node for node in self._queue if node not in withdrawn)
        self._heap = [entry for entry in self._heap if entry[-1] not in withdrawn]
        heapify(self._heap)
        for cap in {cap for node in withdrawn for cap in node.caps}:
            cap.parked = [entry for entry in cap.parked if entry[-1] not in withdrawn]
            heapify(cap.parked)
            self._unpark((cap,))  # the free slot that a withdrawn step had left the cap for is another's now

    def reorder(self, nodes: Collection[Node]) -> None:
        """Apply changed priorities of *nodes*, as far as they wait here or at a cap."""
        if self.priorities is None or not nodes:
            return
        moved = set(nodes)
        for heap in (self._heap, *(cap.parked for cap in {cap for node in moved for cap in node.caps})):
            heap[:] = [self._entry(entry[-1], self.priorities) if entry[-1] in moved else entry for entry in heap]
            heapify(heap)

    def rank(self, priorities: dict[str, float]) -> None:
        """Order by *priorities* from now on: a splice has brought the first cap."""
        self.priorities = priorities
        waiting, self._queue = self._queue, deque()
        for node in waiting:
            self.push(node)

    @property
    def others_waiting(self) -> int:
        """How many other runs wait for a slot of the total cap that they share with this one."""
        return 0 if self._total is None else len(self._total.waiting.keys() - {self})

    @property
    def longest_waiting(self) -> float:
        """The longest remaining path of the steps that wait here; 0 if none waits, or paths do not matter."""
        return -self._heap[0][0] if self._heap and not self.is_empty else 0.0

    def room(self) -> int:
        """The most steps that could be taken now."""
        waiting, total = len(self._queue) or len(self._heap), self._total
        if total is None:
            return waiting
        if not waiting:
            total.decline(self)
            return 0
        free = total.free_for(self)
        if free <= 0:
            self._wait_for_room()
        return min(waiting, max(free, 0))

    def take(self) -> Node | None:
        """Return the step that should start next, with its slots taken; `None` if no step may start now."""
        if self.priorities is None:
            queue = self._queue
            while queue:
                node: Node = queue.popleft()
                if node.state is _READY:
                    return node
            return None
        return self._take_best()

    def _take_best(self) -> Node | None:
        total = self._total
        while self._heap:
            if total is not None and total.free_for(self) <= 0:
                self._wait_for_room()
                return None
            entry = heappop(self._heap)
            node = entry[-1]
            if node.state is not _READY:
                self._unpark(node.caps)  # it has settled while it waited: another may use its slots
                continue
            full = next((cap for cap in node.caps if cap.is_full), None)
            if full is not None:
                heappush(full.parked, entry)
                self._unpark(node.caps)  # it does not use the slots of its other caps: another may
                continue
            for cap in node.caps:
                cap.used += 1
            if total is not None:
                total.used += 1
                total.promised.discard(self)
            return node
        if total is not None:
            total.decline(self)
        return None

    def _wait_for_room(self) -> None:
        if self.on_room is not None and self._total is not None:
            self._total.waiting.setdefault(self, self.on_room)

    def is_blocked(self, node: Node) -> bool:
        """Whether a ready step cannot start before a slot becomes free."""
        return any(cap.is_full for cap in (*node.caps, *((self._total,) if self._total is not None else ())))

    def release(self, node: Node) -> None:
        """Return the slots of a step that was taken."""
        if self.priorities is None:
            return
        for cap in node.caps:
            cap.release()
        self._unpark(node.caps)
        if self._total is not None:
            self._total.release()

    def _unpark(self, caps: tuple[Cap, ...]) -> None:
        for cap in caps:
            if cap.parked and not cap.is_full:
                heappush(self._heap, heappop(cap.parked))

    def leave(self) -> None:
        """Drop all steps and wait for no slot: the run has ended, and every step has settled."""
        self._heap.clear()
        if self._total is not None:
            self._total.waiting.pop(self, None)
            self._total.decline(self)


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
