"""Retries, fallbacks and idempotency keys, at exact times."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import dagrun
from dagrun import RetryRule, State, Status, Step, StepResult, ToolContext, ToolError
from dagrun.kernel.model.outcome import ErrorKind, Recovery
from dagrun.kernel.model.tool import AnyTool, make_tool
from dagrun.testing import StandIn, Takes
from misbehaving import leaves_a_cancellation_behind
from small_tools import AT_ONCE, ONCE, near, run, scripted, states

pytestmark = pytest.mark.anyio

BUSY = ToolError("busy", retryable=True)


def _kinds(step: StepResult) -> list[str]:
    return [str(a.outcome.failure.kind) for a in step.attempts if a.outcome and a.outcome.failure]


def _starts(step: StepResult) -> list[float]:
    return [attempt.started for attempt in step.attempts]


# Retries ----------------------------------------------------------------------------------------------------


async def test_delays_grow_exponentially_with_full_jitter() -> None:
    """The draws are those of the seed: same seed, same times."""
    flaky = scripted("flaky", BUSY, BUSY, Takes(1, 7))
    draw = Random(7).random
    first, second = 8 * draw(), 16 * draw()

    result = await run(
        Step(id="flaky", tool="flaky", retry=RetryRule(max_attempts=3, first_delay=8)), tools=(flaky,), seed=7
    )

    assert _starts(result.steps["flaky"]) == near([0, first, first + second])
    assert result.makespan == near(first + second + 1)
    assert (result.output, result.work) == (7, near(1))


@pytest.mark.parametrize(
    ("error", "kind"),
    [(TimeoutError(), "timeout"), (ConnectionResetError(), "connection"), (BUSY, "tool")],
    ids=["timeout", "connection", "tool"],
)
async def test_transient_failures_are_tried_twice_unless_the_policy_says_more(error: Exception, kind: str) -> None:
    flaky = scripted("flaky", error)

    result = await run(Step(id="flaky", tool="flaky"), tools=(flaky,))

    assert (_kinds(result.steps["flaky"]), states(result)) == ([kind, kind], {"flaky": "failed"})


@pytest.mark.parametrize(
    "error", [ValueError("no"), ToolError("no"), PermissionError(), SystemExit(), ToolError("no", permission=True)]
)
async def test_what_no_retry_cures_is_not_tried_again(error: BaseException) -> None:
    broken = scripted("broken", error)

    await run(Step(id="broken", tool="broken"), tools=(broken,), retry=RetryRule(max_attempts=9))

    assert len(broken.calls) == 1


async def test_the_rule_of_the_step_comes_before_that_of_the_policy() -> None:
    flaky = scripted("flaky", BUSY)

    await run(
        Step(id="flaky", tool="flaky", retry=ONCE), tools=(flaky,), retry=RetryRule(max_attempts=5, first_delay=0)
    )

    assert len(flaky.calls) == 1


@pytest.mark.parametrize("effect", ["read", "idempotent", "effectful"])
async def test_what_the_host_calls_transient_is_tried_again_where_the_effect_allows_it(effect: str) -> None:
    """By the tool, by the rule of the policy, by that of the step; an effect is not made twice by it."""
    by_tool = scripted("by_tool", KeyError("no"), 1, effect=effect, retry_on=KeyError)
    by_rule = scripted("by_rule", KeyError("no"), 1, effect=effect)
    by_step = scripted("by_step", ValueError("no"), 1, effect=effect)
    steps = [Step(id=name, tool=name) for name in ("by_tool", "by_rule")]
    steps.append(Step(id="by_step", tool="by_step", retry=RetryRule(retry_on=[ValueError])))

    result = await run(*steps, tools=(by_tool, by_rule, by_step), retry=RetryRule(retry_on=[LookupError]))

    expected = ("unknown", 1) if effect == "effectful" else ("succeeded", 2)
    assert {(str(step.state), len(step.attempts)) for step in result.steps.values()} == {expected}


async def test_a_plan_that_is_read_from_a_text_does_not_loosen_the_rule_of_the_policy() -> None:
    """A model may have written it; a step that the host makes in Python counts as it is, and any rule may be stricter.

    The plan of a text is within the policy wherever it is seen, so a run that is resumed decides likewise."""
    limit = RetryRule(max_attempts=2, first_delay=1, factor=2, max_delay=4, retry_on=[KeyError])
    loose = RetryRule(max_attempts=9, first_delay=3, factor=3, max_delay=None, retry_on=[KeyError, ValueError])
    strict = RetryRule(max_attempts=1, first_delay=0.5, factor=1, max_delay=2)
    steps = [Step(id="loose", tool="flaky", retry=loose), Step(id="strict", tool="flaky", retry=strict)]
    policy, flaky = dagrun.Policy(retry=limit), scripted("flaky", BUSY)
    host = dagrun.check(dagrun.Plan(steps=steps), [flaky.tool], policy=policy)

    for plan in (host.plan.to_json(), dagrun.read_plan(host.plan.to_json())):
        checked = dagrun.check(plan, [flaky.tool], policy=policy)
        assert [step.retry for step in checked.plan.steps] == [limit, strict]
        assert [checked.steps[name].step.retry for name in ("loose", "strict")] == [limit, strict]
        assert [str(problem) for problem in checked.advice if problem.code == "DR916"] == [
            "DR916 steps[0].retry: step loose asks for 9 attempts, and gets 2, the limit of the policy; only a plan "
            "made in Python may exceed it"
        ]
        result = await dagrun.run(checked)
        assert [len(step.attempts) for step in result.steps.values()] == [2, 1]
    assert [step.step.retry for step in host.steps.values()] == [loose, strict]


async def test_retry_after_is_honoured() -> None:
    flaky = scripted("flaky", ToolError("busy", retryable=True, retry_after=7), 1)

    result = await run(Step(id="flaky", tool="flaky"), tools=(flaky,))

    assert _starts(result.steps["flaky"]) == near([0, 7])


async def test_a_step_that_times_out_is_tried_again() -> None:
    """Each attempt has the whole timeout."""
    slow = scripted("slow", Takes(9), Takes(1.5, "well"))

    result = await run(Step(id="slow", tool="slow", timeout=2.0, retry=AT_ONCE), tools=(slow,))

    step = result.steps["slow"]
    assert (_kinds(step), _starts(step), step.output) == (["timeout"], near([0, 2]), "well")


async def test_a_step_between_two_attempts_holds_no_slot() -> None:
    """With one slot, the back-off of one step is the turn of another."""
    flaky = scripted("flaky", ToolError("busy", retryable=True, retry_after=10), 1)
    steps = (Step(id="flaky", tool="flaky"), Step(id="other", tool="nap", args={"seconds": 10.0}))

    result = await run(*steps, tools=(flaky,), max_running=1)

    assert result.makespan == near(10)
    assert result.steps["other"].started == near(0)


async def test_the_deadline_of_a_step_counts_the_back_off() -> None:
    """An attempt that could only begin after the deadline is not waited for."""
    flaky = scripted("flaky", Takes(1, ToolError("busy", retryable=True, retry_after=4)))

    result = await run(
        Step(id="flaky", tool="flaky", deadline=9.0, retry=RetryRule(max_attempts=9, first_delay=0)), tools=(flaky,)
    )

    assert _starts(result.steps["flaky"]) == near([0, 5])
    assert (result.makespan, states(result)) == (near(6), {"flaky": "failed"})


async def test_the_last_attempt_ends_with_the_deadline() -> None:
    slow = scripted("slow", Takes(9))

    result = await run(
        Step(id="slow", tool="slow", timeout=2.0, deadline=3.0, retry=RetryRule(max_attempts=9, first_delay=0)),
        tools=(slow,),
    )

    assert [a.duration for a in result.steps["slow"].attempts] == near([2, 1])
    assert (states(result), result.steps["slow"].reason) == ({"slow": "timed_out"}, "its deadline of 3 s passed")


async def test_no_attempt_begins_after_the_deadline() -> None:
    """A step that waits for a free slot between two attempts can miss its deadline there: nothing is called then."""
    flaky = scripted("flaky", ToolError("busy", retryable=True, retry_after=1), 7)
    flaky_step = Step(id="flaky", tool="flaky", deadline=3.0, retry=RetryRule(first_delay=0, max_attempts=9))

    result = await run(
        flaky_step, Step(id="long", tool="nap", args={"seconds": 5.0}), tools=(flaky,), max_running=1, seed=1
    )

    assert result.steps["flaky"].state is State.TIMED_OUT
    assert result.steps["flaky"].reason == "its deadline of 3 s passed before it could begin"
    assert len(flaky.calls) == 1


async def test_the_deadline_starts_with_the_first_attempt() -> None:
    """Time spent waiting for others, or for a slot, is not the step's."""
    steps = [Step(id=f"s{i}", tool="nap", args={"seconds": 2.0}, deadline=3.0) for i in range(3)]

    result = await run(*steps, max_running=1)

    assert set(states(result).values()) == {"succeeded"}


async def test_usage_of_every_attempt_is_counted() -> None:
    async def spends(context: ToolContext) -> int:
        context.report_usage(tokens=10, cost=0.25)
        if context.attempt == 1:
            raise BUSY
        return context.attempt

    result = await run(Step(id="spends", tool="spends"), tools=(make_tool(spends, effect="read"),), retry=AT_ONCE)

    assert (result.tokens, result.cost, result.output) == (20, 0.5, 2)


# Effects ----------------------------------------------------------------------------------------------------


def _with_key(name: str, *acts: Any, effect: str) -> tuple[AnyTool, list[str]]:
    """A tool that plays *acts*, and notes its idempotency key at each call."""
    keys: list[str] = []
    script = list(acts)

    async def takes(context: ToolContext) -> Any:
        keys.append(context.idempotency_key)
        act = script.pop(0) if len(script) > 1 else script[0]
        if isinstance(act, BaseException):
            raise act
        return act

    return make_tool(takes, name=name, effect=effect), keys


async def test_idempotent_calls_are_repeated_with_the_same_key() -> None:
    pay, keys = _with_key("pay", TimeoutError(), ConnectionResetError(), 1, effect="idempotent")
    rule = RetryRule(max_attempts=3, first_delay=0)

    result = await run(Step(id="one", tool="pay"), Step(id="two", tool="pay"), tools=(pay,), retry=rule)

    assert set(states(result).values()) == {"succeeded"}
    assert (len(keys), len(set(keys))) == (4, 2)  # two failures were somebody's first attempts; a key for each step


async def test_idempotent_is_unknown_once_its_attempts_are_spent() -> None:
    pay, keys = _with_key("pay", TimeoutError(), effect="idempotent")

    result = await run(Step(id="pay", tool="pay"), tools=(pay,), retry=AT_ONCE)

    assert (states(result), result.status) == ({"pay": "unknown"}, Status.UNKNOWN)
    assert (len(keys), len(set(keys))) == (2, 1)


async def test_the_key_depends_on_the_run() -> None:
    pay, keys = _with_key("pay", 1, effect="idempotent")

    for _ in range(2):
        await run(Step(id="pay", tool="pay"), tools=(pay,))

    assert len(set(keys)) == 2


@pytest.mark.parametrize("effect", ["effectful", None])
@pytest.mark.parametrize("error", [TimeoutError(), ConnectionResetError(), ValueError("no")])
async def test_an_effectful_call_of_unknown_outcome_is_never_repeated(error: Exception, effect: Any) -> None:
    """A tool that declares nothing is taken for effectful."""
    send = scripted("send", error, 1, effect=effect)

    result = await run(Step(id="send", tool="send"), tools=(send,), retry=RetryRule(max_attempts=9, first_delay=0))

    assert (states(result), len(send.calls)) == ({"send": "unknown"}, 1)


async def test_an_effectful_call_that_surely_did_nothing_is_repeated() -> None:
    send = scripted("send", BUSY, 1, effect="effectful")

    result = await run(Step(id="send", tool="send"), tools=(send,), retry=AT_ONCE)

    assert (states(result), len(send.calls)) == ({"send": "succeeded"}, 2)


async def test_arguments_that_do_not_fit_leave_no_effect_in_doubt() -> None:
    """The tool was never entered."""

    async def send(to: str) -> None:
        raise AssertionError

    steps = (
        Step(id="who", tool="echo", args={"value": {"name": 7}}),
        Step(id="send", tool="send", args={"to": "${who.name}"}),
        Step(id="lost", tool="send", args={"to": "${who.address}"}),
    )

    result = await run(*steps, tools=(make_tool(send),))

    assert states(result) == {"who": "succeeded", "send": "failed", "lost": "failed"}
    assert {_kinds(result.steps[id_])[0] for id_ in ("send", "lost")} == {"bad_arguments"}
    assert "address" in result.steps["lost"].reason


# Fallback ---------------------------------------------------------------------------------------------------


def _fall_back(main: StandIn, **fields: Any) -> Step:
    return Step(id="step", tool=main.tool.name, args={"value": {"n": 1}}, fallback="spare", **fields)


async def test_the_fallback_gets_the_same_arguments_after_the_last_attempt() -> None:
    main, spare = scripted("main", BUSY), scripted("spare", "saved")

    result = await run(_fall_back(main), tools=(main, spare), retry=AT_ONCE)

    step = result.steps["step"]
    assert [a.tool for a in step.attempts] == ["main", "main", "spare"]
    assert main.calls == [{"value": {"n": 1}}] * 2
    assert spare.calls == [{"value": {"n": 1}}]
    assert (step.output, step.state, step.failure, result.status) == ("saved", State.SUCCEEDED, None, Status.SUCCEEDED)


@pytest.mark.parametrize("effect", ["effectful", "idempotent"])
async def test_no_fallback_after_a_possible_effect(effect: str) -> None:
    main, spare = scripted("main", ValueError("no"), effect=effect), scripted("spare", "saved")

    result = await run(_fall_back(main), tools=(main, spare))

    assert (states(result), spare.calls) == ({"step": "unknown"}, [])


async def test_a_fallback_after_an_effectful_tool_that_vouches() -> None:
    main = scripted("main", ToolError("no"), effect="effectful")
    spare = scripted("spare", "sent", effect="effectful")

    result = await run(_fall_back(main), tools=(main, spare))

    assert (states(result), result.output) == ({"step": "succeeded"}, "sent")


async def test_the_fallback_has_attempts_of_its_own_and_is_the_last_word() -> None:
    """It may be flaky itself; when it has failed, the main tool is not asked again."""
    main, spare = scripted("main", ValueError("no")), scripted("spare", BUSY)

    result = await run(_fall_back(main), tools=(main, spare), retry=AT_ONCE)

    step = result.steps["step"]
    assert [a.tool for a in step.attempts] == ["main", "spare", "spare"]
    assert [a.decision.recovery for a in step.attempts if a.decision] == [
        Recovery.FALL_BACK,
        Recovery.RETRY,
        Recovery.GIVE_UP,
    ]
    assert states(result) == {"step": "failed"}


async def test_on_failure_comes_after_the_fallback() -> None:
    main, spare = scripted("main", ValueError("no")), scripted("spare", ValueError("no"))

    result = await run(_fall_back(main, on_failure="default", default=7), tools=(main, spare))

    assert (result.output, len(spare.calls)) == (7, 1)


async def test_the_fallback_of_the_tool_is_used_where_the_step_names_none() -> None:
    main, spare = scripted("main", ValueError("no"), fallback="spare"), scripted("spare", "saved")

    result = await run(Step(id="step", tool="main"), tools=(main, spare))

    assert result.output == "saved"


async def test_a_fallback_with_effects_that_times_out_is_in_doubt() -> None:
    """The effect is that of the tool that was called, not of the one that was planned."""
    main, spare = scripted("main", ValueError("no")), scripted("spare", Takes(9), effect="effectful", timeout=1.0)

    result = await run(_fall_back(main), tools=(main, spare))

    assert (states(result), result.makespan) == ({"step": "unknown"}, near(1))
    assert result.steps["step"].failure is not None
    assert result.steps["step"].failure.kind is ErrorKind.TIMEOUT


async def test_a_fallback_that_needs_approval_does_not_slip_through() -> None:
    """Nobody has approved it, however harmless the tool was that it stands in for."""
    main, spare = scripted("main", ValueError("no")), scripted("spare", 1, effect="effectful", needs_approval=True)

    result = await run(_fall_back(main), tools=(main, spare))

    assert (states(result), spare.calls) == ({"step": "skipped"}, [])
    assert (result.steps["step"].reason, result.status) == ("no approver", Status.WAITING)


async def test_a_fallback_with_effects_has_a_worker_of_its_own(anyio_backend_name: str) -> None:
    """What an earlier step left behind on a worker must not put an effect in doubt."""
    if anyio_backend_name != "asyncio":
        pytest.skip("trio's tasks cannot be cancelled from anywhere")
    leaves = make_tool(leaves_a_cancellation_behind, name="leaves", effect="read")
    main, spare = scripted("main", ValueError("no")), scripted("spare", Takes(1, "sent"), effect="effectful")

    result = await run(Step(id="first", tool="leaves"), _fall_back(main), tools=(leaves, main, spare), max_running=1)

    assert states(result) == {"first": "succeeded", "step": "succeeded"}
