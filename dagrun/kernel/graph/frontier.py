"""The frontier: ready steps in starting order, limited by the caps."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from heapq import heapify, heappop, heappush
from typing import Final, TypeAlias

from dagrun.kernel.graph.caps import Cap
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.outcome import State

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
