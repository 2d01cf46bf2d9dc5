"""An answer from elsewhere is acknowledged only once it counts; the second one is refused with the one that stands."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

import dagrun
from crash_process import RUN
from dagrun import Answer, MemoryJournal, Plan, Question, Status, Step
from dagrun.errors import AnswerRefused, QuestionNotFound
from dagrun.kernel.model.journal import InboxMessage
from dagrun.kernel.model.question import AnswerMessage
from dagrun.workers.submitting import leave_answer
from persons import settle

pytestmark = pytest.mark.anyio

YES, NO = Answer("approve", by="ann"), Answer("deny", by="bob", note="too dear")
PAID: list[int] = []
PLAN = Plan(steps=[Step(id="p", tool="pay", args={"n": 5})])


@dagrun.tool(effect="effectful", needs_approval=True)
async def pay(n: int) -> str:
    """Pay."""
    PAID.append(n)
    return "paid"


@pytest.fixture(autouse=True)
def nothing_paid() -> None:
    PAID.clear()


async def _asleep() -> tuple[MemoryJournal, Question]:
    journal = MemoryJournal()
    assert (await dagrun.run(PLAN, tools=[pay], journal=journal, run_id=RUN)).status is Status.WAITING
    return journal, (await dagrun.replay(RUN, journal=journal)).pending[0]


@asynccontextmanager
async def _awake(journal: MemoryJournal) -> AsyncIterator[tuple[dagrun.Run, Question]]:
    async with dagrun.start(PLAN, tools=[pay], journal=journal, run_id=RUN, attended=True) as run:
        await settle()
        yield run, run.pending[0]


@pytest.mark.parametrize(("first", "second"), [(YES, NO), (NO, YES)])
async def test_of_two_answers_to_a_sleeping_run_the_first_counts(first: Answer, second: Answer) -> None:
    journal, question = await _asleep()

    assert await leave_answer(journal, RUN, question.id, first)
    with pytest.raises(AnswerRefused, match=f"it was answered already: {first.choice} by {first.by}"):
        await leave_answer(journal, RUN, question.id, second)
    assert await leave_answer(journal, RUN, question.id, first)  # sent again, as by a client that lost the reply

    async with dagrun.resume(RUN, tools=[pay], journal=journal) as run:
        await run.result()
    assert ([5] if first is YES else []) == PAID
    with pytest.raises(AnswerRefused, match=f"it was answered already: {first.choice} by {first.by}"):
        await leave_answer(journal, RUN, question.id, second)


async def test_an_answer_to_a_run_at_work_is_acknowledged_when_it_is_on_record() -> None:
    journal = MemoryJournal()
    async with _awake(journal) as (run, question):
        assert await leave_answer(journal, RUN, question.id, NO)
        assert run.pending == ()
        assert (await run.result()).steps["p"].reason == "a person said no: too dear"


async def test_the_answer_of_the_host_stands_before_one_that_comes_later() -> None:
    journal = MemoryJournal()
    async with _awake(journal) as (run, question):
        await run.answer(question, YES)
        with pytest.raises(AnswerRefused, match="it was answered already: approve by ann"):
            await leave_answer(journal, RUN, question.id, NO)
        with pytest.raises(QuestionNotFound, match="it was answered already: approve by ann"):
            await run.answer(question, NO)
        assert (await run.result()).status is Status.SUCCEEDED


async def test_an_answer_that_the_process_at_the_run_does_not_take_is_not_acknowledged() -> None:
    """It may be stopped, or of a version that takes none."""
    journal, question = await _asleep()
    run_log = await journal.open(RUN)

    assert not await leave_answer(journal, RUN, question.id, YES, seconds=1.0)
    await run_log.aclose()
    assert await leave_answer(journal, RUN, question.id, YES)


async def test_a_late_answer_does_not_wait_for_the_question_to_be_asked_again() -> None:
    """It was refused, so it must not count a day later."""
    journal, plan = MemoryJournal(), Plan(steps=[*PLAN.steps, Step(id="b", tool="pay", args={"n": 6})])
    async with dagrun.start(plan, tools=[pay], journal=journal, run_id=RUN, attended=True) as run:
        await settle()
        question, other = run.pending
        await run.answer(question, NO)
        letter = AnswerMessage.of(question.id, YES, await journal.answer_key(RUN))
        await journal.post(RUN, letter.model_dump_json().encode())
        await settle()
        await run.answer(other, NO)
        await run.result()
    left: list[InboxMessage] = await (await journal.open(RUN)).backlog()
    assert left == []


async def test_an_answer_to_a_question_that_has_become_void_is_refused() -> None:
    journal = MemoryJournal()
    async with _awake(journal) as (run, question):
        run.cancel("p")
        await anyio.sleep(1)
        with pytest.raises(AnswerRefused, match="it needs no answer now"):
            await leave_answer(journal, RUN, question.id, YES)
