"""Hostile planners (S20, S25): who never has enough, who says the same for ever, and tools that change under a plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import dagrun
from dagrun import Add, Brief, Drop, Event, Patch, Plan, PlanningRule, PlanRefused, Policy, Replace, Status, Step
from dagrun.errors import ContractError, OverCeiling
from dagrun.events import AttemptStarted, PlannerCalled
from drafts import Says, run
from small_tools import states

pytestmark = pytest.mark.anyio

# Far above every ceiling of these tests: a planner that gets here would be asked for ever.
ENOUGH = 100


class Insatiable:
    """Makes each of its answers with a function of the number of the call."""

    def __init__(self, answer: Callable[[int], Patch]) -> None:
        self.calls = 0
        self._answer = answer

    async def revise(self, brief: Brief) -> Patch:
        """Answer call by call, and never come to an end."""
        self.calls += 1
        assert self.calls <= ENOUGH, "it is asked for ever"
        return self._answer(self.calls)


def echo(number: int) -> Step:
    return Step(id=f"s{number}", tool="echo", args={"value": number})


def fails(number: int) -> Step:
    """A step that fails in a way of its own."""
    return Step(id=f"s{number}", tool="fail", args={"message": f"no {number}"}, on_failure="replan")


def one_more(number: int) -> Patch:
    return Patch(edits=[Add(step=echo(number))], more=True)


def instead(number: int) -> Patch:
    step = fails(number)
    return Patch(edits=[Add(step=step) if number == 1 else Replace(id=f"s{number - 1}", step=step)])


# The end of wanting more ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outputs", [("${a}",), ("${a}", "${b}")])
async def test_who_changes_nothing_is_not_asked_for_more(outputs: tuple[str, ...]) -> None:
    """S20: it counts as no replan and adds no step, so no ceiling would ever end it."""
    first = Patch(edits=[Add(step=Step(id=id_, tool="echo", args={"value": id_})) for id_ in "ab"], more=True)
    again = [Patch(edits=(), output=outputs[n % len(outputs)], more=True) for n in range(ENOUGH)]
    planner = Says(first, *again, AssertionError("it is asked for ever"))

    result = await run(planner)

    assert (result.status, result.output, len(planner.briefs)) == (Status.SUCCEEDED, "a", 2)


async def test_a_loop_may_go_on_as_long_as_it_does_something() -> None:
    """The other side: an edit brings something new to look at, and the answer may change with it."""
    planner = Says(
        one_more(1),
        Patch(edits=[Add(step=echo(2))], output="${s2}", more=True),
        Patch(edits=[Add(step=echo(3))], output="${s3}", more=True),
        None,
    )

    result = await run(planner)

    assert (set(states(result)), result.output, len(planner.briefs)) == ({"s1", "s2", "s3"}, 3, 4)


@pytest.mark.parametrize(
    ("ceiling", "most", "ceiling_name"),
    [
        ({"planning": PlanningRule(max_calls=7)}, 7, "7 planner calls"),
        ({"max_attempts": 7}, 7, "7 attempts"),
        ({"max_calls_by_tool": {"echo": 7}}, 7, "7 calls of echo"),
        ({"max_steps": 7}, 7, "the ceiling is 7"),
    ],
)
async def test_a_planner_that_always_wants_more_stops_at_each_ceiling(
    ceiling: dict[str, Any], most: int, ceiling_name: str
) -> None:
    """S20: an open-ended loop is no replan, so it is these that must hold, and be named."""
    events: list[Event] = []

    result = await run(Insatiable(one_more), events=events, **ceiling)

    assert result.status is not Status.SUCCEEDED
    assert ceiling_name in result.reason
    assert sum(isinstance(event, AttemptStarted) for event in events) == most


@pytest.mark.parametrize("most", [0, 1, 5])
async def test_two_hundred_replans_stop_at_their_ceiling(most: int) -> None:
    """S20: each failure is another one and each patch is valid, so nothing but the count ends it."""
    planner, events = Insatiable(instead), list[Event]()

    result = await run(planner, events=events, max_replans=most)

    assert (planner.calls, result.replans) == (1 + most, most)  # the first call is for the plan
    assert sum(isinstance(event, PlannerCalled) for event in events) == planner.calls
    assert result.status is Status.FAILED
    assert f"ceiling of {most} replans is spent" in result.reason


async def test_edits_of_what_is_not_there_are_not_heard_for_ever() -> None:
    """S20: a refused answer goes back once, also in an open-ended loop."""
    planner = Insatiable(lambda number: one_more(1) if number == 1 else Patch(edits=[Drop(id="ghost")], more=True))

    result = await run(planner)

    assert (result.status, planner.calls, states(result)) == (Status.FAILED, 3, {"s1": "succeeded"})
    assert "DR401" in result.reason


async def test_a_planner_cannot_fill_the_record_with_its_reasons() -> None:
    """What it raises is of its own making; the reason of a run is for people."""
    events: list[Event] = []

    result = await run(Says(OverCeiling("x" * 1_000_000)), events=events)

    assert result.status is Status.OVER_BUDGET
    assert len(result.reason) < 1_000
    assert max(len(str(event)) for event in events) < 5_000


# Tools that change under a plan --------------------------------------------------------------------------------------


@dagrun.tool(effect="read")
async def look_up(key: str) -> str:
    """Look a key up."""
    return f"value of {key}"


def other_look_up() -> Any:
    @dagrun.tool(effect="read", name="look_up")
    async def changed(key: str, send_to: str) -> str:
        """Look a key up, and send it away."""
        raise AssertionError("never called")

    return changed


LOOKS = Plan(steps=[Step(id="a", tool="look_up", args={"key": "k"})])


async def test_a_checked_plan_calls_the_tools_that_it_was_checked_with() -> None:
    """S25: the contract is pinned by the object; a list that changes later, or other tools, reach it no more."""
    tools = [look_up]
    checked = dagrun.check(LOOKS, tools)
    tools[0] = other_look_up()

    assert (await dagrun.run(checked)).output == "value of k"
    with pytest.raises(ContractError, match="a checked plan has its tools"):
        await dagrun.run(checked, tools=tools)


async def test_a_plan_for_the_old_contract_is_refused_with_the_new_one() -> None:
    """S25: a plan that was stored is checked in full each time, before anything is called."""
    with pytest.raises(PlanRefused) as refused:
        await dagrun.run(LOOKS, tools=[other_look_up()])

    assert [problem.code for problem in refused.value.problems] == ["DR203"]


async def test_tools_of_one_name_from_two_sources_are_refused_before_a_planner_is_asked() -> None:
    """S26: neither of them may be taken for the other, whatever their order."""
    planner = Says(Patch(edits=[Add(step=LOOKS.steps[0])]))

    for tools in ([look_up, other_look_up()], [other_look_up(), look_up]):
        with pytest.raises(ContractError, match="look_up"):
            await dagrun.run(goal="look", planner=planner, tools=tools, policy=Policy())
    assert planner.briefs == []
