"""Pipelines: what needs single elements of a for_each starts when those are there; nothing else about it changes."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from dagrun import Condition, Drop, Plan, PlanRefused, Replace, Status, Step, ToolError, Unavailable
from dagrun.errors import SpliceRefused
from dagrun.kernel.model.tool import make_tool
from replans import Thinker, nap, patch, start, uses
from small_tools import near, run, scripted, states

pytestmark = pytest.mark.anyio

ROWS = [{"n": "a", "first": 9.0, "then": 1.0}, {"n": "b", "first": 1.0, "then": 9.0}]


def first(items: Any = None, **fields: Any) -> Step:
    """A for_each whose elements sleep for ``first`` seconds, and give their row."""
    args = {"seconds": "${item.first}", "gives": "${item}"}
    return Step(**{"id": "pages", "tool": "nap", "args": args, "for_each": ROWS if items is None else items, **fields})


def then(source: str = "pages", **fields: Any) -> Step:
    """A for_each over the elements of that one, which sleep for ``then`` seconds, and give the name of their row."""
    args = {"seconds": "${item.then}", "gives": "${item.n}"}
    return Step(**{"id": "texts", "tool": "nap", "args": args, "for_each": f"${{{source}}}", **fields})


# When things start ----------------------------------------------------------------------------------------------


async def test_an_element_starts_when_its_own_element_is_there() -> None:
    """The slow half of the one stands behind the fast half of the other: 10 seconds, where a wave takes 18."""
    result = await run(first(), then(), uses("all", "texts"))

    assert (result.status, result.output, result.makespan) == (Status.SUCCEEDED, ["a", "b"], near(10))
    assert result.steps["texts[1]"].attempts[0].started == near(1)
    assert result.critical_path == near(10)


async def test_three_fans_and_empty_ones_go_through() -> None:
    copy = Step(id="copies", tool="nap", args={"seconds": 1.0, "gives": "${item}"}, for_each="${texts}")
    full, empty = await run(first(), then(), copy), await run(first([]), then(), copy)

    assert (full.output, full.makespan, full.critical_path) == (["a", "b"], near(11), near(11))
    assert (empty.output, empty.makespan, empty.status) == ([], near(0), Status.SUCCEEDED)


async def test_a_reference_to_one_element_waits_for_that_one() -> None:
    """Also as a part of a list, and together with a step that comes later."""
    two = Step(id="two", tool="echo", args={"value": ["${pages[1].n}", "${late}"]})
    result = await run(first(), uses("one", "pages[1].n"), nap("late", 3.0), two)

    begins = {id_: result.steps[id_].attempts[0].started for id_ in ("one", "two")}
    assert begins == {"one": near(1), "two": near(3)}
    assert result.output == {"one": "b", "two": ["b", "late"]}


async def test_an_element_that_does_not_exist_fails_when_the_list_is_complete() -> None:
    result = await run(first(), uses("one", "pages[2].n"))

    assert (result.steps["one"].state, result.makespan) == ("failed", near(9))


@pytest.mark.parametrize(
    "step",
    [
        then(args={"seconds": "${item.then}", "gives": "${pages}"}),
        then(when=Condition(ref="pages", op="min_length", value=1)),
        then(for_each=["${pages[0]}", "${pages}"], args={"seconds": 1.0}),
        then(args={"seconds": "${item.then}", "gives": ["${pages[0]}", "${pages}"]}),
    ],
    ids=["as an argument", "in a condition", "in a list", "beside an element"],
)
async def test_whoever_needs_the_whole_list_waits_for_it(step: Step) -> None:
    result = await run(first(), step)

    assert result.status is Status.SUCCEEDED, result.reason
    assert min(result.steps[f"texts[{n}]"].attempts[0].started for n in range(2)) == near(9)


async def test_a_declared_dependency_is_no_use_of_the_list() -> None:
    result = await run(first(), then(depends_on=["pages"]))

    assert result.makespan == near(10)


async def test_a_person_looks_at_the_whole_list_first() -> None:
    """With a pause after the one or before the other, nothing of the other begins before somebody has looked."""
    for steps in ([first(pause="after"), then()], [first(), then(pause="before")]):
        async with start(steps, None, attended=True) as held:
            await anyio.sleep(8)
            assert held.states["texts"] == "waiting"
            await anyio.sleep(2)
            await held.answer(held.pending[0], True)
            result = await held.result()

        assert (result.output, result.makespan) == (["a", "b"], near(19))


async def test_limits_hold_for_both_fans_together() -> None:
    """A place that an element has to wait for is not taken before it can start."""
    now = most = 0

    async def counted(seconds: float, gives: Any = None) -> Any:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await anyio.sleep(seconds)
        now -= 1
        return gives

    tool = make_tool(counted, effect="read")
    rows = [{"n": n, "first": 1.0, "then": 1.0} for n in range(4)]
    one, two = first(rows, tool="counted"), then(tool="counted")
    limited = await run(one, two, tools=(tool,), max_running=2)
    assert (most, limited.makespan, limited.output) == (2, near(4), [0, 1, 2, 3])
    most = 0
    alone = await run(one, two.model_copy(update={"max_parallel": 1}), tools=(tool,))
    assert (most, alone.makespan) == (4, near(5))
    with pytest.raises(PlanRefused, match="DR108"):
        await run(one, two, tools=(tool,), max_steps=5)
    over = await run(one, two, tools=(tool,), max_steps=8)
    assert (over.steps["pages"].state, over.steps["texts"].state) == ("succeeded", "failed")
    assert "ceiling of 8 steps is spent: 6 used, 4 more wanted" in over.reason


async def test_the_deadline_of_an_element_begins_when_it_could_begin() -> None:
    result = await run(first(), then(deadline=9.5))

    assert (result.status, result.output) == (Status.SUCCEEDED, ["a", "b"])


# Conditions -----------------------------------------------------------------------------------------------------


async def test_a_condition_on_the_element_is_asked_of_each() -> None:
    """An element for which it does not hold is left out, and null for whoever goes through the list."""
    only_b = Condition(ref="item.n", op="==", value="b")
    there = Condition(ref="item", op="!=", value=None)
    result = await run(first(when=only_b), then(when=there))

    assert (result.status, result.output, result.makespan) == (Status.SUCCEEDED, [None, "b"], near(10))
    assert [result.steps[id_].state for id_ in ("pages[0]", "texts[0]")] == ["skipped", "skipped"]
    assert result.steps["texts[0]"].reason.startswith("when: the condition does not hold")


async def test_a_condition_that_does_not_look_at_the_element_is_asked_once() -> None:
    result = await run(nap("yes", 0.0), first(when=Condition(ref="yes", op="==", value="no")), then())

    assert states(result) == {"yes": "succeeded", "pages": "skipped", "texts": "skipped"}


async def test_a_condition_that_compares_what_cannot_be_compared_fails_its_element() -> None:
    result = await run(first(when=Condition(ref="item.n", op=">", value=1)), then())

    assert [result.steps[id_].state for id_ in ("pages[0]", "pages", "texts[0]", "texts")] == [
        "failed", "failed", "skipped", "skipped",
    ]  # fmt: skip


# Failures -------------------------------------------------------------------------------------------------------


def flaky(bad: str) -> Any:
    async def act(row: dict[str, Any]) -> Any:
        await anyio.sleep(row["first"])
        if row["n"] == bad:
            raise ToolError("no")
        return row

    return make_tool(act, name="flaky", effect="read")


@pytest.mark.parametrize("bad", ["a", "b"])
async def test_a_failed_element_stops_only_what_needs_it(bad: str) -> None:
    """The other element goes its way, whichever was faster; both lists fail, and say of which element."""
    result = await run(first(tool="flaky", args={"row": "${item}"}), then(), uses("all", "texts"), tools=(flaky(bad),))
    good, lost = (1, 0) if bad == "a" else (0, 1)

    assert result.steps[f"texts[{good}]"].state == "succeeded"
    assert (result.steps[f"texts[{lost}]"].state, result.steps[f"texts[{lost}]"].reason) == (
        "skipped", f"pages[{lost}] failed",
    )  # fmt: skip
    assert [result.steps[id_].state for id_ in ("pages", "texts", "all")] == ["failed", "skipped", "skipped"]
    assert result.steps["texts"].reason == f"1 of 2 elements did not succeed; [{lost}] skipped: pages[{lost}] failed"


async def test_the_outcome_does_not_depend_on_who_was_faster() -> None:
    """A list that is expanded only when the other one has failed goes through its elements all the same."""
    late = [nap("late", 20.0), then(depends_on=["late"])]
    result = await run(first(tool="flaky", args={"row": "${item}"}), *late, tools=(flaky("a"),))

    assert [result.steps[id_].state for id_ in ("pages", "texts[0]", "texts[1]", "texts")] == [
        "failed", "skipped", "succeeded", "skipped",
    ]  # fmt: skip


@pytest.mark.parametrize(("fields", "gives"), [({"on_failure": "skip"}, None), ({"default": "x"}, "x")])
async def test_what_stands_for_a_failed_element_goes_on(fields: dict[str, Any], gives: Any) -> None:
    if "default" in fields:
        fields = {**fields, "on_failure": "default"}
    copy = Step(id="texts", tool="nap", args={"seconds": 1.0, "gives": "${item}"}, for_each="${pages}")
    result = await run(first(tool="flaky", args={"row": "${item}"}, **fields), copy, tools=(flaky("b"),))

    assert (result.status, result.output) == (Status.SUCCEEDED, [ROWS[0], gives])
    assert result.steps["texts[1]"].attempts[0].started == near(1)


async def test_stop_and_cancel_reach_the_elements_that_wait() -> None:
    stopped = await run(first(tool="flaky", args={"row": "${item}"}, on_failure="stop"), then(), tools=(flaky("b"),))
    assert (stopped.status, stopped.makespan) == (Status.FAILED, near(1))
    assert {stopped.steps[f"texts[{n}]"].state for n in range(2)} == {"cancelled"} or stopped.steps[
        "texts[1]"
    ].state == "skipped"

    async with start([first(), then(), uses("all", "texts")], None) as running:
        await anyio.sleep(5)
        running.cancel("texts")
        assert [running.states[f"texts[{n}]"] for n in range(2)] == ["cancelled", "running"]
        result = await running.result()
    assert (result.steps["pages"].state, result.steps["texts"].state) == ("succeeded", "cancelled")


# Splices --------------------------------------------------------------------------------------------------------


def instead(old: str, **fields: Any) -> Replace:
    args = {"seconds": 2.0, "gives": {"n": "new", "then": 1.0}}
    return Replace(id=old, step=Step(**{"id": "new", "tool": "nap", "args": args, **fields}))


async def test_a_substitute_of_an_element_feeds_the_element_behind_it() -> None:
    """Before it has ended, or failed, or while the planner thinks about its failure; nothing runs twice."""
    async with start([first(), then()], None) as run_:
        await anyio.sleep(4)
        await run_.splice(patch(instead("pages[0]")))
        result = await run_.result()
    assert (result.output, result.makespan) == (["new", "b"], near(10))
    assert result.steps["texts[0]"].attempts[0].started == near(6)

    planner = Thinker(patch(instead("pages[1]")), seconds=5.0)
    steps = [first(tool="flaky", args={"row": "${item}"}), then()]
    async with start(steps, planner, flaky("b")) as run_:
        await anyio.sleep(3)
        assert run_.states["texts[1]"] == "blocked"
        result = await run_.result()
    assert (result.output, result.makespan) == (["a", "new"], near(10))
    assert len(result.steps["texts[0]"].attempts) == len(result.steps["texts[1]"].attempts) == 1


async def test_a_dropped_element_is_null_for_what_follows() -> None:
    copy = Step(id="texts", tool="nap", args={"seconds": 1.0, "gives": "${item}"}, for_each="${pages}")
    async with start([first(), copy], None) as run_:
        await anyio.sleep(2)
        await run_.splice(patch(Drop(id="pages[0]")))
        result = await run_.result()

    assert (result.status, result.output, result.makespan) == (Status.SUCCEEDED, [None, ROWS[1]], near(3))


async def test_a_substitute_of_a_following_element_waits_for_the_element_too() -> None:
    args = {"seconds": 0.5, "gives": ["${item.n}", "new"]}
    async with start([first(), then()], None) as run_:
        await anyio.sleep(2)
        await run_.splice(patch(instead("texts[0]", args=args), instead("texts[1]", args=args, id="other")))
        assert (run_.states["new"], run_.states["other"]) == ("waiting", "ready")
        result = await run_.result()

    assert (result.output, result.makespan) == ([["a", "new"], ["b", "new"]], near(9.5))


async def test_a_list_is_not_taken_from_under_a_step_that_goes_through_it() -> None:
    """Single elements can be edited, or both lists together; a plan as the answer means both."""
    other = Step(id="new", tool="nap", args={"seconds": 1.0, "gives": "${item}"}, for_each=[{"n": "c", "then": 1.0}])
    async with start([first(), then(), uses("all", "texts")], None) as run_:
        await anyio.sleep(2)
        with pytest.raises(SpliceRefused, match=r"DR425 .* texts iterates over the elements of pages and has begun"):
            await run_.splice(patch(Replace(id="pages", step=other)))
        with pytest.raises(SpliceRefused, match="DR425"):
            await run_.splice(patch(Drop(id="pages")))
        await run_.splice(patch(Replace(id="pages", step=other), Replace(id="texts", step=then("new", id="texts2"))))
        result = await run_.result()
    assert (result.status, result.output, result.makespan) == (Status.SUCCEEDED, ["c"], near(4))

    plan = Plan(steps=[other.model_copy(update={"id": "pages"}), then(), uses("all", "texts")])
    steps = [first(tool="flaky", args={"row": "${item}"}), then(), uses("all", "texts")]
    async with start(steps, Thinker(plan), flaky("b")) as run_:
        result = await run_.result()
    assert (result.status, result.output) == (Status.SUCCEEDED, ["c"])


async def test_a_step_that_comes_late_follows_the_elements_that_are_there() -> None:
    from dagrun import Add

    async with start([first()], None) as run_:
        await anyio.sleep(3)
        await run_.splice(patch(Add(step=then())))
        result = await run_.result()

    assert (result.output, result.makespan) == (["a", "b"], near(12))


async def test_effects_are_asked_about_by_element() -> None:
    """The gate is at the call: an element that needs a person waits for one, and the others do not wait for it."""
    mail = scripted("mail", "sent", "sent", effect="effectful", needs_approval=True)
    step = Step(id="mails", tool="mail", args={"value": "${item.n}"}, for_each="${pages}")
    async with start([first(), step], None, mail, attended=True) as run_:
        await anyio.sleep(2)
        [question] = run_.pending
        assert (question.step, run_.states["mails[0]"]) == ("mails[1]", "waiting")
        await run_.answer(question, True)
        await anyio.sleep(8)
        await run_.answer(run_.pending[0], True)
        result = await run_.result()

    assert (result.output, result.status) == (["sent", "sent"], Status.SUCCEEDED)


async def test_outputs_are_released_when_the_element_behind_them_has_ended() -> None:
    """Not when their own list is complete: the elements of the other one still read them, one after the other."""
    rows = [{"n": str(n) * 50, "first": 1.0, "then": 1.0} for n in range(4)]
    async with start([first(rows), then(max_parallel=1)], None, release_outputs=True) as running:
        await anyio.sleep(3.5)
        held = [running.graph.nodes[f"pages[{n}]"].value for n in range(4)]
        result = await running.result()

    assert sum(type(value) is Unavailable for value in held) == 2
    assert result.output == [row["n"] for row in rows]
