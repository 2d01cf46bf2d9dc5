"""Answers: which of them count, singly and in batches, and how many questions are open at once."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dagrun import Answer, ApprovalRule, Drop, Event, Patch, QuestionRule, Replace, State, Status
from dagrun.cli.terminal.event_lines import as_dict
from dagrun.errors import AnswerRefused, ContractError, QuestionNotFound
from dagrun.events import QuestionAnswered, QuestionAsked
from persons import Person, pay, run, settle, start, step
from small_tools import near, states

pytestmark = pytest.mark.anyio


# Answers ----------------------------------------------------------------------------------------------------


async def test_only_open_questions_can_be_answered() -> None:
    """Twice, never asked, or void: the answer goes nowhere, and says so."""
    async with start(step(), step("other", value=2), tools=(pay(),)) as handle:
        await settle()
        first, second = handle.pending
        for wrong in ("", "nonsense", first.id[:-1], [first.id, "nonsense"]):
            with pytest.raises(QuestionNotFound):
                await handle.answer(wrong, True)
        await handle.answer(first, True)
        with pytest.raises(QuestionNotFound):
            await handle.answer(first, False)
        handle.cancel("other")
        with pytest.raises(QuestionNotFound):
            await handle.answer(second, True)
        result = await handle.result()
        with pytest.raises(QuestionNotFound):
            await handle.answer(first, True)

    assert states(result) == {"pay": "succeeded", "other": "cancelled"}


async def test_every_point_of_the_checklist_must_be_ticked() -> None:
    """A yes without that is refused, the question stays open, and the points are kept with the answer."""
    seen: list[Event] = []
    rules = [ApprovalRule(tool="pay", checklist=["amount", "recipient"])]

    async with start(step(), tools=(pay(),), approve=rules, seen=seen) as handle:
        await settle()
        for ticks in ((), ("amount",), ("recipient", "else")):
            with pytest.raises(AnswerRefused, match="not ticked"):
                await handle.answer(handle.pending[0], Answer("approve", ticked=ticks))
        with pytest.raises(AnswerRefused):
            await handle.answer(handle.pending[0], True)
        await handle.answer(handle.pending[0], Answer("approve", by="ann", ticked=("recipient", "amount")))
        await handle.result()

    (answered,) = [event for event in seen if isinstance(event, QuestionAnswered)]
    assert answered.answer is not None
    assert (answered.answer.by, answered.answer.ticked) == ("ann", ("recipient", "amount"))


async def test_a_no_needs_no_ticks() -> None:
    rules = [ApprovalRule(tool="pay", checklist=["amount"])]
    result = await run(step(), tools=(pay(),), approve=rules, approver=Person(False))
    assert states(result) == {"pay": "failed"}


async def test_events_tell_who_was_asked_what_and_said_what() -> None:
    seen: list[Event] = []

    await run(step(), tools=(pay(),), approver=Person(Answer("approve", by="ann", note="fine")), on_event=seen.append)

    told = [as_dict(e) for e in seen if isinstance(e, QuestionAsked | QuestionAnswered)]
    assert [event["event"] for event in told] == ["QuestionAsked", "QuestionAnswered"]
    assert told[0]["question"]["arguments"] == {"value": 1}
    assert (told[1]["answer"]["by"], told[1]["answer"]["note"], told[1]["state"]) == ("ann", "fine", "ready")


@pytest.mark.parametrize(
    "rubbish",
    [
        Answer("maybe"),  # type: ignore[arg-type]
        Answer(None),  # type: ignore[arg-type]
        Answer("deny", by=5),  # type: ignore[arg-type]
        Answer("deny", note=None),  # type: ignore[arg-type]
        Answer("deny", note="\ud800"),
        Answer("approve", ticked="amount"),  # type: ignore[arg-type]
        Answer("approve", ticked=(1,)),  # type: ignore[arg-type]
        Answer("approve", ticked=None),  # type: ignore[arg-type]
        Answer("approve", value=object()),
        Answer("approve", value=math.nan),
        Answer("approve", value="x" * 2_000_000),
    ],
    ids=[str(number) for number in range(11)],
)
async def test_an_answer_that_is_none_is_refused(rubbish: Any) -> None:
    """Hosts build answers out of forms: what does not fit changes nothing, and the question stays open."""
    async with start(step(), tools=(pay(),)) as handle:
        await settle()
        with pytest.raises(AnswerRefused):
            await handle.answer(handle.pending[0], rubbish)
        assert (len(handle.pending), handle.states["pay"]) == (1, State.HELD)
        handle.cancel()


async def test_only_answers_answer() -> None:
    async with start(step(), tools=(pay(),)) as handle:
        await settle()
        for wrong in ("yes", 1, None, {"choice": "approve"}):
            with pytest.raises(ContractError, match=r"an answer is True, False or a dagrun\.Answer"):
                await handle.answer(handle.pending[0], wrong)  # type: ignore[arg-type]
        handle.cancel()


# Batches ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("effect", "says", "is_taken"),
    [
        ("read", True, True),
        ("idempotent", True, True),
        ("effectful", True, False),
        ("effectful", False, True),
        ("effectful", Answer("deny", note="not today"), True),
    ],
)
async def test_calls_that_change_the_world_are_not_approved_by_the_dozen(
    effect: str, says: bool | Answer, is_taken: bool
) -> None:
    """S53: who says yes has looked at each; a no to all of them needs no look."""
    tool = pay(effect=effect)

    async with start(*(step(f"s{i}", value=i) for i in range(12)), tools=(tool,)) as handle:
        await settle()
        if is_taken:
            await handle.answer(handle.pending, says)
        else:
            with pytest.raises(AnswerRefused, match=r"one by one: s\d+, s\d+, "):
                await handle.answer(handle.pending, says)
            assert len(handle.pending) == 12
            for question in handle.pending:
                await handle.answer(question, says)
        result = await handle.result()

    assert set(states(result).values()) == {"succeeded" if says is True else "failed"}


async def test_what_has_a_checklist_is_answered_by_itself() -> None:
    rules = [ApprovalRule(tool="pay", checklist=["seen"])]
    async with start(step("a"), step("b"), tools=(pay(effect="read"),), approve=rules) as handle:
        await settle()
        with pytest.raises(AnswerRefused, match="one by one"):
            await handle.answer(handle.pending, Answer("approve", ticked=("seen",)))
        handle.cancel()


async def test_the_same_question_twice_is_no_batch() -> None:
    """A page that sends a form twice has asked for one thing."""
    async with start(step(), tools=(pay(),)) as handle:
        await settle()
        await handle.answer([handle.pending[0], handle.pending[0].id], True)
        assert (await handle.result()).status is Status.SUCCEEDED


async def test_one_unknown_question_spoils_the_batch() -> None:
    """All or nothing: nobody has to find out what of it was done."""
    async with start(step("a"), step("b"), tools=(pay(effect="read"),)) as handle:
        await settle()
        with pytest.raises(QuestionNotFound):
            await handle.answer([*handle.pending, "unknown"], True)
        assert len(handle.pending) == 2
        handle.cancel()


@pytest.mark.parametrize("max_running", [None, 3])
async def test_five_hundred_approvals_queue_up(max_running: int | None) -> None:
    """S53: as many questions as a person can look at are open; the others come up as those are answered."""
    tool, most, asked = pay(), 0, list[str]()

    async with start(
        *(step(f"s{i}", value=i) for i in range(500)),
        tools=(tool,),
        questions=QuestionRule(max_pending=20),
        max_running=max_running,
    ) as handle:
        while not handle.has_ended:
            await settle()
            most = max(most, len(handle.pending))
            for question in handle.pending[:7]:
                asked.append(question.step)
                await handle.answer(question, True)
        result = await handle.result()

    assert (most, len(tool.calls), result.status) == (20, 500, Status.SUCCEEDED)
    assert sorted(asked) == sorted(f"s{i}" for i in range(500))


async def test_what_waits_in_the_queue_can_be_cancelled_dropped_and_replaced() -> None:
    """Room that one of them leaves unused, another one gets."""
    steps = [step(f"s{i}", value=i) for i in range(6)]
    async with start(*steps, tools=(pay(),), questions=QuestionRule(max_pending=1)) as handle:
        await settle()
        first = handle.pending[0].step
        cancelled, dropped, replaced, *others = (s.id for s in steps if s.id != first)
        handle.cancel(cancelled)
        await handle.splice(Patch(edits=[Drop(id=dropped), Replace(id=replaced, step=step("new", "echo", 3))]))
        await settle()
        assert [question.step for question in handle.pending] == [first]
        handle.cancel(first)
        for _ in others:
            await settle()
            assert handle.pending[0].step in others
            await handle.answer(handle.pending[0], True)
        result = await handle.result()

    assert states(result) == {
        first: "cancelled", cancelled: "cancelled", dropped: "superseded", replaced: "superseded",
        others[0]: "succeeded", others[1]: "succeeded", "new": "succeeded",
    }  # fmt: skip


@pytest.mark.parametrize("says", [True, False, None])
async def test_an_approver_gets_through_a_long_queue(says: bool | None) -> None:
    """Whatever it says, every step comes up, and never more at once than may be open."""
    person, steps = Person(says, seconds=1.0), [step(f"s{i}", value=i) for i in range(50)]

    result = await run(*steps, tools=(pay(),), approver=person, questions=QuestionRule(max_pending=5))

    state = {True: "succeeded", False: "failed", None: "skipped"}[says]
    assert (set(states(result).values()), len(person.asked), result.makespan) == ({state}, 50, near(10))
