"""What becomes of the run when the plan was not changed, and when the run is stopped."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from dagrun import Add, Answer, Brief, CountCritic, Drop, Event, Question, State, Status, Step, ToolContext
from dagrun.events import PatchRefused, ReplanEnded, ReplanStarted, RunEnded
from dagrun.kernel.model.tool import make_tool
from places import unplaced
from replans import Thinker, fails, instead, nap, patch, run, start, uses
from small_tools import near, scripted, states

pytestmark = pytest.mark.anyio


async def _surprises(context: ToolContext) -> str:
    context.surprise("there were none")
    return "none"


SURPRISES = make_tool(_surprises, name="surprises", effect="read")
ODD = Step(id="odd", tool="surprises")

# Each way in which a request can come to nothing, and what the reason says of it.
IN_VAIN = {
    "raises": (ValueError("no idea"), "the planner gave no answer: it raised ValueError: no idea"),
    "has no answer": (None, "the planner leaves the plan as it is"),
    "answers rubbish": (7, "the planner's answer is no patch but a int"),
    "is refused": (patch(Drop(id="nowhere")), "DR401 edits[0].id: 'nowhere' is not in the plan"),
}
in_vain = pytest.mark.parametrize("how", IN_VAIN)


def _planner(how: str, seconds: float = 2.0) -> Thinker:
    return Thinker(*[IN_VAIN[how][0]] * 2, seconds=seconds)


# In vain ----------------------------------------------------------------------------------------------------


@in_vain
async def test_after_a_failure_what_depends_on_it_is_skipped(how: str) -> None:
    """A partial result, and the reason; the rest has not noticed."""
    result = await run([fails("bad"), nap("after", 1.0, "bad"), nap("a", 5.0), nap("b", 1.0, "a")], _planner(how))

    assert states(result) == {"bad": "failed", "after": "skipped", "a": "succeeded", "b": "succeeded"}
    assert (result.status, result.makespan, result.output) == (Status.FAILED, near(6), {"b": "b"})
    assert unplaced(result.reason).startswith(
        f"bad failed: ValueError: no; the plan was not changed: {IN_VAIN[how][1]}"
    )
    assert (result.steps["after"].reason, result.warnings) == ("bad failed", ())


@in_vain
async def test_after_a_surprise_what_depends_on_it_runs_with_a_warning(how: str) -> None:
    """It was no failure; but whoever reads the result is told."""
    planner = _planner(how)

    result = await run([ODD, nap("after", 1.0, "odd")], planner, SURPRISES)

    thinking = 2 * len(planner.briefs)
    assert (result.status, result.steps["after"].started) == (Status.SUCCEEDED, near(thinking))
    [warning] = result.warnings
    assert warning.startswith("odd was surprising (there were none), and the plan was not changed: " + IN_VAIN[how][1])
    assert result.as_dict()["warnings"] == [warning]


async def test_in_doubt_the_reason_says_why_nobody_has_settled_it() -> None:
    pay = scripted("pay", ValueError("no answer"), effect="effectful", needs_approval=False)

    result = await run([Step(id="pay", tool="pay")], Thinker(ValueError("no idea")), pay)

    assert (result.status, unplaced(result.reason)) == (
        Status.UNKNOWN,
        "it is not known whether these took effect: pay; the plan was not changed: "
        "the planner gave no answer: it raised ValueError: no idea",
    )


async def test_a_surprise_that_nobody_is_asked_about_is_a_warning_too() -> None:
    critic = CountCritic("rows", expected=5, factor=9, steps=["load"])
    load = Step(id="load", tool="echo", args={"value": 50})

    result = await run([load, nap("after", 1.0, "load")], None, critics=[critic])

    assert (result.status, result.makespan) == (Status.SUCCEEDED, near(1))
    assert result.warnings[0].startswith("load was surprising (rows: the output: 50, over 9 times the 5 expected)")


async def test_a_surprise_that_was_dealt_with_is_no_warning() -> None:
    result = await run([ODD], Thinker(patch(Add(step=nap("check", 1.0, "odd")))), SURPRISES)

    assert (result.status, result.warnings) == (Status.SUCCEEDED, ())


@pytest.mark.parametrize("how", [how for how in IN_VAIN if how != "has no answer"])
async def test_without_a_plan_for_a_changed_goal_nothing_more_starts(how: str) -> None:
    """What runs, runs to its end: it may have an effect."""
    steps = [nap("a", 2.0), nap("slow", 9.0), nap("b", 1.0, "a"), nap("c", 1.0, "b")]

    async with start(steps, _planner(how)) as handle:
        await anyio.sleep(1)
        await handle.change_goal("something else")
        result = await handle.result()

    assert states(result) == {"a": "succeeded", "slow": "succeeded", "b": "skipped", "c": "skipped"}
    assert (result.status, result.makespan) == (Status.FAILED, near(9))
    assert result.steps["b"].reason.startswith(f"there is no plan for the goal: {IN_VAIN[how][1]}")


async def test_a_changed_goal_may_be_served_by_the_plan_as_it_is() -> None:
    """The planner says so by leaving it; nothing waits any longer than that took."""
    async with start([nap("a", 2.0), nap("b", 1.0, "a")], Thinker(None, seconds=3)) as handle:
        await anyio.sleep(1)
        await handle.change_goal("something else")
        result = await handle.result()

    assert (result.status, result.steps["b"].started, result.plan.goal) == (Status.SUCCEEDED, near(4), "something else")


async def test_a_reason_that_has_nothing_to_do_with_a_failure_is_not_given_for_it() -> None:
    """The planner has let the plan serve another goal; a failure after that is another matter."""
    steps = [nap("a", 5.0), fails("b", "a", on_failure="skip")]

    async with start(steps, Thinker(None)) as handle:
        await anyio.sleep(1)
        await handle.change_goal("something else")
        result = await handle.result()

    assert (result.status, unplaced(result.reason)) == (Status.FAILED, "b failed: ValueError: no")


# Escalation -------------------------------------------------------------------------------------------------


@in_vain
async def test_the_last_resort_may_be_people(how: str) -> None:
    """Nobody could help, so the run ends, and hands over all that is known."""
    planner = _planner(how)
    steps = [nap("done", 1.0), fails("bad", "done"), nap("after", 1.0, "bad"), nap("slow", 60.0)]

    result = await run(steps, planner, last_resort="escalate")

    assert (result.status, result.status.exit_code) == (Status.ESCALATED, 6)
    assert result.makespan == near(1 + 2 * len(planner.briefs))
    assert result.reason.startswith(f"nobody could help with bad; the plan was not changed: {IN_VAIN[how][1]}")
    assert result.handoff is not None
    assert (result.handoff["goal"], result.handoff["done"]) == ("the first goal", ["done"])
    assert [(t["step"], t["state"], unplaced(t["reason"])) for t in result.handoff["tried"]] == [
        ("bad", "failed", "ValueError: no"),
        ("slow", "cancelled", unplaced(result.reason)),
    ]
    assert [(u["step"], u["state"]) for u in result.handoff["undecided"]] == [("after", "skipped")]


async def test_a_repair_needs_no_people() -> None:
    result = await run([fails("bad")], Thinker(instead("bad", nap("good", 1.0))), last_resort="escalate")

    assert (result.status, result.handoff) == (Status.SUCCEEDED, None)


async def test_without_a_planner_people_are_the_last_resort_at_once() -> None:
    result = await run([fails("bad"), nap("slow", 60.0)], None, last_resort="escalate")

    assert (result.status, result.makespan) == (Status.ESCALATED, 0)
    assert unplaced(result.reason) == "bad failed: ValueError: no"


@pytest.mark.parametrize("planner", [None, Thinker(ValueError("no idea"))])
async def test_nobody_is_called_for_what_is_optional(planner: Any) -> None:
    result = await run([fails("bad", optional=True), nap("a", 1.0)], planner, last_resort="escalate")

    assert (result.status, states(result)) == (Status.SUCCEEDED, {"bad": "failed", "a": "succeeded"})


async def test_a_surprise_that_comes_to_nothing_is_not_escalated() -> None:
    result = await run([ODD], Thinker(ValueError("no idea")), SURPRISES, last_resort="escalate")

    assert result.status is Status.SUCCEEDED


async def test_what_the_governor_stops_is_escalated() -> None:
    planner = Thinker(*[lambda brief: instead(brief.triggers[0].step, fails(f"bad{brief.number}"))] * 9)

    result = await run([fails("bad")], planner, last_resort="escalate")

    assert result.status is Status.ESCALATED
    assert result.reason == (
        "nobody could help with bad1; the plan was not changed: "
        "the planner was asked about the very same failure before"
    )


# Stopping ---------------------------------------------------------------------------------------------------


async def test_cancelling_the_run_cancels_the_planner() -> None:
    """At once; no task is left, and every step and every request has its end."""
    planner = Thinker(instead("bad", nap("good", 1.0)), seconds=50)
    events: list[Event] = []

    async with start(
        [fails("bad"), nap("after", 1.0, "bad"), nap("slow", 50.0)], planner, on_event=events.append
    ) as handle:
        await anyio.sleep(2)
        handle.cancel()
        result = await handle.result()

    assert (anyio.current_time(), planner.told_to_stop) == (near(2), 1)
    assert states(result) == {"bad": "failed", "after": "cancelled", "slow": "cancelled"}
    assert result.status is Status.CANCELLED
    assert isinstance(events[-1], RunEnded)
    asked = [e for e in events if isinstance(e, ReplanStarted | ReplanEnded)]
    assert [(type(e), e.number) for e in asked] == [(ReplanStarted, 1), (ReplanEnded, 1)]


@pytest.mark.parametrize("turns", range(5))
@pytest.mark.parametrize("is_asked", [False, True])
async def test_an_answer_in_the_very_instant_of_the_end_changes_nothing(turns: int, is_asked: bool) -> None:
    """Whether the planner, or the person who agrees, is a turn of the loop ahead of the end of the run, or behind."""
    go = anyio.Event()
    events: list[Event] = []

    class Waits:
        async def revise(self, brief: Brief) -> Any:
            if not is_asked:
                await go.wait()
            return instead("bad", nap("good", 1.0))

    async def approver(question: Question) -> bool:
        await go.wait()
        return True

    policy = {"approve_patches": "always" if is_asked else "never"}
    async with start(
        [fails("bad"), nap("slow", 50.0)], Waits(), on_event=events.append, approver=approver, **policy
    ) as handle:
        await anyio.sleep(2)
        go.set()
        for _ in range(turns):
            await checkpoint()
        handle.cancel()
        result = await handle.result()

    applied = states(result).pop("good", None)
    assert states(result) | {"good": applied} == {"bad": "failed", "slow": "cancelled", "good": applied}
    assert applied in (None, "cancelled")
    assert isinstance(events[-1], RunEnded)
    asked = [type(e) for e in events if isinstance(e, ReplanStarted | ReplanEnded | PatchRefused)]
    assert asked == [ReplanStarted, ReplanEnded]


async def test_a_step_that_says_stop_ends_the_planner_too() -> None:
    planner = Thinker(seconds=50)

    result = await run([fails("bad"), nap("a", 2.0), fails("last", "a", on_failure="stop")], planner)

    assert (result.status, result.makespan, planner.told_to_stop) == (Status.FAILED, near(2), 1)
    assert result.reason == "last failed, and its on_failure is stop"


async def test_the_end_of_its_time_ends_the_run_whatever_the_planner_does() -> None:
    result = await run([fails("bad"), nap("after", 1.0, "bad")], Thinker(seconds=50), max_seconds=5)

    assert (result.status, result.makespan) == (Status.OVER_BUDGET, near(5))


async def test_an_error_around_the_run_ends_the_planner() -> None:
    planner = Thinker(seconds=50)

    async def fails_around() -> None:
        async with start([fails("bad")], planner):
            await anyio.sleep(2)
            raise KeyError("mine")

    with pytest.raises(KeyError):
        await fails_around()

    assert (anyio.current_time(), planner.told_to_stop) == (near(2), 1)


async def test_a_blocked_step_can_be_cancelled() -> None:
    """What depends on it is skipped then, and stays so when the failure is repaired."""
    planner = Thinker(instead("bad", nap("good", 1.0)), seconds=5)
    steps = [fails("bad"), nap("one", 1.0, "bad"), nap("two", 1.0, "one"), uses("other", "bad")]

    async with start(steps, planner) as handle:
        await anyio.sleep(1)
        assert handle.states["one"] is State.BLOCKED
        assert handle.cancel("one")
        assert not handle.cancel("one")
        result = await handle.result()

    assert states(result) == {
        "bad": "failed",
        "one": "cancelled",
        "two": "skipped",
        "other": "succeeded",
        "good": "succeeded",
    }
    assert result.steps["two"].reason == "one cancelled"


# People -----------------------------------------------------------------------------------------------------


async def test_people_are_asked_first_and_the_planner_when_they_do_not_know() -> None:
    """An effect in doubt: a person may know; if not, a planner may find a way to look."""
    pay = scripted("pay", ValueError("no answer"), effect="effectful", needs_approval=False)
    planner = Thinker(instead("pay", nap("look", 1.0)))
    asked: list[str] = []

    async def approver(question: Any) -> Answer | None:
        asked.append(question.text)
        return None

    result = await run([Step(id="pay", tool="pay"), uses("report", "pay")], planner, pay, approver=approver)

    words = "took_effect, with its output if it has one; did_not, so it is called again; or unknown."
    assert asked == [f"Did the call of pay by step pay take effect? Answer {words}"]
    assert (planner.kinds, result.output, len(pay.calls)) == ([["unknown_effect"]], "look", 1)
