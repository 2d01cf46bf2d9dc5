"""Faults of a planner's model, with the real clients over HTTP: the run ends in time, and says why."""

from __future__ import annotations

import json
from typing import Any

import anyio.to_thread
import pytest

import dagrun
from dagrun import AnthropicPlanner, OpenAIPlanner, PlanningRule, Policy, RetryRule, Status
from dagrun.kernel.model.tool import make_tool
from dagrun.testing import FakeModelServer, Fault, ModelAnswer
from model_clients import DROPS_GENERATORS

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.real_time,
    pytest.mark.rigs,
    pytest.mark.filterwarnings(DROPS_GENERATORS),
]

APIS = ("responses", "chat", "anthropic")
AT_ONCE = Policy(retry=RetryRule(first_delay=0), grace=0.2)
GOAL = "What do bread and milk cost together?"


async def price(item: str) -> float:
    """Look up a price, in euros."""
    return {"bread": 3.5, "milk": 1.2}[item]


async def total(amounts: list[float]) -> float:
    """Add amounts up."""
    return round(sum(amounts), 2)


TOOLS = [make_tool(price, effect="read"), make_tool(total, effect="pure")]
GOOD = json.dumps(
    {
        "steps": [
            {"id": "bread", "tool": "price", "args": {"item": "bread"}},
            {"id": "milk", "tool": "price", "args": {"item": "milk"}},
            {"id": "sum", "tool": "total", "args": {"amounts": ["${bread}", "${milk}"]}},
        ],
        "output": "sum",
    }
)
HALF = ModelAnswer(GOOD, piece=20)  # the first step is complete after four pieces

FAULTS: dict[str, Fault | ModelAnswer] = {
    "busy": Fault.status(429, retry_after=0.01),
    "broken": Fault.status(500),
    "cut": Fault.cut(),
    "cut in the middle": Fault.cut(after=4, of=HALF),
    "reset in the middle": Fault.cut(after=4, how="reset", of=HALF),
    "ended in the middle": Fault.cut(after=4, how="end", of=HALF),
    "malformed": Fault.malformed(after=4, of=HALF),
    "failed": Fault.failed(after=4, of=HALF),
    "error": Fault.error(after=4, of=HALF),
    "empty": Fault.empty(),
    "too long": ModelAnswer(GOOD[:150], stop="length"),
    "not JSON": ModelAnswer("I think that you should look it up."),
    "not a model": Fault.not_sse(),
    "refused": ModelAnswer("I would rather not.", stop="refused"),
    "no key": Fault.status(401),
    "no such model": Fault.status(404, code="model_not_found"),
    "no plan": ModelAnswer('{"refusal": "no tool reads minds"}'),
}
# Faults after which another call may succeed: the same call again, or a repair.
PASSING = [name for name in FAULTS if name not in {"not a model", "refused", "no key", "no such model", "no plan"}]


def planner_for(server: FakeModelServer, api: Any, **options: Any) -> Any:
    """Return a planner that uses *api*."""
    if api == "anthropic":
        return AnthropicPlanner("m", base_url=server.anthropic_url, api_key="a-secret-key", **options)
    return OpenAIPlanner("m", base_url=server.base_url, api_key="a-secret-key", api=api, **options)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_that_stays_ends_the_run_with_a_reason(fault: str, api: str) -> None:
    """Nothing hangs, only planned calls are made, and the reason is a sentence without the key."""
    async with FakeModelServer([FAULTS[fault]]) as server:
        planner = planner_for(server, api)  # which loads the library of its provider
        with anyio.fail_after(30):
            result = await dagrun.run(goal=GOAL, planner=planner, tools=TOOLS, policy=AT_ONCE)

    assert (result.status, result.has_plan) == (Status.FAILED, False)
    assert result.reason.startswith("there is no plan: ")
    assert 30 < len(result.reason) < 900
    assert "secret" not in result.reason
    assert len(server.calls) <= 8  # two tries, in each of four ways to ask for structure
    assert {attempt.tool for step in result.steps.values() for attempt in step.attempts} <= {"price", "total"}


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("fault", PASSING)
async def test_a_fault_that_passes_costs_a_call_and_no_more(fault: str, api: str) -> None:
    async with FakeModelServer([FAULTS[fault], ModelAnswer(GOOD)]) as server:
        result = await dagrun.run(goal=GOAL, planner=planner_for(server, api), tools=TOOLS, policy=AT_ONCE)

    assert (result.status, result.output) == (Status.SUCCEEDED, 4.7), result.reason
    assert len(server.calls) == 2


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("after", [None, 4])
async def test_a_model_that_hangs_is_left_in_time(after: int | None, api: str) -> None:
    """The server sees that the connection is closed."""
    async with FakeModelServer([Fault.hang(after, of=HALF)]) as server:
        policy = Policy(planning=PlanningRule(timeout=0.5, max_calls=1), grace=0.2)
        planner = planner_for(server, api)
        with anyio.fail_after(30):
            result = await dagrun.run(goal=GOAL, planner=planner, tools=TOOLS, policy=policy)
        assert await anyio.to_thread.run_sync(server.wait_until_closed, server.calls[0], 5)

    assert not result.has_plan
    assert "longer than 0.5 s" in result.reason or result.status is Status.OVER_BUDGET


@pytest.mark.parametrize("api", APIS)
async def test_cancelling_a_run_closes_the_connection(api: str) -> None:
    """The server has sent one step, which runs; then the connection ends before the answer does."""
    slow = ModelAnswer(GOOD, piece=1, tokens_per_second=200)
    async with FakeModelServer([slow]) as server:
        async with dagrun.start(goal=GOAL, planner=planner_for(server, api), tools=TOOLS) as run:
            async for event in run.events():
                if isinstance(event, dagrun.events.Spliced):
                    run.cancel()
            result = await run.result()
        assert await anyio.to_thread.run_sync(server.wait_until_closed, server.calls[0], 5)

    assert result.status is Status.CANCELLED
    assert len(server.calls[0].text) < len(GOOD)


@pytest.mark.parametrize("api", APIS)
async def test_what_does_not_fit_is_not_asked(api: str) -> None:
    """The worst case of the call is above the ceiling, so the server gets no request."""
    async with FakeModelServer([GOOD]) as server:
        policy = Policy(max_tokens=2_000)
        result = await dagrun.run(goal=GOAL, planner=planner_for(server, api), tools=TOOLS, policy=policy)

    assert (result.status, server.calls) == (Status.OVER_BUDGET, [])
    assert "ceiling of 2000 tokens has no room for m" in result.reason


@pytest.mark.parametrize("api", APIS)
async def test_what_the_server_says_is_charged(api: str) -> None:
    """The model has no known price, so the cost is unknown, and not 0."""
    async with FakeModelServer([ModelAnswer(GOOD, usage=(900, 77))]) as server:
        policy = Policy(max_tokens=100_000)
        result = await dagrun.run(goal=GOAL, planner=planner_for(server, api), tools=TOOLS, policy=policy)

    assert (result.tokens, result.cost, result.status) == (977, None, Status.SUCCEEDED)


@pytest.mark.parametrize("api", APIS)
async def test_prices_come_from_a_table(api: str) -> None:
    prices = {"m": {"input_per_mtok": 1.0, "output_per_mtok": 10.0}}
    async with FakeModelServer([ModelAnswer(GOOD, usage=(1_000, 100))]) as server:
        result = await dagrun.run(goal=GOAL, planner=planner_for(server, api, prices=prices), tools=TOOLS)

    assert result.cost == pytest.approx(0.002)
