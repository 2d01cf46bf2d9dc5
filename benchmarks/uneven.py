"""Plans of uneven steps that only wait, and what a run of one comes to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

import anyio

import dagrun
from dagrun import CheckedPlan
from shapes import Dependencies, layered, random3

SHORTEST: Final = 0.005  # seconds of a step
LONGEST: Final = 0.05
SHAPES: Final[Mapping[str, Callable[[int, int], Dependencies]]] = {"random3": random3, "layered": layered}


@dagrun.tool(effect="pure")
async def take(seconds: float) -> float:
    """Take some time."""
    await anyio.sleep(seconds)
    return seconds


@dataclass(frozen=True, slots=True)
class Uneven:
    """Steps that wait for each other, and ask for a time each.

    Attributes:
        needs: For each step what it waits for, in a valid order.
        seconds: What each step asks for.
    """

    needs: Dependencies
    seconds: Mapping[str, float]

    @property
    def work(self) -> float:
        """Seconds that all steps ask for together."""
        return sum(self.seconds.values())

    @property
    def critical_path(self) -> float:
        """Seconds that the longest chain asks for."""
        return longest_chain(self.needs, self.seconds)

    def plan(self, *, with_estimates: bool) -> CheckedPlan:
        """Make a plan of it, in which the times of steps are known beforehand or not."""
        steps = [
            dagrun.Step(
                id=id_,
                tool=take.name,
                args={"seconds": self.seconds[id_]},
                depends_on=before,
                estimate=self.seconds[id_] if with_estimates else None,
            )
            for id_, before in self.needs.items()
        ]
        return dagrun.check(dagrun.Plan(steps=steps), [take])


def longest_chain(needs: Dependencies, seconds: Mapping[str, float]) -> float:
    """The most seconds that steps which wait for each other take one after another."""
    ends: dict[str, float] = {}
    for step, before in needs.items():  # in a valid order
        ends[step] = seconds[step] + max((ends[one] for one in before), default=0.0)
    return max(ends.values())


def make_uneven(shape: str, count: int, seed: int) -> Uneven:
    """Make a graph; the same arguments give the same graph.

    Args:
        shape: The name of one in `SHAPES`.
        count: Of steps.
        seed: Of the edges and the times.
    """
    needs = SHAPES[shape](count, seed)
    random = Random(f"{shape} {count} {seed}")
    return Uneven(needs, {step: random.uniform(SHORTEST, LONGEST) for step in needs})
