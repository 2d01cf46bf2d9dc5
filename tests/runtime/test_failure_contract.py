"""The failure contract, points 1, 2 and 6: what a failure does to the other steps, and what it does not."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import dagrun
from dagrun import Condition, Plan, State, Status, Step, ToolError
from dagrun.kernel.model.outcome import ErrorKind
from dagrun.kernel.model.tool import make_tool
from dagrun.testing import Takes
from places import unplaced
from small_tools import ONCE, fail, nap, near, run, scripted, states, toolset

pytestmark = pytest.mark.anyio


def _nap(id_: str, seconds: float, *after: str, **fields: Any) -> Step:
    return Step(id=id_, tool="nap", args={"seconds": seconds, "gives": id_}, depends_on=after, **fields)


# 1. Independent branches go on ------------------------------------------------------------------------------


async def test_a_failure_leaves_independent_branches_alone() -> None:
    """They run to their own ends, at their own times; what never ran is skipped, and says why."""
    result = await run(
        Step(id="bad", tool="fail"),
        _nap("dependent", 1.0, "bad"),
        _nap("sibling", 1.0),
        _nap("behind", 2.0, "sibling"),
    )

    assert states(result) == {"bad": "failed", "dependent": "skipped", "sibling": "succeeded", "behind": "succeeded"}
    assert result.makespan == near(3)
    assert result.status is Status.FAILED
    assert unplaced(result.reason) == "bad failed: ValueError: no"


async def test_on_failure_stop_ends_the_run() -> None:
    """What runs is cancelled at that moment, what waits never starts, and what has ended stays as it is."""
    bad = scripted("bad", Takes(1, ValueError("no")))
    result = await run(
        Step(id="bad", tool="bad", on_failure="stop"),
        _nap("done", 0.5),
        _nap("sibling", 5.0),
        _nap("behind", 1.0, "sibling"),
        tools=(bad,),
    )

    assert states(result) == {"bad": "failed", "done": "succeeded", "sibling": "cancelled", "behind": "cancelled"}
    assert (result.status, result.makespan) == (Status.FAILED, near(1))
    assert result.reason == "bad failed, and its on_failure is stop"
    assert result.steps["behind"].reason == result.reason


async def test_on_failure_stop_does_not_wait_for_a_back_off() -> None:
    """A step between two attempts is not running; it must be settled all the same, and tried no more."""
    later = scripted("later", ToolError("busy", retryable=True, retry_after=60))
    bad = scripted("bad", Takes(1, ValueError("no")))
    steps = (Step(id="later", tool="later"), Step(id="bad", tool="bad", on_failure="stop"))

    result = await run(*steps, tools=(later, bad))

    assert states(result) == {"later": "cancelled", "bad": "failed"}
    assert (len(later.calls), result.makespan) == (1, near(1))


# 2. Dependents ----------------------------------------------------------------------------------------------


async def test_everything_downstream_of_a_failure_is_skipped_and_names_the_cause() -> None:
    result = await run(
        Step(id="bad", tool="fail"),
        Step(id="uses", tool="echo", args={"value": "${bad}"}),
        _nap("follows", 0.0, "bad"),
        _nap("last", 0.0, "uses"),
    )

    assert states(result) == {"bad": "failed", "uses": "skipped", "follows": "skipped", "last": "skipped"}
    assert result.steps["uses"].reason == "bad failed"
    assert result.steps["last"].reason == "bad failed, so uses was skipped"
    assert not any(result.steps[id_].attempts for id_ in ("uses", "follows", "last"))


async def test_dependents_wait_until_recovery_has_given_up() -> None:
    """Between two attempts a step has not failed yet."""
    flaky = scripted("flaky", ToolError("busy", retryable=True, retry_after=10), 7)
    plan = Plan(steps=[Step(id="flaky", tool="flaky"), Step(id="uses", tool="echo", args={"value": "${flaky}"})])

    async with dagrun.start(plan, tools=toolset(flaky)) as handle:
        await anyio.sleep(5)
        assert handle.states == {"flaky": State.READY, "uses": State.WAITING}
        result = await handle.result()

    assert states(result) == {"flaky": "succeeded", "uses": "succeeded"}
    assert result.output == 7


async def test_a_dependent_of_two_failures_names_the_first() -> None:
    bad = scripted("bad", Takes(1, ValueError("late")))
    steps = (Step(id="late", tool="bad"), Step(id="early", tool="fail"), _nap("both", 0.0, "late", "early"))

    result = await run(*steps, tools=(bad,))

    assert result.steps["both"].reason == "early failed"


async def test_order_only_dependents_run_after_on_failure_skip() -> None:
    """The author of the plan said that it may fail: only those who need its value cannot go on."""
    result = await run(
        Step(id="bad", tool="fail", on_failure="skip"),
        Step(id="uses", tool="echo", args={"value": "${bad}"}),
        _nap("follows", 1.0, "bad"),
        _nap("tidies", 1.0, "uses"),
    )

    assert states(result) == {"bad": "failed", "uses": "skipped", "follows": "succeeded", "tidies": "succeeded"}
    assert result.makespan == near(1)


async def test_a_false_when_skips_and_lets_the_order_go_on() -> None:
    never = Condition(ref="count", op=">", value=5)
    result = await run(
        Step(id="count", tool="echo", args={"value": 3}),
        _nap("maybe", 1.0, when=never),
        Step(id="uses", tool="echo", args={"value": "${maybe}"}),
        _nap("follows", 1.0, "maybe"),
    )

    assert states(result) == {"count": "succeeded", "maybe": "skipped", "uses": "skipped", "follows": "succeeded"}
    assert result.status is Status.SUCCEEDED
    assert result.steps["maybe"].reason.startswith("when: the condition does not hold")
    assert not result.steps["maybe"].attempts


async def test_a_true_when_runs_the_step() -> None:
    holds = Condition(ref="count", op="<", value=5)

    result = await run(Step(id="count", tool="echo", args={"value": 3}), _nap("maybe", 1.0, when=holds))

    assert states(result) == {"count": "succeeded", "maybe": "succeeded"}


@pytest.mark.parametrize(("on_failure", "expected"), [(None, "failed"), ("skip", "failed"), ("default", "succeeded")])
async def test_a_when_that_compares_the_incomparable_fails_the_step(on_failure: Any, expected: str) -> None:
    """A mismatch is a fault of the plan, not a "no": to skip the step silently would hide it."""
    mismatch = Condition(ref="name", op=">", value=5)
    fields: dict[str, Any] = {"default": "spare"} if on_failure == "default" else {}
    result = await run(
        Step(id="name", tool="echo", args={"value": "Ada"}),
        _nap("maybe", 1.0, when=mismatch, on_failure=on_failure, **fields),
    )

    maybe = result.steps["maybe"]
    assert str(maybe.state) == expected
    assert "cannot be compared" in maybe.reason
    assert (maybe.is_default, maybe.attempts) == (on_failure == "default", ())


async def test_a_default_stands_in_and_is_marked() -> None:
    result = await run(
        Step(id="bad", tool="fail", on_failure="default", default={"rows": []}),
        Step(id="uses", tool="echo", args={"value": "${bad.rows}"}),
    )

    bad = result.steps["bad"]
    assert (bad.state, bad.is_default, bad.output) == (State.SUCCEEDED, True, {"rows": []})
    assert bad.failure is not None
    assert bad.failure.kind is ErrorKind.EXCEPTION
    assert (result.output, result.status) == ([], Status.SUCCEEDED)
    assert not result.steps["uses"].is_default


async def test_null_is_a_default_too() -> None:
    result = await run(Step(id="bad", tool="fail", on_failure="default", default=None))

    assert (result.steps["bad"].state, result.steps["bad"].is_default) == (State.SUCCEEDED, True)


@pytest.mark.parametrize("on_failure", ["skip", "default"])
async def test_an_effect_in_doubt_stays_in_doubt(on_failure: Any) -> None:
    """Neither a skip nor a default says whether the letter was sent."""
    send = make_tool(fail, name="send")
    fields: dict[str, Any] = {"default": 1} if on_failure == "default" else {}
    step = Step(id="send", tool="send", on_failure=on_failure, **fields)
    result = await run(step, _nap("follows", 0.0, "send"), tools=(send,))

    assert states(result) == {"send": "unknown", "follows": "skipped"}
    assert (result.status, result.status.exit_code) == (Status.UNKNOWN, 7)


async def test_an_optional_step_may_fail() -> None:
    result = await run(Step(id="bad", tool="fail", optional=True), _nap("good", 0.0))

    assert (result.status, states(result)) == (Status.SUCCEEDED, {"bad": "failed", "good": "succeeded"})


# Success conditions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "state", "kind"),
    [
        ({"rows": 4}, "succeeded", None),
        ({"rows": 3}, "failed", ErrorKind.SUCCESS_CONDITION),
        ({"rows": "many"}, "failed", ErrorKind.CONDITION_MISMATCH),
        ({}, "failed", ErrorKind.CONDITION_MISMATCH),
        ([4], "failed", ErrorKind.CONDITION_MISMATCH),
    ],
)
@pytest.mark.parametrize("effect", ["pure", "effectful"])
async def test_the_success_condition_must_hold(value: Any, state: str, kind: ErrorKind | None, effect: str) -> None:
    """The tool has returned, so even its effect is not in doubt: the step has failed."""
    count = scripted("count", value, effect=effect)
    rule = Condition(ref="count.rows", op=">", value=3)
    steps = (Step(id="count", tool="count", success=rule, retry=ONCE), _nap("follows", 0.0, "count"))

    result = await run(*steps, tools=(count,))

    failure = result.steps["count"].failure
    assert str(result.steps["count"].state) == state
    assert (failure.kind if failure else None) == kind
    assert str(result.steps["follows"].state) == ("succeeded" if state == "succeeded" else "skipped")


# 6. Waiting for a person suspends one step ------------------------------------------------------------------


async def test_without_an_approver_the_run_ends_as_waiting() -> None:
    """The rest of the run goes on; and the tool was never called."""
    send = scripted("send", 1, effect="effectful", needs_approval=True)
    steps = (_nap("load", 1.0), Step(id="send", tool="send", depends_on=("load",)), _nap("after", 0.0, "send"))

    result = await run(*steps, _nap("sibling", 3.0), tools=(send,))

    assert states(result) == {"load": "succeeded", "send": "skipped", "after": "skipped", "sibling": "succeeded"}
    assert result.steps["send"].reason == "no approver"
    assert (result.status, result.status.exit_code) == (Status.WAITING, 5)
    assert result.reason == "nobody was there to approve send"
    assert (send.calls, result.makespan) == ([], near(3))


async def test_a_failure_outweighs_waiting() -> None:
    send = make_tool(nap, name="send", needs_approval=True)
    steps = (Step(id="bad", tool="fail"), Step(id="send", tool="send", args={"seconds": 0.0}))

    assert (await run(*steps, tools=(send,))).status is Status.FAILED
