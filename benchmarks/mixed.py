"""Plans of uneven steps of several tools: of some tools all calls take about as long, and others differ a lot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import anyio

import dagrun
from dagrun import CheckedPlan
from dagrun.kernel.model.tool import make_tool
from shapes import Dependencies, chain, fan, independent, layered, random3
from uneven import LONGEST, SHORTEST, Uneven

SHAPES: Final[Mapping[str, Callable[[int, int], Dependencies]]] = {
    "random3": random3,
    "layered": layered,
    "fan": lambda count, _: fan(count),
    "chain": lambda count, _: chain(count),
    "independent": lambda count, _: independent(count),
}
CAP: Final = 1.0  # seconds: the tail of a tail would be all that is measured


async def _take(seconds: float) -> float:
    await anyio.sleep(seconds)
    return seconds


TOOLS: Final[tuple[dagrun.Tool[..., Any], ...]] = tuple(
    make_tool(_take, name=f"tool{number}", effect="pure") for number in range(8)
)


@dataclass(frozen=True, slots=True)
class Mix:
    """What steps take, and how much of that their tool tells.

    Attributes:
        name: In words.
        tools: How many.
        draw: Draws seconds.
        spread: How far, at most and in proportion, a call is from what its tool usually takes; `None` if each call is
            drawn by itself, and its tool tells nothing.
    """

    name: str
    tools: int
    draw: Callable[[Random], float]
    spread: float | None = None

    def seconds_of(self, random: Random) -> Callable[[int], float]:
        """Make what draws the seconds of a call, by the number of its tool."""
        spread = self.spread
        if spread is None:
            return lambda _: self.draw(random)
        usual = [self.draw(random) for _ in range(self.tools)]
        return lambda tool: usual[tool] * random.uniform(1 - spread, 1 + spread)


def _uniform(random: Random) -> float:
    return random.uniform(SHORTEST, LONGEST)


def _heavy(random: Random) -> float:
    return min(SHORTEST * random.paretovariate(0.8), CAP)


MIXES: Final[Mapping[str, Mix]] = {
    mix.name: mix
    for mix in (
        Mix("uniform", 1, _uniform),
        Mix("uniform, by tool", 8, _uniform, spread=0.2),
        Mix("heavy tail", 1, _heavy),
        Mix("heavy tail, by tool", 8, _heavy, spread=0.2),
        Mix("equal", 1, lambda _: LONGEST),
    )
}


@dataclass(frozen=True, slots=True)
class Mixed(Uneven):
    """Steps of several tools that wait for each other.

    Attributes:
        tools: The number of the tool of each step.
    """

    tools: Mapping[str, int]

    def plan(self, *, with_estimates: bool) -> CheckedPlan:
        """Make a plan of it, in which the times of steps are known beforehand or not."""
        steps = [
            dagrun.Step(
                id=id_,
                tool=TOOLS[self.tools[id_]].name,
                args={"seconds": self.seconds[id_]},
                depends_on=before,
                estimate=self.seconds[id_] if with_estimates else None,
            )
            for id_, before in self.needs.items()
        ]
        return dagrun.check(dagrun.Plan(steps=steps), list(TOOLS))


def make_mixed(shape: str, mix: str, count: int, seed: int) -> Mixed:
    """Make a graph; the same arguments give the same graph.

    Args:
        shape: The name of one in `SHAPES`.
        mix: The name of one in `MIXES`.
        count: Of steps.
        seed: Of the edges and the times.
    """
    needs = SHAPES[shape](count, seed)
    random = Random(f"{shape} {mix} {count} {seed}")
    draw = MIXES[mix].seconds_of(random)
    tools = {step: random.randrange(MIXES[mix].tools) for step in needs}
    return Mixed(needs, {step: draw(tools[step]) for step in needs}, tools)
