"""The failure contract, point 7: a step for each element of a list."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import dagrun
from dagrun import Condition, Plan, RetryRule, RunResult, State, Status, Step, ToolContext, ToolError
from dagrun.kernel.model.tool import make_tool
from places import unplaced
from small_tools import ONCE, near, run, scripted, states, toolset

pytestmark = pytest.mark.anyio


async def divide(by: float) -> float:
    """Take as many seconds as *by*, and fail on 0."""
    await anyio.sleep(by)
    return 12 / by


DIVIDE = make_tool(divide, effect="pure")


def _each(items: Any, **fields: Any) -> Step:
    return Step(id="each", tool="divide", args={"by": "${item}"}, for_each=items, **fields)


async def _divide(items: Any, *others: Step, seconds: float | None = None, **fields: Any) -> RunResult:
    """Divide by each of *items*; the run has *seconds*."""
    return await run(_each(items, **fields), *others, tools=(DIVIDE,), max_seconds=seconds)


async def test_elements_run_side_by_side_and_give_a_list_in_order() -> None:
    result = await _divide([3.0, 1.0, 2.0])

    assert states(result) == dict.fromkeys(["each", "each[0]", "each[1]", "each[2]"], "succeeded")
    assert (result.output, result.makespan) == ([4, 12, 6], near(3))


async def test_the_list_may_come_from_another_step() -> None:
    result = await run(
        Step(id="load", tool="echo", args={"value": {"rows": [{"n": 1.0}, {"n": 2.0}]}}),
        Step(id="each", tool="divide", args={"by": "${item.n}"}, for_each="${load.rows}"),
        Step(id="sum", tool="echo", args={"value": ["${each[1]}", "${each[0]}", "${each}"]}),
        tools=(DIVIDE,),
    )

    assert result.output == [6, 12, [12, 6]]


async def test_one_failed_element_fails_the_step_and_leaves_the_others_alone() -> None:
    """The others run to their ends, and the step says which one it was; who needs the whole list is skipped."""
    uses = [Step(id="uses", tool="echo", args={"value": "${each}"})]
    uses += [Step(id=f"uses{n}", tool="echo", args={"value": f"${{each[{n}]}}"}) for n in range(2)]
    result = await _divide([1.0, 0.0, 3.0], *uses)

    assert states(result) == {
        "each": "failed",
        "uses": "skipped",
        "uses0": "succeeded",
        "uses1": "skipped",
        "each[0]": "succeeded",
        "each[1]": "failed",
        "each[2]": "succeeded",
    }
    each = result.steps["each"]
    assert (
        unplaced(each.reason)
        == "1 of 3 elements did not succeed; [1] failed: ZeroDivisionError: float division by zero"
    )
    [(index, error)] = each.errors
    assert (index, unplaced(error)) == (1, "failed: ZeroDivisionError: float division by zero")
    assert (each.output, result.makespan, result.status) == (None, near(3), Status.FAILED)


async def test_skipped_elements_leave_null_and_an_error_list() -> None:
    result = await _divide(
        [1.0, 0.0, 3.0], Step(id="uses", tool="echo", args={"value": "${each[0]}"}), on_failure="skip"
    )

    each = result.steps["each"]
    assert (each.state, each.output) == (State.SUCCEEDED, [12, None, 4])
    [(index, error)] = each.errors
    assert (index, unplaced(error)) == (1, "failed: ZeroDivisionError: float division by zero")
    assert (each.reason, result.reason) == ("1 of 3 elements failed", "2 succeeded; each: 1 of 3 elements failed")
    assert (result.steps["uses"].output, result.status) == (12, Status.SUCCEEDED)


async def test_defaults_stand_in_for_single_elements() -> None:
    result = await _divide([1.0, 0.0], on_failure="default", default=-1)

    assert result.output == [12, -1]
    assert [result.steps[f"each[{i}]"].is_default for i in (0, 1)] == [False, True]


async def test_an_element_can_stop_the_run() -> None:
    result = await _divide([0.0, 3.0], Step(id="after", tool="nap", args={"seconds": 1.0}), on_failure="stop")

    assert states(result) == {"each": "failed", "each[0]": "failed", "each[1]": "cancelled", "after": "cancelled"}
    assert result.reason == "each[0] failed, and its on_failure is stop"


async def test_an_element_in_doubt_puts_the_step_in_doubt() -> None:
    """Even where failures are tolerated: skipping says nothing about what took effect."""
    send = make_tool(divide, name="send")
    step = Step(id="each", tool="send", args={"by": "${item}"}, for_each=[1.0, 0.0], on_failure="skip")

    result = await run(step, tools=(send,))

    assert states(result) == {"each": "unknown", "each[0]": "succeeded", "each[1]": "unknown"}
    assert result.status is Status.UNKNOWN


async def test_no_elements_are_a_success() -> None:
    result = await _divide([], Step(id="uses", tool="echo", args={"value": "${each}"}))

    assert (states(result), result.output) == ({"each": "succeeded", "uses": "succeeded"}, [])


@pytest.mark.parametrize("value", [{"a": 1}, "text", 7, None])
async def test_what_is_no_list_fails_the_step(value: Any) -> None:
    result = await run(
        Step(id="load", tool="echo", args={"value": value}),
        Step(id="each", tool="divide", args={"by": "${item}"}, for_each="${load}"),
        tools=(DIVIDE,),
    )

    assert states(result) == {"load": "succeeded", "each": "failed"}
    assert result.steps["each"].reason.startswith("for_each needs a list, got ")


@pytest.mark.parametrize(("limit", "makespan"), [(1, 6), (2, 3), (3, 2), (None, 1)])
async def test_max_parallel_is_honoured(limit: int | None, makespan: float) -> None:
    """Six elements of one second; another step is not held up by their limit."""
    result = await _divide([1.0] * 6, Step(id="nap", tool="nap", args={"seconds": 1.0}), max_parallel=limit)

    assert (result.makespan, result.steps["nap"].ended) == (near(makespan), near(1))


async def test_a_failed_element_gives_its_place_to_the_next() -> None:
    result = await _divide([0.0, 0.0, 1.0], max_parallel=1, on_failure="skip")

    assert (result.output, result.makespan) == ([None, None, 12], near(1))


async def test_the_fan_out_has_a_ceiling() -> None:
    """Nothing of it is run, and the reason says both figures."""
    steps = (
        Step(id="load", tool="echo", args={"value": [1.0] * 4}),
        Step(id="each", tool="divide", args={"by": "${item}"}, for_each="${load}"),
    )

    refused = await run(*steps, tools=(DIVIDE,), max_fan_out=3)
    allowed = await run(*steps, tools=(DIVIDE,), max_fan_out=4)

    assert states(refused) == {"load": "succeeded", "each": "failed"}
    assert refused.steps["each"].reason == "ceiling of 3 elements for one for_each: 4 wanted"
    assert allowed.status is Status.SUCCEEDED


async def test_elements_count_as_steps() -> None:
    steps = (
        Step(id="load", tool="echo", args={"value": [1.0] * 4}),
        Step(id="each", tool="divide", args={"by": "${item}"}, for_each="${load}"),
    )

    refused = await run(*steps, tools=(DIVIDE,), max_steps=5)
    allowed = await run(*steps, tools=(DIVIDE,), max_steps=6)

    assert refused.steps["each"].reason == "ceiling of 5 steps is spent: 2 used, 4 more wanted"
    assert allowed.status is Status.SUCCEEDED


@pytest.mark.parametrize("limit", [1, 2, 5])
async def test_elements_count_against_the_limit_of_running_steps(limit: int) -> None:
    result = await run(_each([1.0] * 10), tools=(DIVIDE,), max_running=limit)

    assert result.makespan == near(10 / limit)


async def test_when_is_asked_once_and_before_the_list() -> None:
    no = Condition(ref="load.go", op="==", value=True)
    result = await run(
        Step(id="load", tool="echo", args={"value": {"go": False}}),
        Step(id="each", tool="divide", args={"by": "${item}"}, for_each="${load.rows}", when=no),
        Step(id="after", tool="nap", args={"seconds": 0.0}, depends_on=("each",)),
        tools=(DIVIDE,),
    )

    assert states(result) == {"load": "succeeded", "each": "skipped", "after": "succeeded"}
    assert result.status is Status.SUCCEEDED


async def test_each_element_is_retried_by_itself() -> None:
    seen: list[tuple[str, int]] = []

    async def flaky(n: int, context: ToolContext) -> int:
        seen.append((context.step, context.attempt))
        if n == 2 and context.attempt == 1:
            raise ToolError("busy", retryable=True)
        return n

    step = Step(id="each", tool="flaky", args={"n": "${item}"}, for_each=[1, 2])

    result = await run(step, tools=(make_tool(flaky, effect="read"),), retry=RetryRule(first_delay=0))

    assert result.output == [1, 2]
    assert sorted(seen) == [("each[0]", 1), ("each[1]", 1), ("each[1]", 2)]


async def test_success_is_asked_of_every_element() -> None:
    rule = Condition(ref="each", op="<", value=10)

    result = await _divide([2.0, 1.0], success=rule, on_failure="skip")

    assert result.output == [6, None]


async def test_a_timeout_is_for_each_element() -> None:
    result = await _divide([1.0, 3.0], timeout=2.0, on_failure="skip", retry=ONCE)

    assert (result.output, result.makespan) == ([12, None], near(2))
    assert result.steps["each"].errors == ((1, "timed_out: it took longer than 2 s"),)


async def test_a_run_out_of_time_settles_elements_and_step() -> None:
    result = await _divide([1.0, 9.0], seconds=2.0)

    assert states(result) == {"each": "cancelled", "each[0]": "succeeded", "each[1]": "cancelled"}
    assert result.status is Status.OVER_BUDGET


async def test_one_element_can_be_cancelled_and_all_of_them() -> None:
    plan = Plan(steps=[_each([9.0, 2.0]), Step(id="other", tool="divide", args={"by": "${item}"}, for_each=[9.0, 8.0])])

    async with dagrun.start(plan, tools=toolset(DIVIDE)) as handle:
        await anyio.sleep(1)
        assert handle.cancel("each[0]")
        assert handle.cancel("other")
        result = await handle.result()

    assert states(result) == {
        "each": "cancelled",
        "each[0]": "cancelled",
        "each[1]": "succeeded",
        "other": "cancelled",
        "other[0]": "cancelled",
        "other[1]": "cancelled",
    }
    assert result.makespan == near(2)


async def test_a_list_too_large_to_join_fails_the_step() -> None:
    """Each element keeps to the limit of an output; together they do not keep to that of the policy."""
    long = scripted("long", "x" * 300_000)
    step = Step(id="each", tool="long", args={"value": "${item}"}, for_each=[1, 2, 3, 4])

    result = await run(step, tools=(long,), max_argument_bytes=1 << 20)

    assert states(result)["each"] == "failed"
    assert "max_argument_bytes" in result.steps["each"].reason


async def test_a_hundred_elements_start_at_once() -> None:
    result = await _divide([1.0] * 100)

    assert (result.makespan, result.work) == (near(1), near(100))
    assert result.critical_path == near(1)


async def test_the_deadline_is_that_of_all_elements_together() -> None:
    """It is the deadline of the whole step; an element that has not begun by then is not called any more."""
    result = await _divide([2.0, 2.0, 2.0, 2.0], max_parallel=1, deadline=3.0, on_failure="skip")

    assert result.output == [6.0, None, None, None]
    assert [str(result.steps[f"each[{i}]"].state) for i in range(4)] == ["succeeded", *["timed_out"] * 3]
    assert result.makespan == near(3)
