"""Providers that take so many calls at once or a minute: the run finds out, waits, and loses neither calls nor time."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import dagrun
from dagrun import Plan, PlanRefused, Policy, PoolLimits, RetryRule, Status, Step, ToolError
from dagrun.features.provider_limits.adaptive_limit import Bucket, ProviderWindow
from dagrun.kernel.model.tool import make_tool
from small_tools import near

pytestmark = pytest.mark.anyio


class Provider:
    """A service that refuses calls above *most*; a call takes *seconds*, and *per_second* more for each beside it."""

    def __init__(self, most: int, seconds: float = 1.0, *, slows: float = 0.0, retry_after: float = 1.0) -> None:
        self.most, self.seconds, self.slows, self.retry_after = most, seconds, slows, retry_after
        self.live = self.refused = self.highest = 0
        self.starts: list[float] = []

    async def call(self, number: int) -> int:
        self.starts.append(anyio.current_time())
        if self.live >= self.most:
            self.refused += 1
            raise ToolError("429", retryable=True, retry_after=self.retry_after)
        self.live += 1
        self.highest = max(self.highest, self.live)
        try:
            await anyio.sleep(self.seconds + self.slows * self.live)
        finally:
            self.live -= 1
        return number

    def tool(self, **options: Any) -> Any:
        return make_tool(self.call, name="api", effect="read", **options)


def calls(count: int, first: int = 0, **fields: Any) -> Plan:
    return Plan(steps=[Step(id=f"c{n}", tool="api", args={"number": n}, **fields) for n in range(first, first + count)])


@pytest.mark.parametrize("seconds", [1.0, 0.2, 3.0])
@pytest.mark.parametrize("most", [1, 4, 7])
async def test_all_calls_succeed_in_nearly_the_ideal_time(most: int, seconds: float) -> None:
    """60 calls under the default policy, which allows two attempts: nothing is written down anywhere."""
    provider = Provider(most, seconds, retry_after=seconds)
    result = await dagrun.run(calls(60), tools=[provider.tool()], seed=1)

    ideal = -(-60 // most) * seconds
    assert result.status is Status.SUCCEEDED, result.reason
    assert result.makespan <= 1.15 * ideal
    assert provider.refused <= 12


async def test_a_provider_that_takes_more_again_gets_more() -> None:
    provider = Provider(2)
    async with dagrun.start(calls(120), tools=[provider.tool()]) as run:
        await anyio.sleep(5)
        provider.most = 100
        result = await run.result()

    assert (result.status, provider.highest >= 6) == (Status.SUCCEEDED, True)
    assert result.makespan < 40  # and not 60


async def test_slow_answers_narrow_the_window() -> None:
    """A provider that queues in place of refusing is not pushed on."""
    window = ProviderWindow()
    for _ in range(10):
        window.begin(0, 0)
    window.end(0, 0, 0)
    assert window.refused(0, 1.0)
    assert window.limit == 9
    for _ in range(20):
        window.end(0, 0, 0)
        window.succeeded(1.0)
        window.begin(0, 0)
    widest = window.limit
    for _ in range(40):
        window.end(0, 0, 0)
        window.succeeded(9.0)
        window.begin(0, 0)
    assert window.limit < widest


async def test_a_call_that_hangs_now_and_then_narrows_nothing() -> None:
    """A queue makes all calls slow; of one in five, most of the time would be lost to a window of one."""
    provider = Provider(4)

    async def uneven(number: int) -> int:
        provider.seconds = 30.0 if number % 5 == 0 else 1.0
        return await provider.call(number)

    result = await dagrun.run(calls(60), tools=[make_tool(uneven, name="api", effect="read")])

    assert result.status is Status.SUCCEEDED
    assert result.makespan <= 1.15 * (12 * 30 + 48) / 4


async def test_the_runs_of_an_engine_share_a_window() -> None:
    """What one run has found out the other one knows, and both together stay below it."""
    provider = Provider(4)
    async with dagrun.Engine() as engine, anyio.create_task_group() as tasks:
        results: list[Any] = []

        async def one(first: int) -> None:
            results.append(await engine.run(calls(30, first), tools=[provider.tool()]))

        tasks.start_soon(one, 0)
        tasks.start_soon(one, 100)

    assert {result.status for result in results} == {Status.SUCCEEDED}
    assert max(result.makespan for result in results) <= 1.15 * 15
    assert provider.refused <= 12


async def test_tools_of_one_pool_are_one_provider_and_others_are_not_held_up() -> None:
    provider = Provider(2)
    other = make_tool(provider.call, name="other", effect="read", pool="p")

    async def free(number: int) -> int:
        await anyio.sleep(1)
        return number

    steps = [Step(id=f"f{n}", tool="free", args={"number": n}) for n in range(20)]
    steps += [Step(id=f"o{n}", tool=("api", "other")[n % 2], args={"number": n}) for n in range(20)]
    tools = [provider.tool(pool="p"), other, make_tool(free, effect="read")]
    result = await dagrun.run(Plan(steps=steps), tools=tools)

    assert result.status is Status.SUCCEEDED
    assert [result.steps[f"f{n}"].attempts[0].started for n in range(20)] == near([0] * 20)
    assert result.makespan <= 1.15 * 10


async def test_limits_that_are_written_down_hold_beside_the_window() -> None:
    provider = Provider(4)
    result = await dagrun.run(calls(30), tools=[provider.tool()], policy=Policy(max_running_by_tool={"api": 3}))

    assert (result.makespan, provider.highest, provider.refused) == (near(10), 3, 0)


async def test_a_provider_that_takes_nothing_is_given_up() -> None:
    """A call that was refused alone is an attempt like any other; refused ones count under the ceiling on attempts."""
    provider = Provider(0)
    result = await dagrun.run(calls(3), tools=[provider.tool()])
    assert (result.status, provider.refused) == (Status.FAILED, 6)

    provider = Provider(1)
    result = await dagrun.run(calls(5), tools=[provider.tool()], policy=Policy(max_attempts=4))
    assert result.status is Status.OVER_BUDGET
    assert len(provider.starts) == 4


async def test_a_plan_that_wants_one_attempt_gets_one() -> None:
    provider = Provider(2)
    policy = Policy(retry=RetryRule(max_attempts=1))
    result = await dagrun.run(calls(6), tools=[provider.tool()], policy=policy)

    assert sum(step.state == "failed" for step in result.steps.values()) == provider.refused == 1


# Rates ----------------------------------------------------------------------------------------------------------


async def test_calls_a_minute_are_spread() -> None:
    """Sixty a minute: six at once, and then one a second."""
    provider = Provider(99, 0.1)
    policy = Policy(pools={"p": PoolLimits(requests_per_minute=60)})
    result = await dagrun.run(calls(20), tools=[provider.tool(pool="p")], policy=policy)

    assert result.status is Status.SUCCEEDED
    begins = sorted(step.attempts[0].started for step in result.steps.values())
    assert begins[:6] == near([0] * 6)
    assert begins[6:] == near([float(n) for n in range(1, 15)])


async def test_tokens_a_minute_count_with_what_was_used() -> None:
    """600 a minute: 60 at once. A call reserves 50, and uses 10: what is left comes back."""

    async def model(number: int, context: dagrun.ToolContext) -> int:
        await anyio.sleep(0.1)
        context.report_usage(tokens=10)
        return number

    tool = make_tool(model, name="api", effect="read", pool="p", max_tokens=50)
    policy = Policy(pools={"p": PoolLimits(tokens_per_minute=600)})
    result = await dagrun.run(calls(20), tools=[tool], policy=policy)

    assert result.status is Status.SUCCEEDED, result.reason
    assert 12 < result.makespan < 21  # 200 tokens of which 60 are there at once, and 10 a second come


def test_a_bucket_holds_a_tenth_of_a_minute() -> None:
    bucket = Bucket(60.0, 0.0)
    assert bucket.wait(6, 0.0) == 0
    bucket.take(6, 0.0)
    assert (bucket.wait(1, 0.0), bucket.wait(99, 0.0)) == (near(1), near(6))
    assert bucket.wait(1, 1.0) == 0


async def test_a_rate_for_a_pool_that_nobody_has_is_named() -> None:
    with pytest.raises(PlanRefused, match=r"DR214 policy.pools: .*did you mean shop"):
        dagrun.check(calls(1), tools=[Provider(1).tool(pool="shop")], policy=Policy(pools={"shpo": PoolLimits()}))
