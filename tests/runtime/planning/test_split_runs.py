"""Refusals per edit in runs: what is applied, what is on record, who is told, and when all of a patch is refused."""

from __future__ import annotations

from typing import Any, Final

import anyio
import pytest

import dagrun
from dagrun import Event, Flow, MemoryJournal, PlanningRule, Policy, Problem
from dagrun.events import PatchRefused, Spliced
from dagrun.kernel.graph.patches.check_patch import Splicer
from dagrun.observe.narrative import tell
from flow_world import Scripted, World, add, patch, plan_of, replace, step

pytestmark = pytest.mark.anyio

POLICY: Final = Policy(planning=PlanningRule(brief="full"), flow=Flow(otherwise="refuse"))
BILL: Final = step("bill", "read_file", path="bill.txt")
LOOK: Final = {**step("look", "balance"), "depends_on": ["bill"]}
AGAIN: Final = replace("look", {**LOOK, "id": "look2"})
EVIL: Final = add("evil", "send_money", recipient="mallory")
WHY: Final = (
    "DR502 edits[1].step: step evil: the planner had seen read_file when it wrote the patch; the steps that it adds "
    "may only read, and send_money acts"
)


async def run(world: World, *answers: Any, **options: Any) -> dagrun.RunResult:
    """Look at a bill, in a world in which the look after it fails, with a planner that gives these answers."""
    world.broken = {"balance": "closed"}
    planner = options.pop("planner", Scripted(*answers))
    known: Any = {"tools": world.tools, "approver": world.person, "policy": POLICY, "planner": planner, **options}
    return await dagrun.run(plan_of(BILL, LOOK), **known)


def _applied(events: list[Event]) -> list[Spliced]:
    return [event for event in events if isinstance(event, Spliced)]


async def test_the_repair_is_applied_and_the_call_beside_it_is_not() -> None:
    """At the first answer, and without a question; the event says what was refused, and why."""
    world, events, planner = World(), list[Event](), Scripted(patch(AGAIN, EVIL))

    result = await run(world, planner=planner, on_event=events.append)

    assert (result.status, world.paid, world.asked, len(planner.briefs)) == ("succeeded", [], [], 1)
    (spliced,) = _applied(events)
    assert (spliced.edits, [str(problem) for problem in spliced.refused]) == ((AGAIN,), [WHY])
    assert "evil" not in result.steps


async def test_the_record_holds_what_was_refused_and_a_reader_comes_to_the_same_plan() -> None:
    """So do a resumed run and its page."""
    journal, world = MemoryJournal(), World()
    answer = patch(AGAIN, EVIL, dagrun.Add(step=dagrun.Step(id="ask", tool="balance", pause="after")))

    result = await run(world, answer, journal=journal, run_id="r", approver=None)

    assert result.status == "waiting"
    past = await dagrun.replay("r", journal=journal)
    (spliced,) = _applied(list(past.events))
    assert [str(problem) for problem in spliced.refused] == [WHY]
    assert set(past.graph.nodes) == set(result.steps) == {"bill", "look", "look2", "ask"}
    (told,) = [entry for entry in tell(past.graph, past.events) if entry.event == "Spliced"]
    assert f"refused: {WHY}" in told.details
    async with dagrun.resume("r", journal=journal, tools=world.tools, approver=world.person) as handle:
        assert (await handle.result()).status == "succeeded"
    assert world.paid == []


async def test_the_planner_is_told_with_its_next_request() -> None:
    """It may have counted on what was left out."""
    other = replace("look", {**step("look2", "balance", account="another"), "depends_on": ["bill"]})
    world, planner = World(), Scripted(patch(other, EVIL), patch(replace("look2", {**LOOK, "id": "look3"})))

    class ClosedAgain:
        """A planner beside whom the balance is closed once more."""

        async def revise(self, brief: dagrun.Brief) -> Any:
            world.broken = {"balance": "closed again"} if brief.number == 1 else {}
            return await planner.revise(brief)

    await run(world, planner=ClosedAgain())

    (past,) = planner.briefs[1].past
    assert past.result == "applied"
    assert past.reason.endswith(f"refused: {WHY}")


async def test_after_the_yes_of_a_person_nothing_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have agreed to all of it; a part of it may be something else."""
    world, events, look = World(), list[Event](), Splicer.check

    def check(splicer: Splicer, one: Any, *others: Any) -> Any:
        if world.asked and len(one.edits) == 2:  # what the plan allows has changed while the person looked
            return None, (Problem("DR202", "edits[1].step.tool", {"step": "more", "tool": "balance"}),)
        return look(splicer, one, *others)

    monkeypatch.setattr(Splicer, "check", check)
    more = add("more", "balance")
    policy = POLICY.model_copy(update={"approve_patches": "always"})

    result = await run(world, patch(AGAIN, more), policy=policy, on_event=events.append)

    assert (result.status, len(world.asked)) == ("failed", 1)
    assert [type(event) for event in events if isinstance(event, Spliced | PatchRefused)] == [PatchRefused]


async def test_a_person_is_asked_about_what_is_left() -> None:
    """Nobody needs to look at what will not be."""
    world = World()
    policy = POLICY.model_copy(update={"approve_patches": "always"})

    result = await run(world, patch(AGAIN, EVIL), policy=policy)

    (question,) = world.asked
    assert result.status == "succeeded"
    assert any("look2" in line for line in question.diff)
    assert not any("evil" in line for line in question.diff)


async def test_a_repair_that_is_refused_is_refused_with_all_beside_it() -> None:
    """The planner is asked once more, as it has to repair in another way."""
    world, planner = World(), Scripted(patch(replace("look", dict(EVIL.step)), add("more", "balance")), patch(AGAIN))
    events: list[Event] = []

    result = await run(world, planner=planner, on_event=events.append)

    assert (result.status, len(planner.briefs), len(planner.briefs[1].refused)) == ("succeeded", 2, 1)
    assert "more" not in result.steps
    assert [event.refused for event in _applied(events)] == [()]


async def test_a_tool_that_the_run_lacks_is_handed_to_people_where_the_policy_says_so() -> None:
    """Leaving the edit out would hide it from them."""
    unknown = POLICY.with_fields({"planning": {"unknown_tools": "escalate"}})

    assert (await run(World(), patch(AGAIN, add("x", "no_such_tool")))).status == "succeeded"
    assert (await run(World(), patch(AGAIN, add("x", "no_such_tool")), policy=unknown)).status == "escalated"


async def test_an_answer_to_a_new_goal_is_taken_as_a_whole() -> None:
    """A part of it is not what was asked for."""
    world, events = World(), list[Event]()
    planner = Scripted(patch(add("a", "balance"), EVIL), patch(add("b", "balance")))

    @dagrun.tool(effect="read", untrusted=True)
    async def wait() -> str:
        await anyio.sleep(5)
        return "waited"

    options: Any = {"tools": [*world.tools, wait], "planner": planner, "policy": POLICY, "on_event": events.append}
    async with dagrun.start(plan_of(BILL, step("wait", "wait")), **options) as handle:
        await anyio.sleep(1)
        await handle.change_goal("another one")
        result = await handle.result()

    assert "b" in result.steps
    assert "a" not in result.steps
    assert sum(isinstance(event, PatchRefused) for event in events) == 1


async def test_of_a_whole_plan_the_new_call_is_left_out() -> None:
    """Places are those of the plan that the planner has written."""
    world, events = World(), list[Event]()
    whole = plan_of(BILL, {**LOOK, "timeout": 9}, step("evil", "send_money", recipient="mallory"))

    result = await run(world, whole, on_event=events.append)

    assert (result.status, world.paid) == ("succeeded", [])
    (spliced,) = _applied(events)
    assert [f"{problem.code} {problem.path}" for problem in spliced.refused] == ["DR502 steps[2]"]


async def test_a_refusal_tells_no_secret() -> None:
    """A planner that has got hold of one may write it anywhere."""
    world, events, secret = World(), list[Event](), "s3cr3t-of-the-bank"
    world.broken = {"balance": "closed"}
    known: Any = {"policy": POLICY, "secrets": {"bank": secret}, "on_event": events.append}

    planner = Scripted(patch(AGAIN, add("x", secret)))
    await dagrun.run(plan_of(BILL, LOOK), tools=world.tools, planner=planner, **known)

    (spliced,) = _applied(events)
    (problem,) = spliced.refused
    assert (problem.code, secret in str(problem)) == ("DR201", False)
