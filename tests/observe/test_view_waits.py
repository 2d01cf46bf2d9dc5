"""Why steps waited, and which steps the end of a run waited for."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import dagrun
from dagrun import Patch, Plan, Policy, PoolLimits, Replace, RetryRule, Step, ToolError, tool
from dagrun.observe.view.document import view_of
from dagrun.observe.view.history import Span
from dagrun.observe.view.shape import RunView, StepFacts
from dagrun.observe.view.waits import Wait, split
from view_runs import play, rich

pytestmark = pytest.mark.anyio


def by_id(view: RunView) -> dict[str, StepFacts]:
    return {step["id"]: step for step in view["steps"]}


def named(view: RunView, key: str = "path") -> list[str]:
    return [view["steps"][n]["id"] for n in view[key]]  # type: ignore[literal-required]


@tool(effect="read")
async def nap(seconds: float, after: Any = None) -> float:
    """Sleep."""
    await anyio.sleep(seconds)
    return seconds


async def test_each_reason_has_its_wait() -> None:
    """A slot, a back-off, a person, the planner: each at the steps that waited for it, and nowhere else."""
    played = await rich()
    steps = by_id(view_of(played.past))

    assert steps["rates"]["waits"] == [["slot", 0.0, 0.3, "max_running"]]
    ((start, end),) = [wait[1:] for wait in steps["moody"]["waits"] if wait[0] == "backoff"]
    assert (start, end) == (0.3, pytest.approx(0.3 + steps["moody"]["attempts"][0]["delay"]))
    assert steps["clean-orders"]["waits"] == [["planner", 0.3, 0.65]]
    assert steps["pay"]["waits"] == [["person", pytest.approx(1.49), pytest.approx(1.89)]]
    assert steps["scores[4]"]["waits"][0][3] == "max_parallel of scores"
    assert steps["big"]["waits"] == steps["total"]["waits"] == []


async def test_sums_are_those_of_the_steps() -> None:
    """The facts about the run add up what the steps say."""
    played = await rich()
    view = view_of(played.past)

    for reason, seconds in view["run"]["waits"].items():
        parts = [end - start for step in view["steps"] for kind, start, end, *_ in step["waits"] if kind == reason]
        assert seconds == pytest.approx(sum(parts)), reason


async def test_path_goes_over_elements_of_a_for_each() -> None:
    """The last element of `scores` ends after `total`, so it is what `pay` has waited for."""
    played = await rich()
    view = view_of(played.past)

    assert named(view) == ["big", "clean-big", "scores", "pay", "check"]
    assert by_id(view)["scores[4]"]["on_path"]
    assert not by_id(view)["total"]["on_path"]
    scores, pay = by_id(view)["scores"]["n"], by_id(view)["pay"]["n"]
    assert view["path_gaps"] == [["slot", pytest.approx(0.14), scores], ["person", pytest.approx(0.4), pay]]


async def test_path_goes_over_a_splice() -> None:
    """What a planner has brought was waited for since the step before it had failed."""

    @tool(effect="read")
    async def fetch(source: str) -> str:
        """Fetch."""
        await anyio.sleep(1)
        if source == "old":
            raise ToolError("gone", unreachable=True)
        return source

    class Planner:
        async def revise(self, brief: dagrun.Brief) -> Patch:
            await anyio.sleep(2)
            return Patch(edits=[Replace(id="a", step=Step(id="a2", tool="fetch", args={"source": "new"}))], reason="r")

    plan = Plan(
        steps=[
            Step(id="a", tool="fetch", args={"source": "old"}),
            Step(id="b", tool="nap", args={"seconds": 1, "after": "${a}"}),
        ]
    )
    view = view_of((await play(plan, [fetch, nap], planner=Planner())).past)

    assert named(view) == ["a", "a2", "b"]
    assert view["path_gaps"] == [["planner", 2.0, by_id(view)["a2"]["n"]]]
    assert by_id(view)["b"]["waits"] == [["planner", 1.0, 3.0]]
    assert view["run"]["makespan"] == 5.0


async def test_planner_is_no_reason_where_another_step_was_waited_for() -> None:
    """The request was over before the other need had ended, so it has delayed nothing."""

    @tool(effect="read")
    async def fetch(source: str) -> str:
        """Fetch."""
        await anyio.sleep(1)
        if source == "old":
            raise ToolError("gone", unreachable=True)
        return source

    class Planner:
        async def revise(self, brief: dagrun.Brief) -> Patch:
            return Patch(edits=[Replace(id="a", step=Step(id="a2", tool="fetch", args={"source": "new"}))], reason="r")

    plan = Plan(
        steps=[
            Step(id="a", tool="fetch", args={"source": "old"}),
            Step(id="slow", tool="nap", args={"seconds": 9}),
            Step(id="b", tool="nap", args={"seconds": 1, "after": ["${a}", "${slow}"]}),
        ]
    )
    view = view_of((await play(plan, [fetch, nap], planner=Planner())).past)

    assert by_id(view)["b"]["waits"] == []
    assert named(view) == ["slow", "b"]


async def test_limit_that_was_full_is_named() -> None:
    """Of several limits the one that was reached."""
    plan = Plan(steps=[Step(id=f"s{n}", tool="nap", args={"seconds": 1}, pool="api") for n in range(3)])
    policy = Policy(max_running=100, pools={"api": PoolLimits(max_running=2)})
    view = view_of((await play(plan, [nap], policy=policy)).past)

    assert by_id(view)["s2"]["waits"] == [["slot", 0.0, 1.0, "pool api"]]


async def test_pause_after_a_step_is_a_wait_for_a_person() -> None:
    """It is the steps behind it that wait."""

    async def approve(question: dagrun.Question) -> bool:
        await anyio.sleep(3)
        return True

    plan = Plan(
        steps=[
            Step(id="a", tool="nap", args={"seconds": 1}, pause="after"),
            Step(id="b", tool="nap", args={"seconds": 1}, depends_on=["a"]),
        ]
    )
    view = view_of((await play(plan, [nap], approver=approve)).past)

    assert by_id(view)["b"]["waits"] == [["person", 1.0, 4.0]]
    assert view["path_gaps"] == [["person", 3.0, 1]]


async def test_question_in_the_middle_of_a_call() -> None:
    """The call goes on meanwhile, and the wait is in it."""

    @tool(effect="read")
    async def ask(context: dagrun.ToolContext) -> Any:
        """Ask a person."""
        await anyio.sleep(1)
        answer = await context.ask("How many?", schema={"type": "integer"})
        await anyio.sleep(1)
        return answer

    async def approve(question: dagrun.Question) -> dagrun.Answer:
        await anyio.sleep(4)
        return dagrun.Answer("approve", value=3)

    view = view_of((await play(Plan(steps=[Step(id="a", tool="ask")]), [ask], approver=approve)).past)

    assert view["steps"][0]["waits"] == [["person", 1.0, 5.0]]
    assert len(view["steps"][0]["attempts"]) == 1


async def test_ready_is_when_the_last_need_had_ended() -> None:
    """Whatever the order in which the needs are named."""
    plan = Plan(
        steps=[
            Step(id="a", tool="nap", args={"seconds": 2}),
            Step(id="b", tool="nap", args={"seconds": 1}),
            Step(id="c", tool="nap", args={"seconds": 1}, depends_on=["a", "b"]),
        ]
    )
    view = view_of((await play(plan, [nap], policy=Policy(retry=RetryRule(max_attempts=1)))).past)

    assert [step["ready"] for step in view["steps"]] == [0.0, 0.0, 2.0]


def test_parts_of_a_wait_cover_it_without_overlap() -> None:
    """The first layer that covers a part has it; neighbours with one reason are one part."""
    layers = [("person", [Span(2, 4)]), ("planner", [Span(3, 6), Span(6, 7)])]

    assert list(split(1, 9, layers)) == [
        Wait("slot", 1, 2),
        Wait("person", 2, 4),
        Wait("planner", 4, 7),
        Wait("slot", 7, 9),
    ]
    assert list(split(3, 3, layers)) == []


async def test_a_pipeline_is_told_by_element() -> None:
    """The path goes through the element that the last one needed, and no wait begins before that is there."""
    fans = [
        Step(id="first", tool="nap", args={"seconds": "${item}"}, for_each=[0.3, 0.1]),
        Step(id="then", tool="nap", args={"seconds": 0.4, "after": "${item}"}, for_each="${first}", max_parallel=1),
    ]
    result = await dagrun.run(Plan(steps=fans), tools=[nap])
    view = view_of(result)
    steps = by_id(view)

    assert named(view) == ["first", "then"]
    assert [id_ for id_, step in steps.items() if step["on_path"]] == ["first", "then", "first[0]", "then[0]"]
    assert steps["then[1]"]["waits"] == []
    assert steps["then[0]"]["waits"] == [["slot", pytest.approx(0.3), pytest.approx(0.5), "max_parallel of then"]]
