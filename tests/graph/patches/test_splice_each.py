"""Splices into a for_each: its elements, their substitutes, the whole of it; and its end, which must always come."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import anyio
import pytest

from dagrun import Add, Condition, Drop, Replace, Rewire, State, Status, Step, ToolError
from dagrun.errors import SpliceRefused
from dagrun.kernel.model.tool import make_tool
from dagrun.testing import Takes
from replans import Thinker, endings, fails, nap, patch, start, uses
from small_tools import near, scripted, states

pytestmark = pytest.mark.anyio


def _each(seconds: list[float], **fields: Any) -> Step:
    """A for_each whose elements take as long as the list says, and give that."""
    return Step(id="load", tool="nap", args={"seconds": "${item}", "gives": "${item}"}, for_each=seconds, **fields)


def _instead(index: int, **fields: Any) -> Replace:
    """A substitute for one element, that takes a second and gives the element and a word."""
    args = {"seconds": 1.0, "gives": ["${item}", "new"]}
    return Replace(id=f"load[{index}]", step=Step(id="x", tool="nap", args=args, **fields))


# One element ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("parallel", "state"), [(1, "ready"), (None, "running")])
async def test_a_dropped_element_leaves_a_null_and_an_error(parallel: int | None, state: str) -> None:
    """The others, and what uses the list, go on as if it had never been there."""
    async with start([_each([2.0, 1.0, 3.0], max_parallel=parallel), uses("sum", "load")], None) as run:
        await anyio.sleep(0.5)
        assert run.states["load[2]"] == state
        did = await run.splice(patch(Drop(id="load[2]")))
        result = await run.result()

    assert (did.dropped, did.cancelled) == (("load[2]",), ("load[2]",) if state == "running" else ())
    assert (result.output, result.status) == ([2.0, 1.0, None], Status.SUCCEEDED)
    [(index, reason)] = result.steps["load"].errors
    assert (index, reason.partition(":")[0]) == (2, "superseded")
    assert result.makespan == near(3 if parallel else 2)


@pytest.mark.parametrize("seconds", [2.0, 0.25], ids=["one runs", "all have ended"])
async def test_a_failed_element_is_dropped_while_the_planner_thinks(seconds: float) -> None:
    """Somebody has decided that it is not needed: then its for_each succeeds without it."""
    step = Step(id="load", tool="flaky", args={"value": "${item}"}, for_each=[0, 1])
    flaky = scripted("flaky", lambda value: _fail_or_wait(value, seconds))
    planner = Thinker(seconds=5.0)

    async with start([step, uses("sum", "load")], planner, flaky) as run:
        await anyio.sleep(1)
        assert run.states["load[0]"] == "failed"
        await run.splice(patch(Drop(id="load[0]")))
        result = await run.result()

    assert (result.output, result.status) == ([None, "well"], Status.SUCCEEDED)
    assert result.makespan == near(5)  # the planner was being asked, and that it is not needed any more it learns then


async def _wait(seconds: float) -> str:
    await anyio.sleep(seconds)
    return "well"


def _fail_or_wait(value: int, seconds: float) -> Any:
    if value == 0:
        raise ToolError("no")
    return "well"


@pytest.mark.parametrize("state", ["ready", "running", "failed"])
async def test_the_substitute_of_an_element_gets_the_element(state: str) -> None:
    """Its output stands where that of the old one would have stood."""
    fields: dict[str, Any] = {"max_parallel": 1} if state == "ready" else {}
    planner = Thinker(seconds=1.5)
    seconds: list[Any] = [2.0, 2.5, "bad" if state == "failed" else 7.0]

    async with start([_each(seconds, **fields), uses("sum", "load")], planner) as run:
        await anyio.sleep(1)
        assert run.states["load[2]"] == state
        did = await run.splice(patch(_instead(2)))
        result = await run.result()

    assert (did.replaced, did.added) == ({"load[2]": "x"}, ("x",))
    assert result.output == [2.0, 2.5, [seconds[2], "new"]]
    assert (result.steps["load"].errors, result.status) == ((), Status.SUCCEEDED)
    assert result.makespan == near(5.5 if state == "ready" else 2.5)


async def test_the_last_open_element_ends_its_for_each_when_it_is_dropped() -> None:
    async with start([_each([1.0, 9.0, 8.0], on_failure="skip"), uses("sum", "load")], None) as run:
        await anyio.sleep(2)
        await run.splice(patch(Drop(id="load[1]"), Drop(id="load[2]")))
        result = await run.result()

    assert (result.output, result.makespan) == ([1.0, None, None], near(2))


async def test_a_substitute_can_be_replaced_in_turn() -> None:
    async with start([_each([1.0, 9.0])], None) as run:
        await anyio.sleep(0.5)
        await run.splice(patch(_instead(1)))
        await anyio.sleep(0.25)
        again = Step(id="x2", tool="nap", args={"seconds": 3.0, "gives": "${item}"})
        await run.splice(patch(Replace(id="x", step=again)))
        result = await run.result()

    assert (result.output, result.makespan) == ([1.0, 9.0], near(3.75))
    assert (result.steps["load[1]"].substitute, result.steps["x"].substitute) == ("x", "x2")


# Substitutes that wait for other steps ----------------------------------------------------------------------


async def test_a_substitute_may_wait_for_a_new_step() -> None:
    """That step is used, so it is nothing that the run answers."""
    wait = _instead(1, depends_on=["aux"])

    async with start([_each([1.0, 9.0])], None) as run:
        await anyio.sleep(0.5)
        await run.splice(patch(Add(step=nap("aux", 2.0)), wait))
        result = await run.result()

    assert (result.output, result.makespan, result.critical_path) == ([1.0, [9.0, "new"]], near(3.5), near(3))


async def test_a_for_each_ends_when_what_its_substitute_waits_for_fails() -> None:
    """The substitute is skipped, and that is an end like any other."""
    async with start([_each([1.0, 9.0]), uses("sum", "load")], None) as run:
        await anyio.sleep(0.5)
        await run.splice(
            patch(Add(step=nap("one", 1.5)), Add(step=fails("aux", "one")), _instead(1, depends_on=["aux"]))
        )
        result = await run.result()

    assert states(result) | {"one": ""} == {
        "load": "skipped", "sum": "skipped", "load[0]": "succeeded", "load[1]": "superseded", "x": "skipped",
        "one": "", "aux": "failed",
    }  # fmt: skip
    assert result.makespan == near(2)


@pytest.mark.parametrize("later", [False, True])
async def test_a_substitute_cannot_wait_for_what_waits_for_its_for_each(later: bool) -> None:
    """Each would wait for the other for ever; also if the circle is closed by a second patch."""
    steps = [_each([1.0, 9.0]), uses("sum", "load"), nap("aux", 5.0)]
    first = _instead(1, depends_on=["aux" if later else "sum"])

    async with start(steps, None) as run:
        await anyio.sleep(0.5)
        if later:
            await run.splice(patch(Add(step=nap("mid", 1.0, "aux")), _instead(1, depends_on=["mid"])))
            with pytest.raises(SpliceRefused, match=r"DR106 edits: these steps wait for each other: .*mid") as caught:
                await run.splice(patch(Rewire(id="mid", depends_on=["sum"])))
        else:
            with pytest.raises(SpliceRefused, match="DR106") as caught:
                await run.splice(patch(first))
        result = await run.result()

    [problem] = caught.value.problems
    assert set(problem.facts["cycle"].split(" -> ")) == {"load", "x", "sum", *(["mid"] if later else [])}
    assert result.status == Status.SUCCEEDED


async def test_what_a_substitute_waits_for_is_replaced() -> None:
    """It still gets the element, and waits for the new step."""
    async with start([_each([1.0, 9.0])], None) as run:
        await anyio.sleep(0.5)
        await run.splice(patch(Add(step=nap("aux", 9.0)), _instead(1, depends_on=["aux"])))
        did = await run.splice(patch(Replace(id="aux", step=nap("aux2", 2.0))))
        result = await run.result()

    assert (did.rewired, result.output, result.makespan) == (("x",), [1.0, [9.0, "new"]], near(3.5))


# Limits and conditions --------------------------------------------------------------------------------------


async def test_a_substitute_counts_with_its_siblings_and_under_the_limit_of_its_own_tool() -> None:
    other = scripted("other", Takes(1.0, "new"))
    steps = [_each([2.0, 2.0, 2.0], max_parallel=1), Step(id="a", tool="other")]

    async with start(steps, None, other, max_running_by_tool={"other": 1}) as run:
        await anyio.sleep(0.5)
        await run.splice(
            patch(Replace(id="load[2]", step=Step(id="x", tool="other")), Add(step=Step(id="b", tool="other")))
        )
        result = await run.result()

    for ids in (("a", "b", "x"), ("load[0]", "load[1]", "x")):
        spans = sorted((result.steps[id_].started or 0.0, result.steps[id_].ended or 0.0) for id_ in ids)
        assert all(before[1] <= after[0] + 1e-9 for before, after in pairwise(spans))


async def test_a_patch_may_bring_the_first_limit_of_a_run() -> None:
    """Until then nobody has counted anything."""
    async with start([nap("a", 1.0), nap("b", 1.0, "a")], None) as run:
        await run.splice(patch(Add(step=_each([3.0, 3.0, 3.0, 3.0], max_parallel=2))))
        result = await run.result()

    assert (result.makespan, result.steps["b"].ended) == (near(6), near(2))


async def test_a_substitute_has_conditions_and_a_deadline_of_its_own() -> None:
    """Those of its for_each were asked long ago, and say nothing about it."""
    never = Condition(ref="one", op="==", value="two")

    async with start([nap("one", 1.0), _each([9.0, 9.0, 4.0])], None) as run:
        await anyio.sleep(3)
        await run.splice(
            patch(
                Replace(id="load[0]", step=Step(id="x", tool="echo", args={"value": 1}, when=never)),
                Replace(id="load[1]", step=nap("y", 1.0, deadline=1.5)),
            )
        )
        result = await run.result()

    assert (result.steps["x"].state, result.steps["y"].state) == ("skipped", "succeeded")
    assert result.output == [None, "y", 4.0]


async def test_a_substitute_pauses_when_it_says_so() -> None:
    async with start([_each([9.0])], None, attended=True) as run:
        await anyio.sleep(1)
        await run.splice(patch(Replace(id="load[0]", step=nap("x", 1.0, pause="before"))))
        await anyio.sleep(1)
        assert [question.step for question in run.pending] == ["x"]
        await run.answer(run.pending[0], True)
        result = await run.result()

    assert (result.output, result.makespan) == (["x"], near(3))


# The whole --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallel", [1, None])
async def test_a_for_each_is_dropped_with_all_its_elements(parallel: int | None) -> None:
    """What runs is told to stop, what waits for its turn never starts."""
    async with start([_each([1.0, 9.0, 9.0], max_parallel=parallel), nap("a", 3.0)], None) as run:
        await anyio.sleep(2)
        did = await run.splice(patch(Drop(id="load")))
        result = await run.result()

    assert did.cancelled == (("load[1]",) if parallel else ("load[1]", "load[2]"))
    assert states(result) == {
        "load": "superseded", "load[0]": "succeeded", "load[1]": "superseded", "load[2]": "superseded",
        "a": "succeeded",
    }  # fmt: skip
    assert all(result.steps[id_].is_gone for id_ in ("load", "load[0]", "load[1]"))
    assert (result.status, result.output, result.makespan) == (Status.SUCCEEDED, "a", near(3))


async def test_a_for_each_is_replaced_while_its_elements_run() -> None:
    async with start([_each([9.0, 9.0]), uses("sum", "load")], None) as run:
        await anyio.sleep(1)
        await run.splice(
            patch(Replace(id="load", step=Step(id="all", tool="echo", for_each=[1, 2], args={"value": "${item}"})))
        )
        result = await run.result()

    assert (result.output, result.makespan, result.steps["load"].state) == ([1, 2], near(1), "superseded")


async def test_questions_about_elements_go_with_their_for_each() -> None:
    """Otherwise the run would wait for an answer that nobody needs."""
    guarded = scripted("guarded", 1, needs_approval=True)

    async with start(
        [Step(id="load", tool="guarded", for_each=[1, 2]), nap("a", 2.0)], None, guarded, attended=True
    ) as run:
        await anyio.sleep(1)
        assert len(run.pending) == 2
        await run.splice(patch(Drop(id="load")))
        assert run.pending == ()
        result = await run.result()

    assert (result.status, result.makespan) == (Status.SUCCEEDED, near(2))


async def test_a_planner_is_not_asked_about_an_element_whose_for_each_is_gone() -> None:
    seen: list[Any] = []
    planner = Thinker(seconds=4.0)
    steps = [fails("first"), Step(id="load", tool="fail", for_each=[1], depends_on=["a"]), nap("a", 1.0)]
    steps.append(nap("both", 1.0, "first", "load"))

    async with start(steps, planner, on_event=seen.append) as run:
        await anyio.sleep(2)
        assert run.states["load[0]"] == "failed"  # it waits for the request about the other step to end
        await run.splice(patch(Drop(id="load"), Drop(id="both")))
        result = await run.result()

    assert endings(seen) == [("repaired", ("load[0]",)), ("unchanged", ("first",))]
    assert (len(planner.briefs), result.steps["load"].state) == (1, "superseded")


async def test_an_element_and_its_for_each_cannot_both_be_edited() -> None:
    """In neither order: what is done to the whole is done to the element."""
    async with start([_each([1.0, 1.0])], None) as run:
        await anyio.sleep(0.5)
        edits = (Drop(id="load"), _instead(1))
        for both in (edits, edits[::-1]):
            with pytest.raises(SpliceRefused, match=r"DR410 edits\[1\].id: step load.* is edited twice"):
                await run.splice(patch(*both))
        result = await run.result()

    assert (result.output, State(result.steps["load"].state)) == ([1.0, 1.0], State.SUCCEEDED)


async def test_a_for_each_has_not_ended_while_a_replaced_element_still_cleans_up() -> None:
    """The consequence names what has ended at that instant: the for_each waits for the element that leaves."""

    async def lingers(value: int) -> int:
        try:
            await anyio.sleep(5)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.5)
        return value

    each = Step(id="each", tool="lingers", args={"value": "${item}"}, for_each=[1], max_parallel=1)
    new = Step(id="new", tool="lingers", args={"value": "${item}"})
    async with start([each, nap("other", 9.0)], None, make_tool(lingers, effect="read")) as run:
        await anyio.sleep(1)
        await run.splice(patch(Replace(id="each[0]", step=new)))
        await anyio.sleep(0.1)
        did = await run.splice(patch(Drop(id="each")))
        ended = {id_ for id_, state in run.states.items() if state.is_settled}
        result = await run.result()

    assert (did.superseded, ended) == (("new",), {"new"})
    assert (states(result)["each"], states(result)["other"]) == ("superseded", "succeeded")
