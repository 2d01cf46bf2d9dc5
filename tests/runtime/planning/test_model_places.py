"""Models that take so many calls at once: planners and critics wait for their turn, and lose no attempt by it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest

import dagrun
from dagrun import Engine, ModelPlanner, Plan, PlanningRule, Policy, RubricCritic, Status, Step, Verdict
from dagrun.errors import ModelError
from dagrun.extend import Message, Reply, Request, Usage
from dagrun.llm.language_model import ask
from small_tools import near

pytestmark = pytest.mark.anyio

PLAN = json.dumps({"steps": [{"id": "a", "tool": "look", "args": {}}]})
PATCH = json.dumps({"edits": [{"op": "drop", "id": "behind"}], "reason": "it does without"})


@dagrun.tool(effect="pure")
async def look() -> int:
    """Look."""
    return 7


@dagrun.tool(effect="read")
async def breaks(number: int) -> int:
    """Fail."""
    await anyio.sleep(number / 10)
    raise ValueError(f"no {number}")


class Busy:
    """A model that takes *limit* calls at once, and needs *seconds* for an answer."""

    def __init__(self, limit: int, seconds: float = 2.0, *, says: Any = PLAN, **error: Any) -> None:
        self.name = "busy"
        self.limit, self.seconds, self.says = limit, seconds, says
        self.error = {"status": 429, "is_transient": True, "retry_after": 1.0, **error}
        self.live = self.most = self.refused = 0

    async def stream(self, request: Request) -> AsyncGenerator[str | Reply, None]:
        if self.live >= self.limit:
            self.refused += 1
            raise ModelError("too many requests", **self.error)
        self.live += 1
        self.most = max(self.most, self.live)
        try:
            await anyio.sleep(self.seconds)
            text = self.says(request) if callable(self.says) else self.says
            yield text
            yield Reply(text=text, stop="end", usage=Usage(1, 1), cost=None, model=self.name)
        finally:
            self.live -= 1


async def plan_many(model: Busy, count: int, **policy: Any) -> tuple[list[Any], float]:
    """Let *count* runs of an engine plan with the model; return the results, and the seconds for all of them."""
    results: list[Any] = []
    began = anyio.current_time()
    async with Engine() as engine, anyio.create_task_group() as tasks:

        async def one() -> None:
            planner = ModelPlanner(model)
            results.append(await engine.run(goal="Look", planner=planner, tools=[look], policy=Policy(**policy)))

        for _ in range(count):
            tasks.start_soon(one)
    [window] = engine._features.model_windows.values()
    assert (window.in_flight, window.waiting, model.live) == (0, {}, 0)
    return results, anyio.current_time() - began


@pytest.mark.parametrize("limit", [1, 3, 5])
async def test_many_runs_plan_with_a_model_that_takes_a_few_at_once(limit: int) -> None:
    """Under the default policy, which allows two attempts; the first wave finds the limit out."""
    model = Busy(limit)
    results, seconds = await plan_many(model, 30)

    assert {result.status for result in results} == {Status.SUCCEEDED}
    assert seconds <= 1.15 * 2.0 * 30 / limit
    assert model.refused <= 30 + 6  # the first wave, and a few probes


async def test_the_time_of_a_planner_does_not_run_while_it_waits_for_its_turn() -> None:
    """The last of twelve waits for six seconds, and may think for three."""
    results, seconds = await plan_many(Busy(3), 12, planning=PlanningRule(timeout=3.0))

    assert {result.status for result in results} == {Status.SUCCEEDED}
    assert seconds == near(8.0)


async def test_a_model_that_takes_nothing_is_given_up() -> None:
    model = Busy(0)
    [result], _ = await plan_many(model, 1)

    assert (result.status, model.refused) == (Status.FAILED, 2)
    assert "too many requests" in result.reason


async def test_an_error_that_is_no_refusal_limits_nothing() -> None:
    """A server that breaks down takes as many calls afterwards as before."""
    model = Busy(0, status=500, retry_after=None)
    results, _ = await plan_many(model, 4)
    assert {result.status for result in results} == {Status.FAILED}
    assert model.refused == 8


async def test_repairs_side_by_side_keep_to_it_and_can_be_left() -> None:
    """Of one run, too; whoever is cancelled while it waits leaves no trace."""
    names = [f"behind{n}" for n in range(6)]
    model = Busy(2, says=lambda request: json.dumps({"edits": [], "reason": "", "refusal": "nothing helps"}))
    steps = [Step(id=f"b{n}", tool="breaks", args={"number": n}) for n in range(6)]
    steps += [Step(id=name, tool="look", depends_on=[f"b{n}"]) for n, name in enumerate(names)]
    async with Engine() as engine:
        options: dict[str, Any] = {"planner": ModelPlanner(model), "tools": [look, breaks]}
        result = await engine.run(Plan(steps=steps), policy=Policy(max_replans=6), **options)
        assert (result.replans, model.most) == (6, 2)
        assert "nothing helps" in str(result.reason)
        with anyio.move_on_after(3):
            await engine.run(Plan(steps=steps), policy=Policy(max_replans=6), **options)
        [window] = engine._features.model_windows.values()
        assert (window.in_flight, window.waiting, model.live) == (0, {}, 0)


# Critics ------------------------------------------------------------------------------------------------------------

MARKS: dict[str, Any] = {"reason": "", "scores": {"rubric": 1.0}, "surprising": False}


@pytest.mark.parametrize("limit", [1, 4])
async def test_reviews_keep_to_what_their_model_takes(limit: int) -> None:
    """Each critic would be refused twice, and its step fail with it; none does, and the time stands still."""
    model = Busy(limit, says=json.dumps(MARKS))
    steps = [Step(id=f"s{n}", tool="look") for n in range(20)]
    options: dict[str, Any] = {"tools": [look], "critics": [RubricCritic(model, "It is a number.")]}
    result = await dagrun.run(Plan(steps=steps), policy=Policy(critic_timeout=9.0), **options)

    assert result.status is Status.SUCCEEDED, result.reason
    assert (model.most, model.live) == (limit, 0)
    assert model.refused <= 20 + 6
    assert result.makespan <= 1.15 * 2.0 * 20 / limit + 1


class Bare:
    """A critic that asks a model once, and knows nothing of refusals."""

    name = "bare"

    def __init__(self, model: Busy) -> None:
        self.model = model

    def applies_to(self, step: Step) -> bool:
        return True

    async def review(self, step: Step, outcome: Any) -> Verdict:
        await ask(self.model, Request(system="", messages=(Message("user", "Good?"),), max_output_tokens=9))
        return Verdict("pass")


async def test_a_critic_that_does_not_try_again_is_asked_again_if_others_were_in_the_way() -> None:
    model = Busy(3)
    steps = [Step(id=f"s{n}", tool="look") for n in range(12)]
    result = await dagrun.run(Plan(steps=steps), tools=[look], critics=[Bare(model)])

    assert (result.status, model.most) == (Status.SUCCEEDED, 3)
    dead = await dagrun.run(Plan(steps=steps[:1]), tools=[look], critics=[Bare(Busy(0))])
    assert (dead.status, "too many requests" in dead.reason) == (Status.FAILED, True)


async def test_planners_and_critics_share_the_places_of_a_model() -> None:
    """The runs of an engine know what the others have found out, whoever asks."""
    model = Busy(2, says=lambda request: PLAN if "plan" in request.system.lower()[:200] else json.dumps(MARKS))
    results: list[Any] = []
    async with Engine() as engine, anyio.create_task_group() as tasks:

        async def one() -> None:
            options: dict[str, Any] = {"planner": ModelPlanner(model), "critics": [RubricCritic(model, "Good.")]}
            results.append(await engine.run(goal="Look", tools=[look], **options))

        for _ in range(8):
            tasks.start_soon(one)
    assert [str(result.status) for result in results] == ["succeeded"] * 8, results[0].reason
    assert list(engine._features.model_windows) == ["busy"]
