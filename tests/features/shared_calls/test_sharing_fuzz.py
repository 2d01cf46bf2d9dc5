"""Shared calls under fire: steps are cancelled, late, hedged and retried at random, in several runs of an engine."""

from __future__ import annotations

import random
from typing import Any, Final

import anyio
import pytest

import dagrun
from dagrun import Batch, Budget, Engine, HedgeRule, Plan, Policy, RetryRule, Run, Step, ToolContext, ToolError
from dagrun.kernel.model.tool import AnyTool, make_tool
from dagrun.testing import run_virtual
from graphs import make_graph
from hedge_tools import known
from schedules import BACKENDS
from seeds import choose_seeds

pytestmark = pytest.mark.rigs

TOKENS: Final = 7  # that each call reports, as soon as it begins


class World:
    """Tools that misbehave at random, and count.

    Args:
        rng: Decides how.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.made = 0
        self.open = 0
        cache = rng.choice(("run", "engine", 2.0))
        self.tools: list[AnyTool] = [
            make_tool(self._function("kept"), effect="read", cache=cache, max_tokens=TOKENS),
            make_tool(self._function("plain"), effect="read", max_tokens=TOKENS),
            make_tool(self._function("many"), effect="read", max_tokens=TOKENS, batch=self._batch()),
            make_tool(self._function("both"), effect="read", cache=cache, max_tokens=TOKENS, batch=self._batch()),
        ]

    def _function(self, name: str) -> Any:
        async def function(key: int, context: ToolContext) -> int:
            context.report_usage(tokens=TOKENS)
            await self._work()
            return key

        function.__name__ = function.__qualname__ = name
        return function

    def _batch(self) -> Batch:
        async def batch(calls: list[dict[str, Any]], context: ToolContext) -> list[Any]:
            context.report_usage(tokens=TOKENS)
            await self._work()
            return [ToolError("one", retryable=True) if self.rng.random() < 0.1 else call["key"] for call in calls]

        return Batch(batch, max_calls=self.rng.randint(2, 5), within=self.rng.choice((0.0, 0.1, 0.4)))

    async def _work(self) -> None:
        self.made += 1
        self.open += 1
        try:
            await anyio.sleep(self.rng.choice((0.0, 0.2, 0.9, 4.0)))
            if self.rng.random() < 0.15:
                raise ToolError("busy", retryable=True)
        finally:
            if self.rng.random() < 0.3:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(0.1)
            self.open -= 1


def plan_of(seed: int) -> Plan:
    """A random plan of few different calls."""
    graph, rng = make_graph(seed), random.Random(seed)
    return Plan(
        steps=tuple(
            Step(
                id=id_,
                tool=rng.choice(("kept", "kept", "plain", "many", "both")),
                args={"key": rng.randrange(3)},
                depends_on=tuple(sorted(needed)),
                timeout=rng.choice((0.5, 2.0, None)),
            )
            for id_, needed in graph.needs.items()
        )
    )


async def meddle(run: Run, rng: random.Random) -> None:
    """Cancel a few steps, or the run."""
    steps = list(run.states)
    for _ in range(rng.randrange(4)):
        await anyio.sleep(rng.choice((0.05, 0.3, 0.7)))
        if not run.has_ended:
            run.cancel(rng.choice(steps))
    if rng.random() < 0.2 and not run.has_ended:
        run.cancel()


async def play(seed: int) -> None:
    """Let two or three runs share an engine, and look at what is left."""
    rng = random.Random(seed)
    world, results = World(rng), list[dagrun.RunResult]()
    hedge = HedgeRule(max_share=1.0) if rng.random() < 0.5 else None
    policy = Policy(retry=RetryRule(max_attempts=2, first_delay=0.1), hedge=hedge, grace=0.5)
    budget = Budget(max_tokens=10**6)

    async def one(number: int) -> None:
        await anyio.sleep(0.3 * number)
        async with engine.start(plan_of(seed + number), tools=world.tools, policy=policy) as run:
            group.start_soon(meddle, run, random.Random(seed + number))
            results.append(await run.result())

    durations = known("kept", "plain", "many", "both", seconds=0.4)
    async with Engine(budget=budget, durations=durations) as engine, anyio.create_task_group() as group:
        for number in range(rng.randint(2, 3)):
            group.start_soon(one, number)

    assert world.open == 0
    assert all(step.state.is_settled for result in results for step in result.steps.values())
    cache = engine._features.results
    assert cache is None or not cache.under_way
    hedged = [a.hedge for r in results for s in r.steps.values() for a in s.attempts if a.hedge is not None]
    assert sum(_attempt_tokens(result) for result in results) + sum(h.tokens for h in hedged) == TOKENS * world.made


def _attempt_tokens(result: dagrun.RunResult) -> int:
    outcomes = [attempt.outcome for step in result.steps.values() for attempt in step.attempts]
    return sum(outcome.tokens for outcome in outcomes if outcome is not None)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seed", choose_seeds(25, 2_000))
def test_whatever_happens_calls_are_charged_once_and_nothing_is_left(seed: int, backend: str) -> None:
    """Every token that a call has reported is on record at one attempt, and at one alone."""
    run_virtual(play, seed, backend=backend)
