"""The failure contract, points 3 to 5: cancellation settles everything, late is void, the stubborn are let go."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import time
from typing import Any

import anyio
import pytest
import trio
from anyio.lowlevel import checkpoint

import dagrun
from dagrun import Plan, Policy, RetryRule, State, Status, Step, ToolContext, ToolError
from dagrun.kernel.model.outcome import ErrorKind
from dagrun.kernel.model.tool import make_tool
from dagrun.testing import Takes
from misbehaving import cleans_up_for_too_long, leaves_a_cancellation_behind
from small_tools import ONCE, echo, nap, near, run, scripted, states, toolset

pytestmark = [pytest.mark.anyio, pytest.mark.both_backends]


def _nap(id_: str, seconds: float, *after: str, **fields: Any) -> Step:
    return Step(id=id_, tool="nap", args={"seconds": seconds, "gives": id_}, depends_on=after, **fields)


# 3. The run always ends -------------------------------------------------------------------------------------


async def test_cancelling_the_run_settles_every_step() -> None:
    """Ended, running, waiting for a slot, between two attempts, never started: each says what became of it."""
    busy = scripted("busy", ToolError("busy", retryable=True, retry_after=60))
    steps = [
        _nap("ended", 1.0),
        _nap("running", 9.0),
        _nap("queued", 9.0),
        Step(id="between", tool="busy"),
        _nap("never", 1.0, "running"),
        Step(id="each", tool="nap", args={"seconds": "${item}"}, for_each=[1.0, 9.0]),
    ]
    policy = Policy(max_running_by_tool={"nap": 4})

    async with dagrun.start(Plan(steps=steps), tools=toolset(busy), policy=policy) as handle:
        await anyio.sleep(2)
        assert handle.cancel(reason="enough")
        result = await handle.result()

    assert anyio.current_time() == near(result.makespan)
    assert result.makespan == near(2)
    assert (result.status, result.status.exit_code, result.reason) == (Status.CANCELLED, 130, "enough")
    assert states(result) == {
        "ended": "succeeded",
        "running": "cancelled",
        "queued": "cancelled",
        "between": "cancelled",
        "never": "cancelled",
        "each": "cancelled",
        "each[0]": "succeeded",
        "each[1]": "cancelled",
    }
    assert result.steps["never"].reason == "enough"


async def test_effects_in_flight_are_in_doubt_when_the_run_is_cancelled() -> None:
    send = make_tool(nap, name="send")
    plan = Plan(steps=[Step(id="send", tool="send", args={"seconds": 9.0}), _nap("wait", 9.0)])

    async with dagrun.start(plan, tools=toolset(send)) as handle:
        await anyio.sleep(1)
        handle.cancel()
        result = await handle.result()

    assert states(result) == {"send": "unknown", "wait": "cancelled"}
    assert result.status is Status.UNKNOWN


async def test_the_time_of_a_run_is_a_ceiling() -> None:
    """The reason names the ceiling and what was left."""
    steps = (_nap("quick", 1.0), _nap("slow", 9.0), _nap("never", 1.0, "slow"))

    result = await run(*steps, max_seconds=5.0)

    assert states(result) == {"quick": "succeeded", "slow": "cancelled", "never": "cancelled"}
    assert (result.status, result.status.exit_code) == (Status.OVER_BUDGET, 4)
    assert result.reason == "ceiling of 5 seconds is spent: 2 of 3 steps had not ended"
    assert result.makespan == near(5)


async def test_elements_are_no_steps_for_the_reason() -> None:
    """The list is one step of the plan, however many elements it has."""
    each = Step(id="each", tool="nap", args={"seconds": "${item}"}, for_each=[1.0, 9.0, 9.0])

    result = await run(_nap("quick", 1.0), each, max_seconds=5.0)

    assert result.reason == "ceiling of 5 seconds is spent: 1 of 2 steps had not ended"


async def test_cancelled_while_a_call_in_doubt_waits_to_be_made_again() -> None:
    """It was never settled by an attempt, and may have taken effect all the same."""
    send = make_tool(nap, name="send", effect="idempotent", timeout=1.0)
    rule = RetryRule(max_attempts=2, first_delay=20.0)
    async with dagrun.start(
        Plan(steps=[Step(id="send", tool="send", args={"seconds": 9.0}, retry=rule)]), tools=toolset(send)
    ) as handle:
        await anyio.sleep(2)
        handle.cancel()
        result = await handle.result()

    assert states(result) == {"send": "unknown"}
    assert result.status is Status.UNKNOWN


async def test_a_run_within_its_time_does_not_wait_for_the_ceiling() -> None:
    result = await run(_nap("quick", 1.0), max_seconds=3_600.0)

    assert (result.status, anyio.current_time()) == (Status.SUCCEEDED, near(result.makespan))


# 4. Late is void --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "tool", "policy"), [(1.0, 9.0, 9.0), (9.0, 1.0, 9.0), (9.0, 9.0, 1.0), (None, None, 1.0)]
)
async def test_the_least_timeout_holds(step: float | None, tool: float | None, policy: float) -> None:
    """A step can make a limit stricter, never looser."""
    slow = make_tool(nap, name="slow", effect="read", timeout=tool)

    result = await run(
        Step(id="slow", tool="slow", args={"seconds": 60.0}, timeout=step), tools=(slow,), timeout=policy, retry=ONCE
    )

    assert (states(result), result.makespan) == ({"slow": "timed_out"}, near(1))
    source = "" if 1.0 in (tool, step) else " (timeout of the policy)"
    assert result.steps["slow"].reason == f"it took longer than 1 s{source}"


async def test_an_attempt_that_ends_in_time_is_used() -> None:
    result = await run(_nap("quick", 0.999, timeout=1.0))

    assert states(result) == {"quick": "succeeded"}


@pytest.mark.real_time
@pytest.mark.parametrize(("effect", "state"), [("read", "timed_out"), ("effectful", "unknown")])
async def test_a_value_that_comes_late_without_noticing_is_void(effect: str, state: str) -> None:
    """It blocked the loop, so nobody could tell it to stop; its value is late all the same."""

    async def blocks() -> int:
        time.sleep(0.05)  # the point of the test
        return 7

    slow = make_tool(blocks, effect=effect, timeout=0.01)

    result = await run(Step(id="slow", tool="blocks"), tools=(slow,), retry=ONCE)

    assert states(result) == {"slow": state}
    assert result.steps["slow"].output is None


async def test_a_timeout_of_a_tool_with_effects_is_in_doubt_unless_it_vouches() -> None:
    async def rolls_back() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise ToolError("rolled back")

    tools = (make_tool(nap, name="send", timeout=1.0), make_tool(rolls_back, timeout=1.0))
    steps = (Step(id="send", tool="send", args={"seconds": 9.0}), Step(id="vouches", tool="rolls_back"))

    result = await run(*steps, tools=tools, retry=ONCE)

    assert states(result) == {"send": "unknown", "vouches": "timed_out"}


async def _swallows(context: ToolContext) -> int:
    with contextlib.suppress(asyncio.CancelledError, trio.Cancelled), context.before_effect():
        await anyio.sleep(9)
    return 7


async def _stays(context: ToolContext) -> None:
    with context.before_effect(), anyio.CancelScope(shield=True):
        await anyio.sleep(9)


async def _waits_and_sends(context: ToolContext, wait: float, send: float) -> None:
    with context.before_effect():
        await anyio.sleep(wait)
    await anyio.sleep(send)


async def _fails_to_wait(context: ToolContext) -> None:
    with contextlib.suppress(TimeoutError), context.before_effect(), anyio.fail_after(0.5):
        await anyio.sleep(9)
    await anyio.sleep(9)


async def _goes_another_way(context: ToolContext) -> None:
    with contextlib.suppress(TimeoutError), anyio.fail_after(0.5), context.before_effect():
        await anyio.sleep(9)  # for the pool, which its own time limit cuts off
    await anyio.sleep(9)  # and then it sends without the pool


@pytest.mark.parametrize(
    ("function", "args", "state", "attempts"),
    [
        (_goes_another_way, {}, "unknown", 1),
        (_waits_and_sends, {"wait": 9.0, "send": 0.0}, "timed_out", 2),  # as if all connections were taken
        (_waits_and_sends, {"wait": 0.5, "send": 9.0}, "unknown", 1),
        (_fails_to_wait, {}, "unknown", 1),
        (_swallows, {}, "unknown", 1),  # nobody can tell what it has done since
        (_stays, {}, "unknown", 1),  # it goes on
    ],
)
async def test_a_call_that_is_cut_off_before_its_effect_may_be_made_again(
    function: Any, args: dict[str, Any], state: str, attempts: int
) -> None:
    call = make_tool(function, name="call", timeout=1.0)

    result = await run(Step(id="call", tool="call", args=args), tools=(call,), retry=RetryRule(max_attempts=2), grace=2)

    assert states(result) == {"call": state}
    assert len(result.steps["call"].attempts) == attempts


async def test_reports_that_come_late_count_for_nothing() -> None:
    """Tokens of an attempt that has been recorded already would change the past."""

    async def counts(context: ToolContext) -> None:
        context.report_usage(tokens=3, cost=0.5)
        context.report_usage(tokens=4)
        with anyio.CancelScope(shield=True):
            await anyio.sleep(9)
        context.report_usage(tokens=1_000, cost=99.0)

    result = await run(
        Step(id="counts", tool="counts"), tools=(make_tool(counts, effect="read", timeout=1.0),), grace=0.5, retry=ONCE
    )

    assert (result.tokens, result.cost) == (7, 0.5)


# 5. Abandoned after grace -----------------------------------------------------------------------------------


async def test_the_result_comes_at_grace_and_on_trio_leaving_the_block_waits(
    anyio_backend: tuple[str, dict[str, Any]],
) -> None:
    """Whoever only wants the result has it. On trio the task still belongs to the block; on asyncio it is dropped."""
    plan = Plan(steps=[Step(id="shielded", tool="stubborn", timeout=1.0), _nap("quick", 1.2)])
    stubborn = make_tool(cleans_up_for_too_long, name="stubborn", effect="read")
    zero = anyio.current_time()

    async with dagrun.start(plan, tools=toolset(stubborn), policy=Policy(grace=0.5, retry=ONCE)) as handle:
        result = await handle.result()
        assert anyio.current_time() - zero == near(1.5)

    # Its clean-up begins at 1 s and takes 5 s.
    assert anyio.current_time() - zero == near(6 if anyio_backend[0] == "trio" else 1.5)
    assert states(result) == {"shielded": "abandoned", "quick": "succeeded"}
    assert result.steps["shielded"].reason == "it took longer than 1 s; it would not stop"
    assert result.makespan == near(1.5)


async def test_an_abandoned_step_gives_its_slot_back() -> None:
    stubborn = make_tool(cleans_up_for_too_long, name="stubborn", effect="read")

    result = await run(
        Step(id="shielded", tool="stubborn", timeout=1.0),
        _nap("next", 1.0),
        tools=(stubborn,),
        grace=0.5,
        max_running=1,
        retry=ONCE,
    )

    assert result.steps["next"].started == near(1.5)


@pytest.mark.real_time
async def test_a_step_that_swallows_every_cancellation_is_dropped() -> None:
    """It comes round at once each time, which leaves no virtual clock a chance; the grace period still holds."""
    turns = 0

    async def swallows() -> None:
        nonlocal turns
        while True:
            try:
                await anyio.sleep_forever()
            except anyio.get_cancelled_exc_class():
                turns += 1

    result = await run(
        Step(id="swallows", tool="swallows", timeout=0.01),
        _nap("sibling", 0.3),
        tools=(make_tool(swallows, effect="read"),),
        grace=0.2,
        retry=ONCE,
    )

    assert states(result) == {"swallows": "abandoned", "sibling": "succeeded"}
    assert turns > 1


# What one step leaves behind --------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", ["read", "effectful"])
async def test_what_a_step_leaves_behind_does_not_reach_the_next(effect: str, anyio_backend_name: str) -> None:
    """A repeatable step that is hit is tried again, at no cost to its attempts; another has a worker of its own."""
    if anyio_backend_name != "asyncio":
        pytest.skip("trio's tasks cannot be cancelled from anywhere")
    leaves = make_tool(leaves_a_cancellation_behind, name="leaves", effect="read")
    steps = [
        Step(id="leaves", tool="leaves"),
        Step(id="next", tool="slow", args={"seconds": 1.0}, depends_on=("leaves",)),
    ]

    result = await run(*steps, tools=(leaves, make_tool(nap, name="slow", effect=effect)), retry=ONCE)

    assert states(result) == {"leaves": "succeeded", "next": "succeeded"}
    kinds = [a.outcome.failure.kind for a in result.steps["next"].attempts if a.outcome and a.outcome.failure]
    assert kinds == ([ErrorKind.STRAY_CANCELLATION] if effect == "read" else [])


async def test_an_idle_worker_survives_what_was_left_behind(anyio_backend_name: str) -> None:
    """The cancellation comes when nothing runs there: the run must neither hang nor end."""
    if anyio_backend_name != "asyncio":
        pytest.skip("trio's tasks cannot be cancelled from anywhere")
    leaves = make_tool(leaves_a_cancellation_behind, name="leaves", effect="read")
    fans = [_nap(f"n{i}", 0.5, "sibling") for i in range(5)]

    result = await run(_nap("sibling", 1.0), Step(id="leaves", tool="leaves"), *fans, tools=(leaves,))

    assert set(states(result).values()) == {"succeeded"}
    assert result.makespan == near(1.5)


async def test_workers_that_nobody_needs_any_more_take_no_cancellation_along() -> None:
    """Of many that have one coming some end at once; on asyncio each would cancel the run that it belongs to."""
    steps = [_nap(f"n{i}", 1.0) for i in range(100)]
    steps += [Step(id=f"c{i}", tool="cancels", depends_on=[f"n{i}"]) for i in range(100)]

    result = await run(*steps, _nap("last", 3.0), tools=(make_tool(_cancels_itself, name="cancels", effect="read"),))

    assert set(states(result).values()) == {"succeeded"}


async def _cancels_itself() -> int:
    with contextlib.suppress(RuntimeError):  # trio has nothing like it
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
    return 7


async def test_many_steps_each_cancelled_by_the_one_before() -> None:
    """A step may be hit again and again; it is not its fault, and it ends well once the others are through."""

    async def cancels() -> int:
        await checkpoint()
        try:
            task = asyncio.current_task()
        except RuntimeError:
            return 1  # trio has nothing like it
        assert task is not None
        asyncio.get_running_loop().call_soon(task.cancel)
        return 1

    chain = [Step(id=f"s{i}", tool="cancels", depends_on=(f"s{i - 1}",) if i else ()) for i in range(20)]

    result = await run(*chain, tools=(make_tool(cancels, effect="pure"),), retry=ONCE)

    assert set(states(result).values()) == {"succeeded"}


CALLER = contextvars.ContextVar("CALLER", default="nobody")


async def test_context_variables_come_from_the_host_and_go_nowhere() -> None:
    """Each attempt has a copy: what a tool sets is gone with it, in the next step and in the host."""

    async def sign(name: str) -> str:
        seen = CALLER.get()
        CALLER.set(name)
        await checkpoint()
        assert CALLER.get() == name
        return seen

    chain = [
        Step(id=n, tool="sign", args={"name": n}, depends_on=(p,) if p else ()) for p, n in [("", "a"), ("a", "b")]
    ]
    CALLER.set("host")

    result = await run(*chain, tools=(make_tool(sign, effect="pure"),))

    assert [step.output for step in result.steps.values()] == ["host", "host"]
    assert CALLER.get() == "host"


async def test_what_a_tool_does_to_its_arguments_nobody_else_sees() -> None:
    """Plan, record and other steps hold the value as it was; each consumer has its own copy."""

    async def spoil(rows: list[Any]) -> int:
        rows[0]["total"] = 0
        rows.clear()
        return len(rows)

    original = [{"total": 7}]
    plan = Plan(
        steps=[
            Step(id="load", tool="echo", args={"value": original}),
            Step(id="first", tool="spoil", args={"rows": "${load}"}),
            Step(id="second", tool="echo", args={"value": "${load}"}, depends_on=("first",)),
            Step(id="literal", tool="spoil", args={"rows": original}),
        ]
    )

    results = [await dagrun.run(plan, tools=toolset(make_tool(spoil, effect="pure"))) for _ in range(2)]

    for result in results:  # a plan can be run again, and says the same
        assert result.steps["second"].output == [{"total": 7}]
        result.steps["load"].output.clear()
        assert result.steps["load"].output == original == [{"total": 7}]


async def test_a_tool_that_keeps_what_it_returned_cannot_change_it() -> None:
    kept: list[list[int]] = []

    async def keep() -> list[int]:
        kept.append([1, 2])
        return kept[0]

    async def spoil() -> int:
        kept[0].append(99)
        return 1

    tools = (
        make_tool(keep, effect="pure"),
        make_tool(spoil, effect="pure"),
        make_tool(echo, name="look", effect="pure"),
    )
    steps = [
        Step(id="keep", tool="keep"),
        Step(id="spoil", tool="spoil", depends_on=("keep",)),
        Step(id="look", tool="look", args={"value": "${keep}"}, depends_on=("spoil",)),
    ]

    assert (await run(*steps, tools=tools)).steps["look"].output == [1, 2]


async def test_a_step_that_fails_while_another_hangs_ends_the_run_only_when_both_have_settled() -> None:
    bad = scripted("bad", Takes(1, ValueError("no")))

    result = await run(Step(id="bad", tool="bad"), _nap("hangs", 99.0, timeout=3.0, retry=ONCE), tools=(bad,))

    assert states(result) == {"bad": "failed", "hangs": "timed_out"}
    assert (result.makespan, result.steps["bad"].ended) == (near(3), near(1))
    assert result.steps["bad"].state is State.FAILED
