"""Runs of uneven steps that note when they begin and end: how late each starts, and what that adds up to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import anyio

import baseline
import dagrun
from list_schedule import first_ready
from measure import Work
from shapes import successors
from uneven import Uneven, longest_chain

SLOTS: Final = 4


@dataclass(slots=True)
class Marks:
    """When each step of one run began and ended, by the clock inside its tool; in seconds."""

    began: dict[str, float] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)

    async def take(self, name: str, seconds: float) -> None:
        """Take some time, and note it."""
        self.began[name] = anyio.current_time()
        await anyio.sleep(seconds)
        self.ended[name] = anyio.current_time()

    def lags(self, graph: Uneven) -> list[float]:
        """For each step that waits for others, the time from the end of the last of them to its own start."""
        waiting = [(id_, before) for id_, before in graph.needs.items() if before]
        return [self.began[id_] - max(self.ended[one] for one in before) for id_, before in waiting]

    @property
    def took(self) -> dict[str, float]:
        """How long each step took."""
        return {name: ended - self.began[name] for name, ended in self.ended.items()}


@dataclass(frozen=True, slots=True)
class Timed:
    """One run of a graph; times are in seconds.

    Attributes:
        lags: As `Marks.lags`.
        makespan: From before the first step to after the last.
        ratio: Of the makespan to the critical path of the durations that the steps really had.
        asked: The same by the durations that they asked for.
        listed: Of the makespan to that of a first-ready list schedule in `SLOTS` slots, of the real durations.
    """

    lags: Sequence[float]
    makespan: float
    ratio: float
    asked: float
    listed: float


Prepare: TypeAlias = Callable[[Uneven, Marks], Work]


async def timed(graph: Uneven, prepare: Prepare) -> Timed:
    """Run *graph* once, as *prepare* has made it ready; making it ready is not timed."""
    marks = Marks()
    run = prepare(graph, marks)
    began = anyio.current_time()
    await run()
    makespan = anyio.current_time() - began
    took = marks.took
    if len(took) != len(graph.needs):
        raise AssertionError(f"{len(took)} of {len(graph.needs)} steps were run")
    return Timed(
        marks.lags(graph),
        makespan,
        ratio=makespan / longest_chain(graph.needs, took),
        asked=makespan / graph.critical_path,
        listed=makespan / first_ready(graph.needs, took, SLOTS),
    )


def by_dagrun(graph: Uneven, marks: Marks, slots: int | None = None) -> Work:
    """Run it with dagrun, in so many slots."""
    steps = [
        dagrun.Step(
            id=id_,
            tool="take",
            args={"name": id_, "seconds": graph.seconds[id_]},
            depends_on=before,
            estimate=graph.seconds[id_],
        )
        for id_, before in graph.needs.items()
    ]
    tool = dagrun.tool(effect="pure")(marks.take)
    plan = dagrun.check(dagrun.Plan(steps=steps), [tool], policy=dagrun.Policy(max_running=slots))

    async def run() -> None:
        (await dagrun.run(plan)).raise_for_status()

    return run


def in_slots(graph: Uneven, marks: Marks) -> Work:
    """Run it with dagrun in `SLOTS` slots."""
    return by_dagrun(graph, marks, SLOTS)


def by_hand(graph: Uneven, marks: Marks) -> Work:
    """Run it as bare tasks."""
    after = successors(graph.needs)

    async def step(id_: str, values: dict[str, object]) -> None:
        await marks.take(id_, graph.seconds[id_])

    async def run() -> None:
        await baseline.run(graph.needs, after, step)

    return run
