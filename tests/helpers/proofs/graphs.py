"""Random graphs of steps that only take time, and what theory says about how long they take together."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import anyio

from dagrun import Plan, Step, tool

Needs = list[tuple[int, ...]]
Shape = Callable[[int, random.Random], Needs]


@tool(effect="pure")
async def work(seconds: float) -> float:
    """Take some time, of which 0 is no time at all: then it does not even suspend."""
    if seconds:
        await anyio.sleep(seconds)
    return seconds


@tool(effect="pure")
async def other_work(seconds: float) -> float:
    """The same under another name, for limits that go by tool."""
    await anyio.sleep(seconds)
    return seconds


# Shapes: for each step, the steps before it that it waits for ---------------------------------------------------------


def chain(size: int, rng: random.Random) -> Needs:
    """Each waits for the one before."""
    return [(i - 1,) if i else () for i in range(size)]


def fan(size: int, rng: random.Random) -> Needs:
    """One, then many side by side, then one that waits for them all."""
    middle = range(1, size - 1)
    return [(), *((0,) for _ in middle), tuple(middle) or (0,)][:size]


def tree(size: int, rng: random.Random) -> Needs:
    """Each releases two or three more."""
    arity = rng.choice((2, 3))
    return [((i - 1) // arity,) if i else () for i in range(size)]


def layered(size: int, rng: random.Random) -> Needs:
    """Layers of random width; each step waits for one to three of the layer before."""
    needs: Needs = []
    before: range = range(0)
    while len(needs) < size:
        first = len(needs)
        width = min(rng.randint(1, max(2, size // 4)), size - first)
        for _ in range(width):
            needs.append(_pick(before, rng.randint(1, 3), rng))
        before = range(first, first + width)
    return needs


def scattered(size: int, rng: random.Random) -> Needs:
    """Each waits for about three of those before it, wherever they stand; a few for none."""
    return [_pick(range(i), rng.choice((0, 1, 2, 3, 3, 4, 5)), rng) for i in range(size)]


def _pick(among: Sequence[int], count: int, rng: random.Random) -> tuple[int, ...]:
    return tuple(sorted(rng.sample(among, min(count, len(among)))))


SHAPES: Final[Mapping[str, Shape]] = {shape.__name__: shape for shape in (chain, fan, tree, layered, scattered)}


@dataclass(frozen=True, slots=True)
class Graph:
    """Steps that take time and wait for each other.

    Attributes:
        name: Shape, size and seed, for messages.
        needs: For each id, the ids that it waits for; in an order in which all could run one after another.
        seconds: How long each takes.
    """

    name: str
    needs: Mapping[str, tuple[str, ...]]
    seconds: Mapping[str, float]

    @property
    def work(self) -> float:
        """Seconds that all take together."""
        return sum(self.seconds.values())

    def successors(self) -> dict[str, list[str]]:
        """For each id, the ids that wait for it."""
        after: dict[str, list[str]] = {id_: [] for id_ in self.needs}
        for id_, needed in self.needs.items():
            for need in needed:
                after[need].append(id_)
        return after

    def longest_paths(self) -> dict[str, float]:
        """Seconds from the start of each to the end of all that waits for it."""
        after = self.successors()
        longest: dict[str, float] = {}
        for id_ in reversed(list(self.needs)):
            longest[id_] = self.seconds[id_] + max((longest[next_] for next_ in after[id_]), default=0.0)
        return longest

    @property
    def critical_path(self) -> float:
        """Seconds of the longest chain."""
        return max(self.longest_paths().values(), default=0.0)

    def plan(self, **fields: Mapping[str, Any]) -> Plan:
        """The graph as a plan; *fields* gives more of a step, by name of the field and id."""
        steps = []
        for id_, needed in self.needs.items():
            more = {name: values[id_] for name, values in fields.items() if id_ in values}
            step = {"tool": work.name, "args": {"seconds": self.seconds[id_]}, "depends_on": needed} | more
            steps.append(Step(id=id_, **step))
        return Plan(steps=steps)


def make_graph(seed: int, largest: int = 40, *, ties: bool = True) -> Graph:
    """Make a graph of any shape; the same arguments give the same graph, in every process.

    Args:
        seed: Of shape, size and durations.
        largest: The most steps.
        ties: Whether durations may be equal or 0, so that much happens at the same instant: there schedules go wrong.
            Without, there is one right schedule.
    """
    rng = random.Random(f"graph {seed} {largest}")
    shape, size = rng.choice(list(SHAPES)), rng.randint(1, largest)
    needs = {f"s{i}": tuple(f"s{n}" for n in needed) for i, needed in enumerate(SHAPES[shape](size, rng))}
    round_ones = (0.0, 1.0, 1.0, 2.0) if ties else ()
    seconds = {id_: rng.choice((*round_ones, *(rng.uniform(0.01, 5) for _ in range(3)))) for id_ in needs}
    return Graph(f"{shape} of {size} steps, seed {seed}", needs, seconds)


# Theory --------------------------------------------------------------------------------------------------------------


def makespan_bounds(work: float, critical_path: float, slots: int) -> tuple[float, float]:
    """Bound the makespan of any schedule that keeps no ready step waiting for a free slot.

    Args:
        work: Sum of all durations, in seconds.
        critical_path: Longest chain of durations, in seconds; at most *work*.
        slots: Steps that may run at once; at least 1.

    Returns:
        The longer of *critical_path* and ``work / slots``; and their sum, less ``critical_path / slots``.

    Source: R. L. Graham, Bounds on multiprocessing timing anomalies, SIAM J. Appl. Math. 17, 1969.
    """
    return max(critical_path, work / slots), work / slots + critical_path * (1 - 1 / slots)


def list_schedule(graph: Graph, slots: int, priority: Mapping[str, float]) -> dict[str, float]:
    """When each step starts if a free slot always takes the ready step of the highest *priority*, ties by place.

    It polls, and is slow: nothing of it can be wrong in the way in which a scheduler is.
    """
    place = {id_: i for i, id_ in enumerate(graph.needs)}
    started: dict[str, float] = {}
    ends: dict[str, float] = {}
    now = 0.0
    while len(ends) < len(graph.needs):
        ready = [
            id_
            for id_, needed in graph.needs.items()
            if id_ not in ends and all(ends.get(need, math.inf) <= now for need in needed)
        ]
        ready.sort(key=lambda id_: (-priority[id_], place[id_]))
        free = slots - sum(1 for end in ends.values() if end > now)
        for id_ in ready[:free]:
            started[id_], ends[id_] = now, now + graph.seconds[id_]
        now = min(end for end in ends.values() if end > now)
    return started
