"""A frozen plan on every way into a run: patches, streams, steps, whole plans, several at once, resumes, retries."""

from __future__ import annotations

from typing import Any, Final

import anyio
import pytest

import dagrun
from dagrun import Event, MemoryJournal, PlanningRule, Policy, StepwisePlanner
from dagrun.events import AttemptStarted, DraftEnded, PatchRefused, Spliced
from dagrun.planners.prompts import prompt_for
from drafts import Writer
from flow_world import Scripted, World, add, patch, plan_of, replace, step
from scripted_model import ScriptedModel

pytestmark = pytest.mark.anyio

FROZEN: Final = Policy(planning=PlanningRule(brief="full"), freeze_plan=True)
OPEN: Final = Policy(planning=PlanningRule(brief="full"))
BILL: Final = step("bill", "read_file", path="bill.txt")
IBAN: Final = {**step("iban", "extract", text="${bill}")}
PAY: Final = step("pay", "send_money", recipient="${iban}")
PLAN: Final = (BILL, IBAN, PAY)
EVIL: Final = add("evil", "send_money", recipient="mallory")
AGAIN: Final = replace("iban", {**IBAN, "id": "iban2"})


async def run(world: World, *answers: Any, policy: Policy = FROZEN, **options: Any) -> dagrun.RunResult:
    """Pay a bill, in a world in which the first look for an account fails, with a planner that gives these answers."""
    known: Any = {"tools": world.tools, "approver": world.person, "policy": policy, **options}
    plan = known.pop("plan", plan_of(*PLAN))
    return await dagrun.run(plan, planner=known.pop("planner", Scripted(*answers)), **known)


def _broken(**others: Any) -> World:
    return World(broken={"extract": "no account"}, **others)


def _codes(events: list[Event]) -> list[list[str]]:
    """The codes of each patch that was refused, and of each that was applied in part."""
    refused = [event.problems for event in events if isinstance(event, PatchRefused)]
    refused += [event.refused for event in events if isinstance(event, Spliced) and event.refused]
    return [[problem.code for problem in problems] for problems in refused]


# Planners -------------------------------------------------------------------------------------------------------------


async def test_a_planner_that_adds_a_call_is_told_why_not_and_asked_once_more() -> None:
    """Its second answer repeats what has failed, and the bill is paid as the plan says."""
    other = replace("iban", {**step("other", "send_money", recipient="mallory"), "depends_on": ["bill"]})
    world, events, planner = _broken(), list[Event](), Scripted(patch(other), patch(AGAIN))

    result = await run(world, planner=planner, on_event=events.append)

    assert (result.status, world.paid) == ("succeeded", ["bill.txt"])
    assert _codes(events) == [["DR427"]]
    (refusal,) = planner.briefs[1].refused
    assert "args.recipient differs from that of pay" in str(refusal.problems[0])


async def test_a_call_beside_a_repair_is_left_out() -> None:
    """What is left repeats what has failed, so the planner need not be asked once more."""
    world, events, planner = _broken(), list[Event](), Scripted(patch(AGAIN, EVIL))

    result = await run(world, planner=planner, on_event=events.append)

    assert (result.status, world.paid) == ("succeeded", ["bill.txt"])
    assert (_codes(events), len(planner.briefs)) == ([["DR427"]], 1)


async def test_nobody_is_asked_about_what_is_refused() -> None:
    """A yes to patches is none to calls that the host has ruled out."""
    world, always = _broken(), FROZEN.model_copy(update={"approve_patches": "always"})

    await run(world, patch(AGAIN, EVIL), policy=always)

    question, *_ = world.asked
    assert str(question.kind) == "patch"
    assert not any("evil" in line for line in question.diff)
    assert world.paid == ["bill.txt"]


async def test_a_whole_plan_as_an_answer_brings_nothing_new() -> None:
    """It is turned into a patch, and that is looked at."""
    world, events = _broken(), list[Event]()
    evil = plan_of(BILL, {**IBAN, "timeout": 9}, PAY, step("evil", "send_money", recipient="mallory"))
    good = plan_of(BILL, {**IBAN, "timeout": 9}, PAY)

    await run(world, evil, good, on_event=events.append)

    assert world.paid == ["bill.txt"]
    assert _codes(events) == [["DR427"]]


async def test_nothing_starts_before_a_streamed_first_plan_is_whole() -> None:
    """Else its author could read before it has written all of it, or be refused and write the rest of it anew."""
    world, events = World(), list[Event]()
    steps = [dagrun.Step.model_validate(one) for one in PLAN]
    bad = dagrun.Step.model_validate(step("z", "no_such_tool"))
    planner = Writer([steps[0], 5.0, bad], [steps[0], 5.0, *steps[1:]])

    result = await dagrun.run(
        goal="pay", planner=planner, tools=world.tools, policy=FROZEN, on_event=events.append, approver=world.person
    )

    assert (result.status, world.paid) == ("succeeded", ["bill.txt"])
    starts = [event.at for event in events if isinstance(event, AttemptStarted)]
    ends = [event.at for event in events if isinstance(event, DraftEnded)]
    assert min(starts) >= 10.0 > ends[0]
    assert [brief.results for brief in planner.briefs] == [{}, {}]


async def test_the_first_step_of_a_stepwise_planner_is_the_plan() -> None:
    """One that writes step by step cannot work under a frozen plan; it is told so, and the run ends."""
    world, events = World(), list[Event]()

    def wants(id_: str, tool: str, **args: Any) -> dict[str, Any]:
        return {"thought": "", "step": {"id": id_, "tool": tool, "args": args}, "confidence": 0.9}

    model = ScriptedModel(wants("look", "read_file", path="x"), *[wants("evil", "send_money", recipient="mallory")] * 2)
    planner = StepwisePlanner(model)

    result = await dagrun.run(
        goal="pay", planner=planner, tools=world.tools, policy=FROZEN, approver=world.person, on_event=events.append
    )

    assert (result.status, world.paid) == ("failed", [])
    assert _codes(events) == [["DR427"], ["DR427"]]
    assert "freeze_plan" in result.reason


async def test_a_new_goal_does_not_thaw_the_plan() -> None:
    """What a planner has read by then would speak in it; a host that wants other calls adds them itself."""
    world, events = World(), list[Event]()

    @dagrun.tool(effect="read")
    async def wait() -> str:
        await anyio.sleep(5)
        return "waited"

    plan = plan_of(step("wait", "wait"))
    planner = Scripted(patch(EVIL), patch(EVIL))
    async with dagrun.start(
        plan, tools=[*world.tools, wait], planner=planner, policy=FROZEN, on_event=events.append
    ) as handle:
        await anyio.sleep(1)
        await handle.change_goal("pay mallory")
        await handle.result()

    assert world.paid == []
    assert _codes(events) == [["DR427"], ["DR427"]]


async def test_of_two_repairs_at_once_one_makes_the_call() -> None:
    """Each is checked at the instant in which it is applied: a payment that one has repeated is no longer open."""
    world, events = World(), list[Event]()

    class Both:
        """Repairs each failure, late, and repeats the payment that has failed beside it."""

        async def revise(self, brief: dagrun.Brief) -> Any:
            own = brief.triggers[0].step
            await anyio.sleep(5 if own == "a" else 6)
            args = brief.steps[own].step.model_dump(exclude_unset=True) | {"id": f"{own}2"}
            again = {**step(f"tip-{own}", "send_money", recipient="ann"), "on_failure": "skip"}
            return patch(replace(own, args), dagrun.Add(step=dagrun.Step.model_validate(again)))

    @dagrun.tool(effect="read")
    async def wait() -> str:
        await anyio.sleep(1)
        return "waited"

    tip = {**step("tip", "send_money", recipient="ann"), "on_failure": "skip"}
    late = {**step("b", "fetch", url="b"), "depends_on": ["slow"]}
    world.broken = {"send_money": "closed", "extract": "no", "fetch": "no"}
    known: Any = {"tools": [*world.tools, wait], "planner": Both(), "on_event": events.append}
    await run(world, plan=plan_of(tip, step("a", "extract", text="of a"), step("slow", "wait"), late), **known)

    assert world.paid == ["ann"]
    assert _codes(events)[0] == ["DR428"]


async def test_a_planner_is_told_that_the_plan_is_frozen() -> None:
    """In the prompt of a change; a first plan is free."""
    world, planner = _broken(), Scripted(patch(AGAIN))
    await run(world, planner=planner)
    (brief,) = planner.briefs

    assert brief.as_dict()["keeps_plan"] is True
    assert "The host of the run has frozen the plan" in prompt_for("replan", "json", brief).messages[0].text

    first = Scripted(plan_of(*PLAN))
    await run(World(), plan=None, goal="pay", planner=first)
    assert not first.briefs[0].keeps_plan


# The host, and what is on record --------------------------------------------------------------------------------------


async def test_the_host_adds_what_it_wants() -> None:
    """Frozen is what the planner may do."""
    world = World()
    async with dagrun.start(plan_of(BILL), tools=world.tools, policy=FROZEN, planner=Scripted()) as handle:
        await handle.splice(patch(add("a", "send_money", recipient="ann")))
        await handle.result()

    assert world.paid == ["ann"]


async def _waiting(world: World, journal: MemoryJournal, *answers: Any, policy: Policy) -> None:
    """Run until somebody is needed, and nobody is there: before the payment, and after the repair."""
    plan = plan_of(BILL, IBAN, {**PAY, "pause": "before"})
    result = await run(world, *answers, plan=plan, policy=policy, journal=journal, run_id="r", approver=None)
    assert (result.status, world.paid) == ("waiting", [])


async def test_a_resumed_run_knows_its_first_plan() -> None:
    """It follows from the record: the repeated step stands for the first one, and a new call is refused."""
    world, journal, events = _broken(), MemoryJournal(), list[Event]()
    await _waiting(world, journal, patch(AGAIN), policy=FROZEN)
    world.broken = {"send_money": "closed"}
    again = {**step("pay2", "send_money", recipient="${iban2}"), "pause": "before"}
    planner = Scripted(patch(replace("pay", again), EVIL), patch(replace("pay", again)))

    async with dagrun.resume(
        "r", journal=journal, tools=world.tools, approver=world.person, planner=planner, on_event=events.append
    ) as handle:
        await handle.result()

    assert world.paid == ["bill.txt"]
    assert _codes(events) == [["DR427"]]


async def test_a_run_that_is_frozen_later_asks_before_what_was_brought_before() -> None:
    """What was accepted is not refused when the record is read back; a person looks at what acts."""
    world, journal = _broken(says=False), MemoryJournal()
    paused = {**step("look", "balance"), "pause": "before"}
    evil = {**step("evil", "send_money", recipient="mallory"), "depends_on": ["look"]}
    brought = [dagrun.Add(step=dagrun.Step.model_validate(one)) for one in (paused, evil)]
    known: Any = {"journal": journal, "run_id": "r", "approver": None}
    result = await run(world, patch(AGAIN, *brought), policy=OPEN, **known)
    assert (result.status, world.paid) == ("waiting", ["bill.txt"])

    with pytest.raises(dagrun.errors.CannotResume, match="freeze_plan"):
        async with dagrun.resume("r", journal=journal, tools=world.tools, policy=FROZEN):
            pass

    async def person(question: dagrun.Question) -> bool:
        world.asked.append(question)
        return str(question.kind) == "pause"

    known = {"tools": world.tools, "policy": FROZEN, "approver": person, "allow_differences": True}
    async with dagrun.resume("r", journal=journal, **known) as handle:
        await handle.result()

    assert world.paid == ["bill.txt"]
    assert [(str(question.kind), question.step) for question in world.asked] == [
        ("pause", "look"),
        ("approval", "evil"),
    ]
    assert "the policy freezes the first plan (freeze_plan)" in world.asked[1].why


async def test_a_retry_asks_before_what_a_planner_had_brought_to_a_plan_that_is_frozen_now() -> None:
    """Its first plan is the one that the planner has left, and a person looks at what acts in that."""
    world, journal = World(broken={"extract": "no", "send_money": "closed"}, says=False), MemoryJournal()
    evil = patch(AGAIN, add("evil", "send_money", recipient="mallory"))
    await run(world, evil, policy=OPEN, journal=journal, run_id="r", plan=plan_of(BILL, IBAN))
    assert (world.paid, world.asked) == ([], [])

    known: Any = {"journal": journal, "tools": world.tools, "approver": world.person}
    async with dagrun.retry("r", policy=FROZEN, allow_differences=True, new_id="r2", **known) as handle:
        await handle.result()

    assert world.paid == []
    assert [question.step for question in world.asked] == ["evil"]
    world.says = True
    async with dagrun.retry("r2", new_id="r3", **known) as handle:
        await handle.result()
    assert world.paid == ["mallory"]
    assert len(world.asked) == 2


async def test_a_retry_of_a_frozen_run_asks_nobody() -> None:
    """All that is in its plan comes from the first one."""
    world, journal = _broken(says=False), MemoryJournal()
    world.broken["send_money"] = "closed"
    await run(world, patch(AGAIN), journal=journal, run_id="r")
    assert world.paid == []

    async with dagrun.retry("r", journal=journal, tools=world.tools, approver=world.person, new_id="r2") as handle:
        await handle.result()

    assert (world.paid, world.asked) == (["bill.txt"], [])


async def test_replays_of_a_frozen_run_come_to_the_same_state() -> None:
    """Nothing but the patches is on record."""
    world, journal = _broken(), MemoryJournal()
    async with dagrun.start(
        plan_of(*PLAN), tools=world.tools, policy=FROZEN, planner=Scripted(patch(AGAIN)), journal=journal, run_id="r"
    ) as handle:
        await handle.result()
        mine = handle._graph.frozen_plan

    theirs = (await dagrun.replay("r", journal=journal)).graph.frozen_plan
    assert mine is not None
    assert theirs is not None
    assert (theirs.origins, list(theirs.calls)) == (mine.origins, list(mine.calls))
    assert theirs.origins["iban2"] == "iban"
