"""`ask_user`, `handoff` and `join`: ready-made tools, as plans use them."""

from __future__ import annotations

from typing import Any

import pytest

import dagrun
from dagrun import Answer, Asked, Drop, Patch, Plan, PlanRefused, Policy, State, Status, Step
from dagrun.errors import AnswerRefused
from dagrun_tools import TOOLS
from dagrun_tools.flow import ask_user, handoff, join
from persons import Person, given, run, settle, start, step
from small_tools import near, states, toolset

pytestmark = pytest.mark.anyio


def _ask(**args: Any) -> Step:
    return Step(id="ask", tool="ask_user", args={"question": "Which region?", **args})


def value(given_: Any) -> Answer:
    return Answer("approve", value=given_)


def test_they_are_among_the_ready_made_tools() -> None:
    assert {ask_user, handoff, join} <= set(TOOLS)
    assert [str(tool.effect) for tool in (ask_user, handoff, join)] == ["read", "idempotent", "pure"]


@pytest.mark.parametrize(
    ("args", "right", "wrong"),
    [
        ({}, "north", 5),
        ({"type": "integer"}, 5, 5.0),
        ({"type": "number"}, 5.5, True),
        ({"type": "boolean"}, False, "no"),
        ({"type": "array"}, ["a"], "a"),
        ({"type": "object"}, {"a": 1}, ["a"]),
        ({"choices": ["north", "south"]}, "south", "east"),
        ({"type": "integer", "choices": [1, 2]}, 2, 3),
        ({"type": "boolean", "choices": [True]}, True, False),
    ],
)
async def test_ask_user_gives_what_the_user_says(args: dict[str, Any], right: Any, wrong: Any) -> None:
    """Of the type that was asked for, or one of the choices; anything else does not answer the question."""
    async with start(_ask(**args), step("use", "echo", "${ask}"), tools=(ask_user,)) as handle:
        await settle()
        (question,) = handle.pending
        assert (question.kind, question.text, question.step) == (Asked.INPUT, "Which region?", "ask")
        for bad in (wrong, None):
            with pytest.raises(AnswerRefused):
                await handle.answer(question, value(bad))
        await handle.answer(question, value(right))
        result = await handle.result()

    assert result.output == right


@pytest.mark.parametrize(
    "args", [{"choices": ["a", 1]}, {"type": "integer", "choices": [True]}, {"type": "array", "choices": ["a"]}]
)
async def test_choices_are_of_the_type(args: dict[str, Any]) -> None:
    """Nobody could ever choose another one."""
    result = await run(_ask(**args), tools=(ask_user,), approver=(person := Person(True)))
    assert (given(result, "ask")[0], person.asked) == ("failed", [])


@pytest.mark.parametrize("args", [{"question": ""}, {"type": "text"}, {"choices": []}])
def test_a_plan_that_asks_nonsense_is_refused(args: dict[str, Any]) -> None:
    with pytest.raises(PlanRefused):
        dagrun.check(Plan(steps=[_ask(**args)]), [ask_user])


async def test_a_user_who_will_not_say() -> None:
    plan = (_ask(), step("use", "echo", "${ask}"), step("alone", "echo"))
    result = await run(*plan, tools=(ask_user,), approver=Person(Answer("deny", note="ask Ann")))
    assert states(result) == {"ask": "failed", "use": "skipped", "alone": "succeeded"}
    assert given(result, "ask")[1] == "a person said no: ask Ann"


async def test_handoff_leaves_it_to_others_and_goes_on_with_what_comes_of_it() -> None:
    """Somebody looks for it among the open questions; the other steps do not wait."""
    args = {"to": "billing", "message": "Refund it", "data": {"order": "${load}"}, "returns": "object"}
    async with start(
        step("load", "echo", 17), Step(id="hand", tool="handoff", args=args), step("alone", "echo"), tools=(handoff,)
    ) as handle:
        await settle()
        (question,) = handle.pending
        about = question.as_dict()["arguments"]
        assert question.text == "For billing: Refund it"
        assert (about["to"], about["message"], about["data"]) == ("billing", "Refund it", {"order": 17})
        assert len(about["key"]) == 32
        assert handle.states["alone"] is State.SUCCEEDED
        with pytest.raises(AnswerRefused):
            await handle.answer(question, value("done"))
        await handle.answer(question, value({"refund": 3}))
        result = await handle.result()

    assert result.output == {"hand": {"refund": 3}, "alone": 1}


async def test_what_was_handed_over_is_in_doubt_if_it_is_cut_short() -> None:
    """They may have taken it up; only a no says that they have not."""
    hand = Step(id="hand", tool="handoff", args={"to": "billing", "message": "Refund it"})
    async with start(hand, tools=(handoff,)) as handle:
        await settle()
        handle.cancel("hand")
        assert (await handle.result()).status is Status.UNKNOWN

    refused = await run(hand, tools=(handoff,), approver=Person(False))
    assert (given(refused, "hand"), refused.status) == (("failed", "a person said no"), Status.FAILED)


async def test_handoff_is_not_approved_besides() -> None:
    """It is a question to somebody anyhow; and dropping it says so."""
    hand = Step(id="hand", tool="handoff", args={"to": "billing", "message": "Refund it"})
    advice = dagrun.check(Plan(steps=[hand]), [handoff]).advice
    assert "DR910" not in {problem.code for problem in advice}
    async with start(hand, tools=(handoff,)) as handle:
        await settle()
        with pytest.raises(dagrun.errors.SpliceRefused):
            await handle.splice(Patch(edits=[Drop(id="hand")]))
        await handle.splice(Patch(edits=[Drop(id="hand", cancel=True)]))


async def test_time_of_others_does_not_count() -> None:
    result = await run(_ask(), tools=(ask_user,), approver=Person(value("north"), seconds=86_400.0), timeout=1.0)
    assert (result.output, result.makespan) == ("north", near(86_400))


@pytest.mark.parametrize("values", [{"a": "${a}", "b": ["${b}"]}, ["${a}", "${b}"]])
async def test_join_waits_for_all_and_gives_them_as_one(values: Any) -> None:
    joined = Step(id="join", tool="join", args={"values": values})
    a, b = Step(id="a", tool="nap", args={"seconds": 1.0, "gives": 1}), Step(id="b", tool="nap", args={"seconds": 2.0})
    result = await dagrun.run(Plan(steps=[a, b, joined]), tools=[*toolset(), join], policy=Policy())
    assert result.output == ({"a": 1, "b": [None]} if isinstance(values, dict) else [1, None])
    assert result.makespan == near(2)
