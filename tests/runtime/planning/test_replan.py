"""Replanning: each reason to ask the planner, what waits meanwhile and what does not, and each form of answer."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from dagrun import (
    Add,
    Condition,
    CountCritic,
    Drop,
    PlanningRule,
    Replace,
    Rewire,
    Status,
    Step,
    ToolContext,
    ToolError,
    TriggerKind,
)
from dagrun.kernel.model.tool import make_tool
from replans import Thinker, fails, instead, nap, patch, run, start, uses
from small_tools import AT_ONCE, near, scripted, states

pytestmark = pytest.mark.anyio


# Why the planner is asked -----------------------------------------------------------------------------------


async def _surprises(context: ToolContext) -> list[int]:
    context.surprise("there were none")
    return []


SURPRISES = make_tool(_surprises, name="surprises", effect="read")


async def test_a_success_condition_that_is_not_met() -> None:
    step = Step(id="clean", tool="echo", args={"value": 3}, success=Condition(ref="clean", op=">", value=5))
    planner = Thinker(instead("clean", nap("clean2", 1.0)))

    result = await run([step, uses("report", "clean")], planner)

    assert (planner.kinds, planner.steps) == ([["success_condition"]], [["clean"]])
    assert states(result) == {"clean": "failed", "report": "succeeded", "clean2": "succeeded"}
    assert (result.status, result.output, result.replans) == (Status.SUCCEEDED, "clean2", 1)


async def test_a_result_that_its_own_tool_finds_surprising() -> None:
    """What was surprising stays as it is; what depends on it can still be changed, and has not begun."""
    planner = Thinker(patch(Drop(id="report"), Add(step=nap("explain", 1.0, "load"))), seconds=2)

    result = await run([Step(id="load", tool="surprises"), uses("report", "load")], planner, SURPRISES)

    assert (planner.kinds, planner.steps) == ([["surprise"]], [["load"]])
    assert states(result) == {"load": "succeeded", "report": "superseded", "explain": "succeeded"}
    assert result.steps["explain"].started == near(2)


async def test_a_verdict_of_a_critic() -> None:
    """Ten times the rows that anybody expected."""
    critic = CountCritic("rows", expected=5, factor=9, steps=["load"])
    load = Step(id="load", tool="echo", args={"value": list(range(50))})
    planner = Thinker(patch(Rewire(id="report", use={"load": "sample"}), Add(step=nap("sample", 1.0, "load"))))

    result = await run([load, uses("report", "load")], planner, critics=[critic])

    assert (planner.kinds, result.output) == ([["surprise"]], "sample")
    assert planner.briefs[0].triggers[0].reason.startswith("rows: ")


async def test_a_critic_that_does_not_pass_it_is_a_condition_that_is_not_met() -> None:
    critic = CountCritic("rows", at_least=1, steps=["load"])
    load = Step(id="load", tool="echo", args={"value": []})
    planner = Thinker(instead("load", nap("other", 1.0)))

    result = await run([load, uses("report", "load")], planner, critics=[critic])

    assert (planner.kinds, result.output) == ([["success_condition"]], "other")


async def test_the_same_step_failing_twice() -> None:
    flaky = scripted("flaky", ToolError("busy", retryable=True))
    planner = Thinker(instead("load", nap("other", 1.0)))

    result = await run([Step(id="load", tool="flaky", retry=AT_ONCE), uses("report", "load")], planner, flaky)

    assert (planner.kinds, len(flaky.calls), result.output) == ([["failed_twice"]], 2, "other")


async def test_a_step_that_cannot_be_reached_any_more() -> None:
    gone = scripted("gone", ToolError("the host is gone", unreachable=True))
    planner = Thinker(instead("load", nap("other", 1.0)))

    result = await run([Step(id="load", tool="gone"), uses("report", "load")], planner, gone)

    assert (planner.kinds, len(gone.calls), result.output) == ([["unreachable"]], 1, "other")


async def test_a_plain_failure() -> None:
    planner = Thinker(instead("load", nap("other", 1.0)))

    result = await run([fails("load"), uses("report", "load")], planner)

    trigger = planner.briefs[0].triggers[0]
    assert (planner.kinds, trigger.error, str(trigger.error_kind)) == ([["failed"]], "ValueError", "exception")
    assert result.output == "other"


async def test_a_failure_before_anything_was_called() -> None:
    """Arguments that cannot be filled in are a failure like any other."""
    planner = Thinker(instead("pick", uses("pick2", "load")))
    pick = Step(id="pick", tool="echo", args={"value": "${load.missing}"})

    result = await run([Step(id="load", tool="echo", args={"value": {"there": 1}}), pick], planner)

    assert (planner.kinds, result.output) == ([["failed"]], {"there": 1})


async def test_an_effect_in_doubt() -> None:
    """The substitute looks whether it took place; that is no proof, so the doubt stays for a person to settle."""
    pay = scripted("pay", ValueError("no answer"), effect="effectful", needs_approval=False)
    planner = Thinker(instead("pay", nap("look", 1.0)))

    result = await run([Step(id="pay", tool="pay"), uses("report", "pay")], planner, pay)

    assert (planner.kinds, len(pay.calls)) == ([["unknown_effect"]], 1)
    assert states(result) == {"pay": "unknown", "report": "succeeded", "look": "succeeded"}
    assert result.status is Status.UNKNOWN


async def test_the_goal_changed_in_mid_run() -> None:
    """What has not started waits for the plan for the new goal; what runs, runs on."""
    planner = Thinker(patch(Replace(id="report", step=nap("letter", 1.0, "load"))), seconds=4)

    async with start([nap("load", 2.0), nap("slow", 9.0), nap("report", 1.0, "load")], planner) as handle:
        await anyio.sleep(1)
        await handle.change_goal("a letter")
        result = await handle.result()

    assert (planner.kinds, planner.steps, planner.asked_at) == ([["goal_changed"]], [[""]], near([1]))
    assert planner.briefs[0].goal == result.plan.goal == "a letter"
    assert planner.briefs[0].triggers[0].reason == "the goal is now: a letter"
    assert (result.steps["letter"].started, result.steps["slow"].ended) == near((5, 9))
    assert states(result) == {"load": "succeeded", "slow": "succeeded", "report": "superseded", "letter": "succeeded"}


# Who decides whether it is asked ----------------------------------------------------------------------------


@pytest.mark.parametrize("on_failure", ["skip", "default", "stop"])
async def test_a_step_that_says_what_to_do_asks_nobody(on_failure: Any) -> None:
    planner = Thinker()
    rest = {"on_failure": on_failure} | ({"default": 1} if on_failure == "default" else {})

    await run([Step(id="odd", tool="surprises", **rest), fails("load", "odd", **rest)], planner, SURPRISES)

    assert planner.briefs == []


# What critics find is tested with them.
NOT_OF_A_STEP = {TriggerKind.GOAL_GIVEN, TriggerKind.GOAL_CHANGED, TriggerKind.NEXT, TriggerKind.CONTRADICTION}


@pytest.mark.parametrize("kind", sorted(set(TriggerKind) - NOT_OF_A_STEP))
async def test_the_policy_says_what_the_planner_is_asked_about(kind: TriggerKind) -> None:
    """Each kind by itself, in a run where all of them happen."""
    tools = (
        SURPRISES,
        scripted("flaky", ToolError("busy", retryable=True)),
        scripted("gone", ToolError("gone", unreachable=True)),
        scripted("pay", ValueError("no answer"), effect="effectful", needs_approval=False),
    )
    steps = [
        Step(
            id="success_condition",
            tool="echo",
            args={"value": 3},
            success=Condition(ref="success_condition", op=">", value=5),
        ),
        Step(id="surprise", tool="surprises"),
        Step(id="failed_twice", tool="flaky", retry=AT_ONCE),
        Step(id="unreachable", tool="gone"),
        fails("failed"),
        Step(id="unknown_effect", tool="pay"),
    ]
    planner = Thinker()

    await run(steps, planner, *tools, planning=PlanningRule(replan_on=[kind]))

    assert (planner.kinds, planner.steps) == ([[kind]], [[kind]])


async def test_without_a_planner_nothing_waits_for_one() -> None:
    result = await run([fails("load", on_failure="replan"), uses("report", "load")], None)

    assert (states(result), result.makespan) == ({"load": "failed", "report": "skipped"}, 0)


# What waits meanwhile, and what does not --------------------------------------------------------------------


async def test_only_what_comes_after_the_failure_waits() -> None:
    """Everything else starts and ends at the very times that it would have without a failure."""
    steps = [
        nap("a", 1.0),
        nap("b", 1.0, "a"),
        nap("c", 1.0, "b"),
        nap("before", 1.0),
        fails("bad", "before"),
        nap("after", 1.0, "bad"),
        nap("both", 1.0, "after", "c"),
    ]
    planner = Thinker(instead("bad", nap("good", 1.0, "before")), seconds=10)

    async with start(steps, planner) as handle:
        await anyio.sleep(2.5)
        frozen = {id_ for id_, view in planner.briefs[0].steps.items() if view.is_frozen}
        meanwhile = {id_: str(handle.states[id_]) for id_ in ("c", "after", "both")}
        result = await handle.result()

    assert frozen == {"after"}
    assert meanwhile == {"c": "running", "after": "blocked", "both": "waiting"}
    assert [result.steps[id_].started for id_ in ("a", "b", "c", "before")] == near([0, 1, 2, 0])
    assert [result.steps[id_].started for id_ in ("good", "after", "both")] == near([11, 12, 13])
    assert result.status is Status.SUCCEEDED


async def test_near_failures_that_come_while_the_planner_thinks_join_the_next_request() -> None:
    """Two requests for three failures that the same step waits for; never two at a time."""
    steps = [fails("first"), nap("a", 1.0), fails("second", "a"), nap("b", 2.0), fails("third", "b")]
    steps.append(nap("all", 1.0, "first", "second", "third"))
    planner = Thinker(
        instead("first", nap("one", 1.0)),
        patch(Replace(id="second", step=nap("two", 1.0, "a")), Replace(id="third", step=nap("three", 1.0, "b"))),
        seconds=5,
    )

    result = await run(steps, planner)

    assert planner.steps == [["first"], ["second", "third"]]
    assert planner.asked_at == near([0, 5])
    assert (result.status, result.replans, result.makespan) == (Status.SUCCEEDED, 2, near(12))


async def test_failures_of_the_same_instant_are_one_request() -> None:
    planner = Thinker()

    await run([fails("a"), fails("b"), fails("c")], planner)

    assert planner.steps == [["a", "b", "c"]]


async def test_elements_of_a_for_each_are_repaired_one_by_one() -> None:
    """The list is whole when the substitutes have their places in it."""
    each = Step(id="load", tool="pick", args={"value": "${item}"}, for_each=[1, 2, 3, 4], on_failure="replan")
    picky = scripted("pick", lambda value: value if value % 2 else _no())
    planner = Thinker(
        lambda brief: patch(
            *(
                Replace(id=t.step, step=Step(id=f"again{n}", tool="echo", args={"value": "${item}"}))
                for n, t in enumerate(brief.triggers)
            )
        )
    )

    result = await run([each, uses("report", "load")], planner, picky)

    assert planner.steps == [["load[1]", "load[3]"]]
    assert (result.status, result.output) == (Status.SUCCEEDED, [1, 2, 3, 4])


def _no() -> None:
    raise ToolError("not even")


async def test_elements_of_a_for_each_that_nobody_repairs_fail_it() -> None:
    each = Step(id="load", tool="pick", args={"value": "${item}"}, for_each=[1, 2, 3, 4])
    picky = scripted("pick", lambda value: value if value % 2 else _no())

    result = await run([each, uses("report", "load")], Thinker(None, seconds=3), picky)

    assert states(result)["load"] == "failed"
    assert states(result)["report"] == "skipped"
    assert "2 of 4 elements did not succeed" in result.reason
