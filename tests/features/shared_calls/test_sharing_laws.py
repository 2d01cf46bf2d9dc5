"""Laws of shared calls, on random graphs: a plan cannot tell that calls are shared, but by the time that it takes."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any, Final

import anyio
import pytest

import dagrun
from dagrun import Batch, MemoryJournal, Plan, Policy, RetryRule, Step, ToolError
from dagrun.kernel.model.tool import make_tool
from dagrun.testing import run_virtual
from graphs import Graph, make_graph
from schedules import BACKENDS
from seeds import choose_seeds

pytestmark = pytest.mark.rigs

KEYS: Final = 5  # different calls


class World:
    """A tool whose calls are counted; some of them fail, the first time that they are made.

    Args:
        rng: Decides which calls there are and how long they take.
    """

    def __init__(self, rng: random.Random) -> None:
        self.seconds = {key: rng.choice((0.5, 1.0, 3.0)) for key in range(KEYS)}
        self.fails = {key for key in range(KEYS) if rng.random() < 0.3}
        self.calls: list[int] = []
        self.open: Counter[int] = Counter()
        self.most_open = 0

    async def call(self, key: int) -> list[int]:
        """Do the work of one call."""
        self.calls.append(key)
        self.open[key] += 1
        self.most_open = max(self.most_open, *self.open.values())
        try:
            await anyio.sleep(self.seconds[key])
        finally:
            self.open[key] -= 1
        if key in self.fails:
            self.fails.discard(key)
            raise ToolError("busy", retryable=True)
        return [key, key * key]

    def tool(self, **options: Any) -> dagrun.Tool[..., Any]:
        """The tool, with options."""

        async def look(key: int) -> list[int]:
            return await self.call(key)

        return make_tool(look, effect="read", **options)


def steps_of(graph: Graph, rng: random.Random) -> tuple[Step, ...]:
    """A plan of the shape of *graph*, whose steps make few different calls."""
    return tuple(
        Step(id=id_, tool="look", args={"key": rng.randrange(KEYS)}, depends_on=tuple(sorted(needed)))
        for id_, needed in graph.needs.items()
    )


def play(world: World, steps: tuple[Step, ...], backend: str, **options: Any) -> dagrun.RunResult:
    """Run a plan on virtual time."""

    async def main() -> dagrun.RunResult:
        policy = Policy(retry=RetryRule(max_attempts=3, first_delay=0))
        tools = [world.tool(**options)]
        journal = MemoryJournal()
        result = await dagrun.run(Plan(steps=steps), tools=tools, policy=policy, journal=journal)
        past = await dagrun.replay(result.run_id, journal=journal)
        assert [each.attempts for each in past.steps.values()] == [each.attempts for each in result.steps.values()]
        return result

    return run_virtual(main, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seed", choose_seeds(12, 400))
def test_kept_results_change_nothing_but_the_time(seed: int, backend: str) -> None:
    """Each call is made once, and once more for each failure; never twice at the same time; and nothing is later."""
    graph, rng = make_graph(seed), random.Random(seed)
    steps = steps_of(graph, rng)
    alone, shared = World(random.Random(seed)), World(random.Random(seed))
    failing = len(shared.fails & {step.args["key"] for step in steps})
    plain = play(alone, steps, backend)
    kept = play(shared, steps, backend, cache="run")

    assert {id_: step.output for id_, step in kept.steps.items()} == {
        id_: step.output for id_, step in plain.steps.items()
    }
    asked = {step.args["key"] for step in steps}
    assert len(shared.calls) == len(asked) + failing
    assert shared.most_open == 1
    outcomes = [attempt.outcome for step in kept.steps.values() for attempt in step.attempts]
    own = sum(1 for outcome in outcomes if outcome is not None and outcome.shared is None)
    assert own == len(shared.calls)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seed", choose_seeds(8, 200))
def test_batches_change_nothing_but_the_time(seed: int, backend: str) -> None:
    """Each step has the result of its own call, whatever else was in its batch."""
    graph, rng = make_graph(seed), random.Random(seed)
    steps = steps_of(graph, rng)
    world, sizes = World(random.Random(seed)), list[int]()
    world.fails.clear()

    async def all_at_once(calls: list[dict[str, Any]]) -> list[list[int]]:
        sizes.append(len(calls))
        await anyio.sleep(1.0)
        return [[call["key"], call["key"] ** 2] for call in calls]

    batch = Batch(all_at_once, max_calls=rng.randint(2, 6), within=rng.choice((0.0, 0.2)))
    result = play(world, steps, backend, batch=batch)

    assert all(result.steps[step.id].output == [step.args["key"], step.args["key"] ** 2] for step in steps)
    assert (sum(sizes), max(sizes) <= batch.max_calls, world.calls) == (len(steps), True, [])
    hops = max(replace(graph, seconds=dict.fromkeys(graph.seconds, 1.0)).longest_paths().values())
    assert result.makespan <= hops * (1.0 + batch.within) + 1e-6  # no step waits for more than its own batch
