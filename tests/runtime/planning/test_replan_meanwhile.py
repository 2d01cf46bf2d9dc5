"""What happens while the planner thinks: the host changes the goal again, or the plan by itself."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from dagrun import Drop, Event, Plan, PlanningRule, Replace, Status, TriggerKind
from dagrun.errors import ContractError
from replans import Thinker, endings, fails, instead, nap, patch, run, start, uses
from small_tools import near, states

pytestmark = pytest.mark.anyio


# The goal, once more ----------------------------------------------------------------------------------------


async def test_a_goal_that_changes_while_the_planner_thinks_about_another_is_asked_about_next() -> None:
    """The plan for the first of them is not used, however good; nothing starts in between."""
    planner = Thinker(
        patch(Replace(id="b", step=nap("first", 1.0))), patch(Replace(id="b", step=nap("second", 1.0))), seconds=4
    )
    events: list[Event] = []

    async with start([nap("a", 2.0), nap("b", 1.0, "a")], planner, on_event=events.append) as handle:
        await anyio.sleep(1)
        await handle.change_goal("one")
        await anyio.sleep(1)
        await handle.change_goal("two")
        result = await handle.result()

    assert [brief.goal for brief in planner.briefs] == ["one", "two"]
    assert endings(events) == [("unchanged", ()), ("applied", ("",))]
    assert states(result) == {"a": "succeeded", "b": "superseded", "second": "succeeded"}
    assert result.steps["second"].started == near(9)


@pytest.mark.parametrize("first", [ValueError("no idea"), None, patch(Drop(id="nowhere"))])
async def test_a_failure_beside_a_goal_that_changed_again_is_not_lost(first: Any) -> None:
    """However the first request ends, the failure that was in it is asked about once more, with the new goal."""
    repair = [lambda brief: instead("bad", nap(f"good{brief.number}", 1.0))] * 2
    planner = Thinker(instead("zero", nap("one", 1.0)), first, *repair, seconds=4)
    steps = [fails("zero"), nap("a", 1.0), fails("bad", "a"), nap("b", 1.0, "bad", "zero"), nap("slow", 20.0)]

    async with start(steps, planner) as handle:
        await anyio.sleep(2)
        await handle.change_goal("one")
        await anyio.sleep(3)
        await handle.change_goal("two")
        result = await handle.result()

    assert planner.steps[1:3] == [["bad", ""], ["bad", ""]]
    assert [brief.goal for brief in planner.briefs] == ["the first goal", "one"] + ["two"] * (len(planner.briefs) - 2)
    assert (states(result)["b"], result.status) == ("succeeded", Status.SUCCEEDED)


async def test_the_goal_is_the_hosts() -> None:
    """A plan that names another goal does not change it."""
    planner = Thinker(Plan(steps=[nap("good", 1.0)], goal="world peace"))

    result = await run([fails("bad")], planner)

    assert (result.plan.goal, result.status) == ("the first goal", Status.SUCCEEDED)


async def test_nobody_can_change_the_goal_of_a_run_that_cannot_plan() -> None:
    for planner, policy in ((None, {}), (Thinker(), {"planning": PlanningRule(replan_on=[TriggerKind.FAILED])})):
        async with start([nap("a", 1.0)], planner, **policy) as handle:
            with pytest.raises(ContractError, match="only a run with a planner"):
                await handle.change_goal("something else")
            await handle.result()
            assert states(await handle.result()) == {"a": "succeeded"}


# The host is faster -----------------------------------------------------------------------------------------


async def test_a_splice_of_the_host_repairs_what_the_planner_still_thinks_about() -> None:
    """Its answer comes too late, and changes nothing."""
    planner = Thinker(instead("bad", nap("late", 1.0)), seconds=5)
    events: list[Event] = []

    async with start([fails("bad"), uses("report", "bad")], planner, on_event=events.append) as handle:
        await anyio.sleep(1)
        await handle.splice(instead("bad", nap("good", 1.0)))
        result = await handle.result()

    assert endings(events) == [("unchanged", ("bad",))]
    assert (result.output, result.steps["report"].started, result.makespan) == ("good", near(2), near(5))


async def test_a_splice_of_the_host_while_the_planner_is_busy_with_another_step() -> None:
    """What was to be asked about next is not asked about any more."""
    planner = Thinker(instead("bad", nap("one", 1.0)), seconds=5)
    events: list[Event] = []

    steps = [fails("bad"), nap("a", 1.0), fails("worse", "a"), nap("both", 1.0, "bad", "worse")]
    async with start(steps, planner, on_event=events.append) as handle:
        await anyio.sleep(2)
        await handle.splice(instead("worse", nap("two", 1.0)))
        result = await handle.result()

    assert (planner.steps, result.status) == ([["bad"]], Status.SUCCEEDED)
    assert endings(events) == [("repaired", ("worse",)), ("applied", ("bad",))]


async def test_a_patch_is_stale_if_the_host_has_changed_what_it_touches() -> None:
    """The planner looks again, at the plan as it now is."""
    planner = Thinker(
        patch(Replace(id="bad", step=nap("good", 1.0)), Drop(id="after")),
        lambda brief: instead("bad", nap(f"good{brief.revision}", 1.0)),
        seconds=5,
    )

    async with start([fails("bad"), nap("after", 1.0, "bad"), nap("slow", 9.0)], planner) as handle:
        await anyio.sleep(1)
        await handle.splice(instead("after", nap("after2", 1.0)))
        result = await handle.result()

    assert sorted(p.code for p in planner.briefs[1].refused[0].problems) == ["DR401", "DR408"]
    assert (result.status, states(result)["good1"], states(result)["after2"]) == (
        Status.SUCCEEDED,
        "succeeded",
        "succeeded",
    )
