"""Each form in which a planner may answer: a patch, a whole plan, edits one by one, and nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from dagrun import Add, Brief, Drop, Event, Plan, Replace, State, Status, Step, ToolContext, ToolError, TriggerKind
from dagrun.events import AttemptEnded, Spliced
from dagrun.kernel.model.tool import make_tool
from dagrun.testing import Takes
from places import unplaced
from replans import Thinker, endings, fails, instead, nap, patch, run, start, uses
from small_tools import near, scripted, states

pytestmark = pytest.mark.anyio


async def _surprises(context: ToolContext) -> int:
    context.surprise("ten times the rows")
    return 10


async def test_a_whole_plan_becomes_a_patch() -> None:
    """What is equal is kept, be it done or running; what differs takes the place of what had its id."""
    steps = [nap("a", 1.0), nap("slow", 5.0), fails("bad", "a"), uses("report", "bad"), nap("extra", 1.0, "report")]
    planner = Thinker(
        Plan(steps=[nap("a", 1.0), nap("slow", 5.0), nap("bad", 1.0, "a"), uses("report", "bad"), nap("new", 1.0, "a")])
    )

    result = await run(steps, planner)

    assert states(result) == {
        "a": "succeeded",
        "slow": "succeeded",
        "bad": "failed",
        "report": "succeeded",
        "extra": "superseded",
        "bad-r1": "succeeded",
        "new": "succeeded",
    }
    assert (result.steps["bad"].substitute, result.makespan) == ("bad-r1", near(5))
    assert result.steps["report"].output == "bad"


async def test_the_plan_that_is_carried_out_already_changes_nothing() -> None:
    """After a changed goal it is the answer that the plan serves that one too."""
    steps = [nap("a", 2.0), nap("b", 1.0, "a")]
    planner, events = Thinker(Plan(steps=steps)), list[Event]()

    async with start(steps, planner, on_event=events.append) as handle:
        await anyio.sleep(1)
        await handle.change_goal("nearly the same")
        result = await handle.result()

    assert (endings(events), len(planner.briefs)) == ([("unchanged", ("",))], 1)
    assert (result.status, result.makespan) == (Status.SUCCEEDED, near(3))


async def test_an_empty_patch_keeps_the_plan_after_a_changed_goal() -> None:
    """A model cannot return `None`; what it can write is a patch without edits."""
    steps = [nap("a", 2.0), nap("b", 1.0, "a")]
    planner, events = Thinker(patch(reason="it serves both goals")), list[Event]()

    async with start(steps, planner, on_event=events.append) as handle:
        await anyio.sleep(1)
        await handle.change_goal("nearly the same")
        result = await handle.result()

    assert (endings(events), len(planner.briefs)) == ([("unchanged", ("",))], 1)
    assert (result.status, states(result)["b"]) == (Status.SUCCEEDED, "succeeded")


async def test_an_empty_patch_keeps_the_plan_after_a_surprise() -> None:
    """The planner is asked once, and what depends on the surprising output runs, with a warning."""
    load = make_tool(_surprises, name="load", effect="read")
    planner = Thinker(patch(reason="ten times the rows are still rows"))

    result = await run([Step(id="load", tool="load"), uses("report", "load")], planner, load)

    assert len(planner.briefs) == 1
    assert states(result) == {"load": "succeeded", "report": "succeeded"}
    [warning] = result.warnings
    assert "the planner keeps the plan as it is: ten times the rows are still rows" in warning


async def test_an_empty_patch_repairs_no_failure() -> None:
    """What has failed does not fit any more; the planner is told so, and asked again."""
    planner = Thinker(patch(), instead("bad", nap("good", 1.0)))

    result = await run([fails("bad"), uses("report", "bad")], planner)

    assert [problem.code for problem in planner.briefs[1].refused[0].problems] == ["DR414"]
    assert (result.status, result.output) == (Status.SUCCEEDED, "good")


async def test_an_empty_patch_with_another_answer_changes_the_plan() -> None:
    load = make_tool(_surprises, name="load", effect="read")
    planner = Thinker(patch(output="load"))

    result = await run([Step(id="load", tool="load"), uses("report", "load")], planner, load, output="report")

    assert result.output == 10


async def test_what_a_whole_plan_says_of_a_step_that_succeeded_meanwhile_comes_too_late() -> None:
    """An effect must not take place a second time because the planner had not heard of the first."""
    send = scripted("send", Takes(2, "sent"), effect="effectful", needs_approval=False)
    planner = Thinker(
        Plan(steps=[Step(id="send", tool="send", args={"value": "other"}), nap("good", 1.0), nap("last", 1.0, "send")]),
        seconds=5,
    )

    result = await run([Step(id="send", tool="send"), fails("bad"), nap("last", 1.0, "send")], planner, send)

    assert len(send.calls) == 1
    assert states(result) == {"send": "succeeded", "bad": "superseded", "last": "succeeded", "good": "succeeded"} | {
        "bad": "failed"
    }
    assert result.status is Status.SUCCEEDED


async def test_an_edit_of_a_step_that_succeeded_meanwhile_falls_away() -> None:
    planner = Thinker(patch(Replace(id="bad", step=nap("good", 1.0)), Drop(id="slow")), seconds=5)
    events: list[Event] = []

    result = await run([fails("bad"), nap("slow", 2.0)], planner, on_event=events.append)

    spliced = next(event for event in events if isinstance(event, Spliced))
    assert (spliced.consequence.fallen, states(result)["slow"]) == (("slow",), "succeeded")


class Streams:
    """A planner that gives its edits one by one, a second apart."""

    def __init__(self, *edits: Any) -> None:
        self._edits = edits
        self.is_closed = False

    async def revise(self, brief: Brief) -> AsyncIterator[Any]:
        """Answer *brief*."""
        try:
            for edit in self._edits:
                await anyio.sleep(1)
                yield edit
        finally:
            self.is_closed = True


async def test_streamed_edits_are_applied_together() -> None:
    planner = Streams(Add(step=nap("before", 1.0)), Replace(id="bad", step=nap("good", 1.0, "before")))
    events: list[Event] = []

    result = await run([fails("bad"), uses("report", "bad")], planner, on_event=events.append)

    assert [event.at for event in events if isinstance(event, Spliced)] == near([2])
    assert (result.status, result.steps["good"].started, result.output) == (Status.SUCCEEDED, near(3), "good")


async def test_nothing_leaves_the_plan_as_it_is() -> None:
    """A failure takes along what depends on it; the reason says that the planner was asked."""
    events: list[Event] = []

    result = await run([fails("bad"), nap("after", 1.0, "bad")], Thinker(None, seconds=2), on_event=events.append)

    assert (states(result), result.makespan) == ({"bad": "failed", "after": "skipped"}, near(2))
    assert endings(events) == [("unchanged", ("bad",))]
    assert (
        unplaced(result.reason)
        == "bad failed: ValueError: no; the plan was not changed: the planner leaves the plan as it is"
    )


async def test_a_substitute_that_fails_otherwise_is_asked_about_again() -> None:
    """That is new evidence."""
    worse = scripted("other", ToolError("no"))
    planner = Thinker(instead("bad", Step(id="worse", tool="other")), instead("worse", nap("good", 1.0)))

    result = await run([fails("bad"), uses("report", "bad")], planner, worse)

    assert (planner.steps, result.output, result.replans) == ([["bad"], ["worse"]], "good", 2)
    assert [r.origin for r in result.plan.revisions] == ["planner", "planner"]


async def test_the_attempt_says_that_the_planner_is_asked() -> None:
    events: list[Event] = []

    await run([fails("bad")], Thinker(), on_event=events.append)

    ended = next(event for event in events if isinstance(event, AttemptEnded))
    assert (str(ended.decision.recovery), ended.decision.trigger) == ("replan", TriggerKind.FAILED)
    assert ended.state is State.FAILED
