"""What only a person can mend: an input that is missing, a right that is wanting, an effect that is in doubt."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import dagrun
from dagrun import Answer, Asked, Drop, Patch, Replace, RetryRule, State, Status, Step, ToolContext, ToolError
from dagrun.errors import AnswerRefused, QuestionNotFound
from dagrun.kernel.model.tool import make_tool
from dagrun.testing import StandIn, Takes
from persons import Person, pay, run, settle, start, step
from small_tools import AT_ONCE, near, scripted, states

pytestmark = pytest.mark.anyio

MISSING = ToolError("which region?", missing_input="region")
REFUSED = ToolError("not yours", permission=True)


async def _report(region: str = "", limit: int | None = None) -> str:
    return region


def report(*acts: Any, effect: str = "read", **options: Any) -> StandIn:
    """A tool whose region may be missing."""
    return StandIn(make_tool(_report, name="report", effect=effect, **options), *acts)


def _step(**fields: Any) -> Step:
    return Step(id="report", tool="report", **fields)


def value(given_: Any) -> Answer:
    return Answer("approve", value=given_)


# Missing input ----------------------------------------------------------------------------------------------


async def test_a_missing_input_is_asked_for_and_given() -> None:
    """The next attempt has the argument that the person gave, beside those of the plan."""
    tool, person = report(MISSING, "done"), Person(value("north"))

    result = await run(_step(args={"limit": 3}), tools=(tool,), approver=person)

    (asked,) = person.asked
    assert (asked.kind, asked.name, asked.schema, asked.why) == (
        Asked.INPUT, "region", {"default": "", "title": "Region", "type": "string"}, "which region?",
    )  # fmt: skip
    assert tool.calls == [{"limit": 3}, {"limit": 3, "region": "north"}]
    assert (result.status, result.output) == (Status.SUCCEEDED, "done")


@pytest.mark.parametrize("wrong", [5, None, ["north"], True])
async def test_what_is_given_must_be_of_the_type_that_is_wanted(wrong: Any) -> None:
    async with start(_step(), tools=(report(MISSING, "done"),)) as handle:
        await settle()
        with pytest.raises(AnswerRefused, match="must be of type string"):
            await handle.answer(handle.pending[0], value(wrong))
        with pytest.raises(AnswerRefused):
            await handle.answer(handle.pending[0], True)  # a yes is no region
        await handle.answer(handle.pending[0], value("north"))
        assert (await handle.result()).status is Status.SUCCEEDED


@pytest.mark.parametrize(("says", "times"), [(value("nowhere"), 2), (Answer("deny"), 1), (None, 1)])
async def test_nobody_is_asked_for_the_same_input_for_ever(says: Any, times: int) -> None:
    """An approver that always answers must not keep a run from ending."""
    tool, person = report(MISSING), Person(says)

    result = await run(_step(), tools=(tool,), approver=person)

    assert (states(result), len(person.asked)) == ({"report": "failed"}, times)
    assert result.steps["report"].failure is not None
    assert result.steps["report"].failure.missing_input == "region"


async def test_one_input_after_the_other_can_be_missing() -> None:
    """Each of them is another question."""
    tool = report(MISSING, ToolError("how many?", missing_input="limit"), "done")
    person = Person(lambda question: value("north" if question.name == "region" else 5))

    await run(_step(retry=RetryRule(max_attempts=1)), tools=(tool,), approver=person)

    assert tool.calls[-1] == {"region": "north", "limit": 5}


async def test_what_is_no_argument_cannot_be_given() -> None:
    """The tool takes none of that name, so there is nothing to try again with."""
    tool, person = report(ToolError("who?", missing_input="nobody")), Person(value("x"))

    result = await run(_step(), tools=(tool,), approver=person)

    assert (states(result), person.asked, len(tool.calls)) == ({"report": "failed"}, [], 1)


async def test_arguments_stay_as_they_are_once_a_call_may_have_applied() -> None:
    """The first attempt has timed out, and may have been applied with the key of the second one."""
    tool, person = report(Takes(9), MISSING, "done", effect="idempotent"), Person(value("north"))

    result = await run(_step(timeout=1, retry=RetryRule(max_attempts=3, first_delay=0)), tools=(tool,), approver=person)

    assert (person.asked, len(tool.calls)) == ([], 2)
    assert result.steps["report"].state is State.UNKNOWN


async def test_another_call_has_another_key() -> None:
    """Surely nothing was applied; a service that remembers the key must not see other arguments under it."""
    keys: list[str] = []

    @dagrun.tool(effect="idempotent")
    async def order(context: ToolContext, region: str = "") -> str:
        keys.append(context.idempotency_key)
        if not region:
            raise MISSING
        return region

    await run(Step(id="order", tool="order"), tools=(order,), approver=Person(value("north")))

    assert len(set(keys)) == 2


async def test_the_question_has_a_time_and_no_default() -> None:
    """Nobody has said which region, and no passing of time can."""
    result = await run(
        _step(),
        tools=(report(MISSING),),
        approver=Person(None),
        questions=dagrun.QuestionRule(answer_within=9, default_answer="approve"),
    )

    assert (states(result), result.makespan) == ({"report": "failed"}, near(9))


# Permission -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("says", "calls", "state"), [(True, 2, "succeeded"), (False, 1, "failed"), (None, 1, "failed")]
)
async def test_a_right_that_was_refused_is_asked_about(says: Any, calls: int, state: str) -> None:
    """It is never tried again without that."""
    tool, person = report(REFUSED, "done"), Person(says, seconds=3600.0)

    result = await run(_step(deadline=60), tools=(tool,), approver=person)

    assert [(q.kind, q.why) for q in person.asked] == [(Asked.PERMISSION, "not yours")]
    assert (states(result), len(tool.calls)) == ({"report": state}, calls)


async def test_who_always_says_yes_does_not_keep_the_run_from_ending() -> None:
    tool, person = report(REFUSED), Person(True)

    result = await run(_step(), tools=(tool,), approver=person)

    assert (states(result), len(tool.calls), len(person.asked)) == ({"report": "failed"}, 3, 2)


@pytest.mark.parametrize("says", [False, None])
async def test_without_the_right_the_fallback_is_tried(says: Any) -> None:
    """As it would be if nobody could be asked at all."""
    tool, spare = report(REFUSED), StandIn(make_tool(_report, name="spare", effect="read"), "spared")

    result = await run(_step(fallback="spare"), tools=(tool, spare), approver=Person(says))

    assert (result.status, result.output, len(tool.calls)) == (Status.SUCCEEDED, "spared", 1)


@pytest.mark.parametrize(("on_failure", "state"), [("skip", "failed"), ("default", "succeeded"), ("stop", "failed")])
async def test_a_plan_that_says_what_happens_needs_nobody(on_failure: Any, state: str) -> None:
    fields: dict[str, Any] = {"on_failure": on_failure} | ({"default": 1} if on_failure == "default" else {})
    result = await run(_step(**fields), tools=(report(REFUSED),), approver=(person := Person(True)))
    assert (states(result), person.asked) == ({"report": state}, [])


# Effects in doubt -------------------------------------------------------------------------------------------


def doubtful(*acts: Any, **options: Any) -> StandIn:
    """A call with an effect that fails without a word about it."""
    return pay(*(acts or (ConnectionError("lost"),)), needs_approval=False, **options)


@pytest.mark.parametrize(
    ("says", "state", "status", "calls"),
    [
        (Answer("took_effect", {"receipt": 7}), "succeeded", Status.SUCCEEDED, 1),
        (Answer("did_not"), "succeeded", Status.SUCCEEDED, 2),
        (Answer("unknown"), "unknown", Status.UNKNOWN, 1),
        (None, "unknown", Status.UNKNOWN, 1),
    ],
)
async def test_a_person_knows_whether_it_took_effect(says: Any, state: str, status: Status, calls: int) -> None:
    """It did: what it gave is what the person says. It did not: it is called again. Nobody knows: it stays in doubt."""
    tool, person = doubtful(ConnectionError("lost"), {"receipt": 8}), Person(says)

    result = await run(step(), step("after", "echo", "${pay}"), tools=(tool,), approver=person)

    (asked,) = person.asked
    words = "took_effect, with its output if it has one; did_not, so it is called again; or unknown."
    assert (asked.kind, asked.text) == (Asked.EFFECT, f"Did the call of pay by step pay take effect? Answer {words}")
    assert (asked.choices, asked.why) == (("took_effect", "did_not", "unknown", "escalate"), "ConnectionError: lost")
    assert (result.steps["pay"].state, result.status, len(tool.calls)) == (state, status, calls)
    receipts = {Status.SUCCEEDED: {"receipt": 9 - calls if calls == 1 else 8}, Status.UNKNOWN: None}
    assert result.output == ({"receipt": 7} if calls == 1 and status is Status.SUCCEEDED else receipts[status])


async def test_what_surely_did_not_happen_is_called_with_another_key() -> None:
    """And with the same one as long as nobody knows."""
    keys: list[str] = []

    @dagrun.tool(effect="effectful", needs_approval=False)
    async def send(context: ToolContext) -> str:
        keys.append(context.idempotency_key)
        if len(keys) < 2:
            raise ConnectionError("lost")
        return "sent"

    await run(Step(id="send", tool="send"), tools=(send,), approver=Person(Answer("did_not")))

    assert len(set(keys)) == 2


async def test_a_second_click_does_not_answer_the_next_question() -> None:
    """ "It did not take effect", sent twice, would call twice what may have taken effect the second time."""
    tool = doubtful()
    async with start(step(), tools=(tool,)) as handle:
        await settle()
        first = handle.pending[0].id
        await handle.answer(first, Answer("did_not"))
        await settle()
        with pytest.raises(QuestionNotFound):
            await handle.answer(first, Answer("did_not"))
        assert (len(tool.calls), len(handle.pending)) == (2, 1)
        await handle.answer(handle.pending[0], Answer("took_effect", "paid"))
        assert (await handle.result()).output == "paid"


async def test_who_always_says_no_does_not_pay_for_ever() -> None:
    """The rule for retries bounds this, too."""
    tool, person = doubtful(), Person(Answer("did_not"))

    result = await run(step(retry=RetryRule(max_attempts=3)), tools=(tool,), approver=person)

    assert (result.status, len(tool.calls), len(person.asked)) == (Status.UNKNOWN, 4, 3)


@pytest.mark.parametrize("way", ["cancel", "cancel step", "drop", "replace", "scope"])
async def test_a_doubt_outlives_the_question(way: str) -> None:
    """However the step ends while somebody thinks about it: nobody has said that it did not take effect."""
    with anyio.CancelScope() as scope:
        async with start(step(), tools=(doubtful(),)) as handle:
            await settle()
            match way:
                case "cancel":
                    handle.cancel()
                case "cancel step":
                    handle.cancel("pay")
                case "drop":
                    await handle.splice(Patch(edits=[Drop(id="pay", cancel=True)]))
                case "replace":
                    await handle.splice(Patch(edits=[Replace(id="pay", step=step("other", "echo"), cancel=True)]))
                case _:
                    scope.cancel()
                    await anyio.sleep(1)

    result = await handle.result()
    assert (result.steps["pay"].state, result.status, handle.pending) == (State.UNKNOWN, Status.UNKNOWN, ())


async def test_a_doubt_that_is_handed_over_is_still_a_doubt() -> None:
    """It is what people must act on first; the reason says who has it now."""
    result = await run(step(), tools=(doubtful(),), approver=Person(Answer("escalate", by="ann")))
    assert (result.status, result.steps["pay"].state) == (Status.UNKNOWN, State.UNKNOWN)


async def test_a_known_effect_is_looked_at_like_any_other() -> None:
    """The step pauses before what depends on it, also if it was a person who let it succeed."""
    async with start(step(pause="after"), step("after", "echo", "${pay}"), tools=(doubtful(),)) as handle:
        await settle()
        await handle.answer(handle.pending[0], Answer("took_effect", 7))
        await settle()
        (question,) = handle.pending
        assert (question.kind, handle.states["after"]) == (Asked.PAUSE, State.BLOCKED)
        await handle.answer(question, True)
        assert (await handle.result()).output == 7


# Time -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("each", [False, True])
async def test_time_that_a_person_takes_does_not_count(each: bool) -> None:
    """The deadline is for the work: a second for each call, and an hour of waiting in between."""
    tool, person = report(Takes(1, REFUSED), Takes(1, "done")), Person(True, seconds=3600.0)

    result = await run(_step(deadline=3, **({"for_each": [1]} if each else {})), tools=(tool,), approver=person)

    assert (result.status, result.makespan) == (Status.SUCCEEDED, near(3602))


async def test_time_that_it_takes_itself_does() -> None:
    tool, person = report(Takes(2, REFUSED), Takes(2, "done")), Person(True, seconds=3600.0)

    result = await run(_step(deadline=3), tools=(tool,), approver=person)

    assert (states(result), result.makespan) == ({"report": "timed_out"}, near(3603))


async def test_the_approval_of_an_element_takes_nothing_off_its_deadline() -> None:
    """The deadline of an element runs from the moment when the list is known."""
    tool, person = pay(Takes(1, "paid")), Person(True, seconds=3600.0)

    result = await run(step(value="${item}", for_each=[1, 2], deadline=3), tools=(tool,), approver=person)

    assert (result.status, result.makespan) == (Status.SUCCEEDED, near(3601))


async def test_questions_after_an_attempt_wait_for_room_like_others() -> None:
    """Fifty steps without a right: as many questions as may be open, and all of them come up."""
    tool, most = scripted("pay", *([REFUSED] * 50), "done"), 0
    async with start(
        *(step(f"s{i}", value=i) for i in range(50)),
        tools=(tool,),
        questions=dagrun.QuestionRule(max_pending=4),
        retry=AT_ONCE,
    ) as handle:
        await settle()
        handle.cancel("s49")
        while not handle.has_ended:
            await settle()
            most = max(most, len(handle.pending))
            if handle.pending:
                await handle.answer(handle.pending[-1], True)
        result = await handle.result()

    assert (most, len(tool.calls)) == (4, 99)
    assert states(result) == {f"s{i}": "succeeded" for i in range(49)} | {"s49": "cancelled"}


async def test_what_a_person_gives_is_approved_as_well() -> None:
    """The yes was for a call without it: with another argument, it is another call."""
    tool = report(MISSING, "done", effect="effectful", needs_approval=True)
    person = Person(lambda question: value("north") if question.kind is Asked.INPUT else True)

    result = await run(_step(), tools=(tool,), approver=person)

    shown = [question.as_dict()["arguments"] for question in person.asked if question.kind is Asked.APPROVAL]
    defaults = {"region": "", "limit": None}
    assert (shown, result.status) == ([defaults, defaults | {"region": "north"}], Status.SUCCEEDED)
