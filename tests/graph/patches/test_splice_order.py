"""What the run answers after a splice, in which order steps start, and what waves and open requests make of it."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import dagrun
from dagrun import Add, Drop, Event, Patch, Plan, Policy, Replace, Rewire, Status, Step
from dagrun.errors import SpliceRefused
from dagrun.kernel.checks.waves import in_waves
from played import Played
from replans import Thinker, endings, fails, instead, nap, patch, start, uses
from small_tools import SMALL_TOOLS, near, states

pytestmark = pytest.mark.anyio


# What the run answers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("output", ["b", "${b}", {"all": ["${b}", {"$step": "b"}]}])
async def test_the_output_follows_a_substitute(output: Any) -> None:
    async with start([nap("a", 1.0), nap("b", 9.0, "a"), nap("c", 1.0)], None, output=output) as run:
        await run.splice(patch(Replace(id="b", step=nap("b2", 1.0))))
        await anyio.sleep(0.5)
        await run.splice(patch(Replace(id="b2", step=nap("b3", 1.0))))
        result = await run.result()

    assert result.output == ("b3" if isinstance(output, str) else {"all": ["b3", "b3"]})
    assert result.plan.current.output == (
        {"all": ["${b3}", {"$step": "b3"}]} if not isinstance(output, str) else output.replace("b", "b3")
    )


async def test_a_step_that_the_output_names_is_dropped_only_for_another_output() -> None:
    async with start([nap("a", 1.0), nap("b", 9.0)], None, output="${b}") as run:
        with pytest.raises(SpliceRefused, match=r"DR416 edits\[0\].id: the plan's output refers to b"):
            await run.splice(patch(Drop(id="b")))
        await run.splice(patch(Drop(id="b"), output={"only": "${a}"}))
        result = await run.result()

    assert (result.output, result.makespan) == ({"only": "a"}, near(1))


async def test_an_output_alone_is_a_patch() -> None:
    """Null stands for the sinks."""
    async with start([nap("a", 1.0), nap("b", 1.0)], None, output="${b}") as run:
        await run.splice(patch(output="${a}"))
        assert run.plan.current.output == "${a}"
        await run.splice(patch(output=None))
        result = await run.result()

    assert result.output == {"a": "a", "b": "b"}


async def test_sinks_are_those_of_the_plan_at_the_end() -> None:
    """A dropped sink answers nothing, and what stood before it is one, if nothing else waits for it."""
    steps = [nap("a", 1.0), uses("b", "a"), uses("c", "a"), nap("d", 1.0)]

    async with start(steps, None) as run:
        await run.splice(
            patch(Drop(id="b"), Drop(id="c"), Replace(id="d", step=nap("d2", 1.0)), Add(step=uses("e", "d2")))
        )
        result = await run.result()

    assert result.output == {"a": "a", "e": "d2"}


async def test_the_critical_path_is_that_of_the_plan_at_the_end() -> None:
    async with start([nap("a", 1.0), nap("b", 9.0, "a"), nap("c", 2.0)], None) as run:
        await anyio.sleep(0.5)
        await run.splice(patch(Replace(id="b", step=nap("b2", 3.0, "a"))))
        result = await run.result()

    assert (result.critical_path, result.makespan) == (near(4), near(4))


# Order under a limit ----------------------------------------------------------------------------------------


async def _order(*edits: Any, steps: list[Step]) -> list[str]:
    """In which order the steps start, one at a time; the patch comes while the first runs."""
    async with start([nap("first", 1.0, estimate=99.0), *steps], None, max_running=1) as run:
        await anyio.sleep(0.5)
        await run.splice(patch(*edits))
        result = await run.result()
    started = {id_: step.started for id_, step in result.steps.items() if step.started is not None}
    return sorted(started, key=lambda id_: started[id_])[1:]


THREE = [nap("a", 1.0, estimate=3.0), nap("b", 1.0, estimate=2.0), nap("c", 1.0, estimate=1.0)]


async def test_new_steps_make_those_before_them_more_urgent() -> None:
    """Longest remaining path first, with the new steps counted; all three were ready before."""
    tail = Add(step=nap("tail", 1.0, "c", estimate=4.0))

    assert await _order(tail, steps=THREE) == ["c", "tail", "a", "b"]


async def test_steps_that_leave_make_those_before_them_less_urgent() -> None:
    tail = nap("tail", 1.0, "c", estimate=4.0)

    assert await _order(Add(step=nap("x", 1.0, estimate=0.5)), steps=[*THREE, tail]) == ["c", "tail", "a", "b", "x"]
    assert await _order(Drop(id="tail"), steps=[*THREE, tail]) == ["a", "b", "c"]


async def test_steps_that_wait_for_others_now_leave_their_urgency_behind() -> None:
    tail = nap("tail", 1.0, "c", estimate=4.0)

    assert await _order(Rewire(id="tail", depends_on=["b"]), steps=[*THREE, tail]) == ["b", "tail", "a", "c"]


async def test_urgency_goes_all_the_way_up() -> None:
    """Also over steps that are not ready themselves, to a for_each that has not begun."""
    steps = [
        nap("a", 1.0, estimate=3.0),
        Step(id="each", tool="nap", args={"seconds": 1.0}, for_each=[1, 2], estimate=1.0),
        nap("mid", 1.0, "each", estimate=1.0),
        nap("last", 1.0, "mid", estimate=0.5),
    ]

    assert await _order(Drop(id="last"), steps=steps) == ["a", "each[0]", "each[1]", "mid"]
    assert await _order(Add(step=nap("tail", 1.0, "last", estimate=9.0)), steps=steps) == [
        "each[0]", "each[1]", "mid", "last", "tail", "a",
    ]  # fmt: skip


async def test_ready_elements_are_as_urgent_as_their_for_each() -> None:
    """They stand in line already when their for_each becomes less urgent than another step, and more urgent again."""
    each = Step(id="each", tool="nap", args={"seconds": 1.0}, for_each=[1, 2, 3], estimate=10.0)

    async with start([each, nap("a", 1.0, estimate=5.0)], None, max_running=1) as run:
        await anyio.sleep(0.5)
        await run.splice(patch(Add(step=nap("x", 1.0, "a", estimate=20.0))))
        await run.splice(patch(Add(step=nap("y", 1.0, "each", estimate=100.0))))
        result = await run.result()

    assert [result.steps[id_].started for id_ in ("each[0]", "each[1]", "each[2]", "y", "a", "x")] == near(
        [0, 1, 2, 3, 4, 5]
    )


async def test_a_step_that_waits_at_the_limit_of_its_tool_is_ranked_anew() -> None:
    """It stands there, and not in the common line."""
    steps = [nap("first", 1.0, estimate=99.0), *THREE]

    async with start(steps, None, max_running_by_tool={"nap": 1}) as run:
        await anyio.sleep(0.5)
        await run.splice(patch(Add(step=Step(id="tail", tool="echo", args={"value": "${c}"}, estimate=9.0))))
        result = await run.result()

    assert [result.steps[id_].started for id_ in "cab"] == near([1, 2, 3])


async def test_a_step_in_back_off_is_not_hurried_by_a_new_rank() -> None:
    """It is ready, but stands in no line until its time has come."""
    steps = [nap("a", 4.0), Step(id="x", tool="flaky")]
    from dagrun import ToolError
    from small_tools import scripted

    flaky = scripted("flaky", ToolError("busy", retryable=True, retry_after=3), "well")

    async with start(steps, None, flaky, max_running=2) as run:
        await anyio.sleep(1)
        await run.splice(patch(Add(step=uses("tail", "x"))))
        result = await run.result()

    assert [attempt.started for attempt in result.steps["x"].attempts] == near([0, 3])


async def test_a_limit_holds_while_steps_come_and_go() -> None:
    """Never more than two at once, and never a place left empty."""
    async with start([nap(f"s{n}", 1.0) for n in range(6)], None, max_running=2) as run:
        for turn in range(4):
            await anyio.sleep(0.6)
            gone = next(id_ for id_, state in run.states.items() if state == "running")
            await run.splice(patch(Drop(id=gone), Add(step=nap(f"n{turn}", 1.0))))
            assert [str(state) for state in run.states.values()].count("running") <= 2
        result = await run.result()

    spans = [(step.started, step.ended) for step in result.steps.values() if step.started is not None]
    for instant in (0.05 + 0.1 * n for n in range(int(result.makespan * 10))):
        running = sum(1 for begun, ended in spans if begun is not None and begun <= instant < (ended or 0.0))
        assert running == 2 or (running == 1 and instant > result.makespan - 1)


# Waves ------------------------------------------------------------------------------------------------------


def _waves() -> Played:
    plan = Plan(steps=[nap("a", 1.0), nap("b", 2.0), nap("c", 1.0, "a"), nap("d", 1.0, "c")])
    return Played.of(in_waves(dagrun.check(plan, list(SMALL_TOOLS), policy=Policy())))


def test_a_step_of_a_wave_is_dropped_and_the_next_wave_does_not_wait_for_it() -> None:
    """Nobody can rewire the barrier of a wave: it is in no plan."""
    played = _waves()
    played.start("a", "b")
    played.splice(Drop(id="b"))
    played.end("a")

    assert played.states["c"] == "ready"


def test_the_next_wave_waits_for_the_substitute() -> None:
    played = _waves()
    played.succeed("a")
    played.splice(Replace(id="b", step=nap("b2", 1.0)))

    assert played.states["c"] == "waiting"
    played.succeed("b2")
    assert played.states["c"] == "ready"


def test_a_step_that_changes_still_waits_for_whole_steps() -> None:
    """It must not begin with the first element of a `for_each` before it, as it would without waves."""
    played = _waves()
    played.splice(Rewire(id="c", depends_on=[]))

    assert played.graph.nodes["c"].plan.waits_for_all


# Requests to the planner ------------------------------------------------------------------------------------


async def test_what_the_host_repairs_the_planner_need_not() -> None:
    """What it has found by then is thrown away, and the steps behind the failure do not wait for it."""
    seen: list[Event] = []
    planner = Thinker(instead("bad", nap("late", 1.0)), seconds=3.0)

    async with start([fails("bad"), uses("after", "bad"), nap("a", 5.0)], planner, on_event=seen.append) as run:
        await anyio.sleep(1)
        assert run.states["after"] == "blocked"
        did = await run.splice(patch(Replace(id="bad", step=nap("good", 1.0))))
        result = await run.result()

    assert did.unblocked == ("after",)
    assert endings(seen) == [("unchanged", ("bad",))]
    assert states(result) == {"bad": "failed", "after": "succeeded", "a": "succeeded", "good": "succeeded"}
    assert (result.status, result.steps["after"].ended, result.plan.revision) == (Status.SUCCEEDED, near(2), 1)


async def test_the_patch_of_a_planner_is_rebased_over_what_has_ended_since() -> None:
    """It was asked about one failure; meanwhile another step that it wanted to replace has succeeded."""
    edits = (Replace(id="bad", step=uses("good", "slow2")), Replace(id="slow", step=nap("slow2", 1.0)))
    planner = Thinker(Patch(edits=edits), seconds=3.0)

    async with start([fails("bad"), uses("after", "bad"), nap("slow", 2.0)], planner) as run:
        result = await run.result()

    assert states(result) == {"bad": "failed", "after": "succeeded", "slow": "succeeded", "good": "succeeded"}
    assert (result.output, result.makespan) == ("slow", near(3))
    assert result.plan.revisions[0].consequence.fallen == ("slow",)


async def test_a_planner_is_told_that_the_host_was_faster() -> None:
    """Its patch is stale where the host has changed something, and goes back once."""
    first = patch(Replace(id="bad", step=nap("good", 1.0)), Rewire(id="c", depends_on=["good"]))
    second = instead("bad", nap("better", 1.0))
    planner = Thinker(first, second, seconds=2.0)

    async with start([fails("bad"), uses("after", "bad"), nap("a", 3.0), uses("c", "a")], planner) as run:
        await anyio.sleep(1)
        await run.splice(patch(Rewire(id="c", args={"value": ["${a}"]})))
        result = await run.result()

    assert [problem.code for problem in planner.briefs[1].refused[0].problems] == ["DR408"]
    assert (result.steps["after"].output, result.steps["c"].output) == ("better", ["a"])
