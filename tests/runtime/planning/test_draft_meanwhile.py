"""What the host, people and failures do while the first plan is still being written."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import dagrun
from dagrun import Add, Answer, Drop, Event, Patch, Plan, PlanningRule, Policy, RetryRule, Status, Step
from dagrun.errors import CannotPlan
from dagrun.events import RunEnded, Spliced
from draft_steps import NO_TOOL, drafts, nap, send, sender, start
from drafts import GOAL, Says, Writer, run, started, whole
from persons import Person
from pools import Pool
from small_tools import near, scripted, states, toolset

pytestmark = [pytest.mark.anyio, pytest.mark.both_backends]

ENOUGH = [CannotPlan("enough")]


# The host in the middle ----------------------------------------------------------------------------------------------


async def test_a_run_that_an_observer_ends_takes_no_more_steps() -> None:
    """One step has let in another; who sees the first come ends the run, in the middle of that."""
    events: list[Event] = []

    def see(event: Event) -> None:
        events.append(event)
        if isinstance(event, Spliced) and event.consequence.added == ("a",):
            running.cancel()

    script = [nap("long", 50), nap("c", 1, "b"), nap("b", 1, "a"), 1, nap("a"), 1, whole()]
    async with start(Writer(script), on_event=see) as running:
        result = await running.result()

    assert states(result) == {"long": "cancelled", "a": "cancelled"}
    assert isinstance(events[-1], RunEnded)
    assert drafts(events) == ["stopped"]


async def test_a_step_that_the_host_cancels_takes_what_is_written_later_with_it() -> None:
    async with start(Writer([nap("a", 50), 2, nap("b", 1, "a"), nap("c", 1, "b"), 1, whole()])) as running:
        await anyio.sleep(1)
        running.cancel("a")
        result = await running.result()

    assert states(result) == {"a": "cancelled", "b": "skipped", "c": "skipped"}
    assert result.makespan == near(3)


async def test_a_step_of_the_host_may_take_an_id_that_the_planner_wants() -> None:
    """Its plan is then as wrong as if it had used the id twice, and goes back."""
    planner = Writer([2, nap("a"), nap("b", 1, "a"), whole()], [Add(step=nap("other"))])
    async with start(planner) as running:
        await running.splice(Patch(edits=[Add(step=nap("a", 5))]))
        result = await running.result()

    assert {p.code for p in planner.briefs[1].refused[0].problems} == {"DR402"}
    assert states(result) == {"a": "succeeded", "other": "succeeded"}


async def test_a_step_that_the_host_drops_cannot_be_named_any_more() -> None:
    planner = Writer([nap("a", 5), 2, nap("b", 1, "a"), whole()], [Add(step=nap("c"))])
    async with start(planner) as running:
        await anyio.sleep(1)
        await running.splice(Patch(edits=[Drop(id="a")]))
        result = await running.result()

    assert states(result) == {"a": "superseded", "c": "succeeded"}
    assert {p.code for p in planner.briefs[1].refused[0].problems} == {"DR104"}


async def test_an_effect_of_the_host_waits_for_the_plan_as_well() -> None:
    """There is one rule for all: what cannot be taken back waits until it is known what the run does."""
    async with start(Writer([nap("a"), 4, whole()]), sender()) as running:
        await running.splice(Patch(edits=[Add(step=send())]))
        result = await running.result()

    assert started(result) == {"a": near(0), "send": near(4)}


@pytest.mark.parametrize("at", [1, 6], ids=["while it is written", "while it is mended"])
async def test_a_goal_that_changes_meanwhile_freezes_what_waits(at: float) -> None:
    """Nothing of the old plan starts any more, until the planner has answered about the new goal."""
    events: list[Event] = []
    first = [nap("a", 7), nap("b", 1, "a"), send(), 5, NO_TOOL]
    planner = Writer(first, [3, Add(step=nap("mended"))], [3, Drop(id="b"), Add(step=nap("new"))])
    if at == 1:
        planner = Writer(first, [3, Drop(id="b"), Add(step=nap("new"))])
    async with start(planner, sender(), on_event=events.append) as running:
        await anyio.sleep(at)
        await running.change_goal("something else")
        result = await running.result()

    answered = 4 if at == 1 else 11  # the call for the old goal is left at once; a repair is waited for
    assert drafts(events) == ["stopped" if at == 1 else "refused"]
    assert started(result) == {"a": near(0), "b": None, "send": near(answered), "new": near(answered)}
    assert (result.status, result.has_plan) == (Status.SUCCEEDED, True)


async def test_the_end_of_time_ends_the_draft() -> None:
    events: list[Event] = []
    planner = Writer([nap("a", 1), 50])

    result = await run(planner, max_seconds=5, events=events)

    assert (result.status, result.makespan, drafts(events)) == (Status.OVER_BUDGET, near(5), ["stopped"])
    assert planner.closed == 1


@pytest.mark.parametrize("how", ["stop", "escalate"])
async def test_a_failure_that_ends_the_run_ends_the_draft(how: str) -> None:
    fails = Step(id="fails", tool="fail", on_failure="stop" if how == "stop" else "replan")
    policy: dict[str, Any] = (
        {} if how == "stop" else {"last_resort": "escalate", "planning": PlanningRule(replan_on=())}
    )

    result = await run(Writer([1, fails, 50]), **policy)

    assert (result.status, result.makespan) == (Status.FAILED if how == "stop" else Status.ESCALATED, near(1))


# Executors -----------------------------------------------------------------------------------------------------------


async def test_a_step_may_name_an_executor_of_the_host() -> None:
    """Whether it is written bit by bit or at once, it is checked for the same."""
    for planner in (Writer([nap("a", 1, executor="sql"), 1, whole()]), Says(Plan(steps=[nap("a", executor="sql")]))):
        pool = Pool()
        result = await dagrun.run(goal=GOAL, planner=planner, tools=toolset(), executors={"sql": pool})

        assert (result.status, pool.calls, result.problems) == (Status.SUCCEEDED, ["nap"], ())


# Effects -------------------------------------------------------------------------------------------------------------


async def test_a_step_whose_tool_in_reserve_has_an_effect_waits_too() -> None:
    """It only looks, fails, and then would do something: before anybody knows whether the plan is any good."""
    tool, look = sender(), scripted("look", ValueError("no"), effect="read", fallback="send")

    refused = await run(Writer([Step(id="a", tool="look"), 5, NO_TOOL], ENOUGH), tool, look)
    assert (refused.has_plan, look.calls, tool.calls) == (False, [], [])

    result = await run(Writer([Step(id="a", tool="look"), 5, whole()]), tool, look)
    assert (result.status, started(result)["a"], len(tool.calls)) == (Status.SUCCEEDED, near(5), 1)


async def test_an_effect_for_each_element_waits() -> None:
    each = Step(id="each", tool="send", args={"value": "${item}"}, for_each=[1, 2])

    assert started(await run(Writer([each, 5, whole()]), sender()))["each[1]"] == near(5)


# People --------------------------------------------------------------------------------------------------------------


async def test_a_host_who_answers_by_itself_lets_a_doubtful_plan_run() -> None:
    async with start(Writer([nap("a"), send(), 1, whole(confidence=0.4)]), sender(), attended=True) as running:
        await anyio.sleep(10)
        [question] = running.pending
        await running.answer(question, Answer("approve"))
        result = await running.result()

    assert started(result) == {"a": near(0), "send": near(10)}


async def test_a_run_that_ends_takes_its_question_back() -> None:
    events: list[Event] = []
    planner = Writer([send(), whole(confidence=0.4)])
    async with start(planner, sender(), attended=True, on_event=events.append) as running:
        await anyio.sleep(10)
        running.cancel()
        result = await running.result()

    assert (running.pending, result.status, drafts(events)) == ((), Status.CANCELLED, ["stopped"])


@pytest.mark.parametrize("wanted", ["effects", "always"])
async def test_people_are_asked_about_plans_as_about_patches(wanted: str) -> None:
    """With ``effects``, what only looks starts meanwhile, and a plan that only looks is not asked about."""
    person = Person(True, seconds=4)
    looks = await run(Writer([nap("a")]), approver=person, approve_patches=wanted)
    does = await run(Writer([nap("a"), send()]), sender(), approver=person, approve_patches=wanted)

    if wanted == "always":
        assert (started(looks), started(does)) == ({"a": near(4)}, {"a": near(4), "send": near(4)})
        return
    assert (started(looks), started(does), len(person.asked)) == ({"a": near(0)}, {"a": near(0), "send": near(4)}, 1)


async def test_nobody_is_asked_about_a_plan_that_cannot_be_carried_out() -> None:
    """Where all of it is kept back, a planner's own rules are looked at before a person is, not after."""
    person = Person(True)
    planner = Says(Plan(steps=[nap("a", retry=RetryRule(max_attempts=9))]), *ENOUGH)

    result = await run(planner, approver=person, approve_patches="always")

    assert ([p.code for p in result.problems], person.asked) == (["DR412"], [])


@pytest.mark.parametrize("confidence", [None, 0.1])
async def test_nobody_is_asked_about_a_plan_that_will_not_run(confidence: float | None) -> None:
    """Neither about the first one nor about the better one."""
    better = Plan(steps=[nap("a")], confidence=confidence)
    for planner in (Says(better), Says(Plan(steps=[NO_TOOL], confidence=confidence), better)):
        policy = Policy(approve_patches="never" if confidence else "always")
        drafted = await dagrun.draft(GOAL, planner=planner, tools=toolset(), policy=policy)

        assert [step.id for step in drafted.plan.steps] == ["a"]
