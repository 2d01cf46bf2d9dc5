"""Answers to a tool amid its call are on record, and given again when the call is made again after a crash."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import pytest

import dagrun
from crash_process import RUN
from dagrun import Answer, MemoryJournal, Plan, Policy, Question, QuestionRule, RetryRule, Status, Step, ToolContext
from dagrun.workers.submitting import leave_answer
from keeping import Keeping
from persons import settle
from small_tools import states

pytestmark = pytest.mark.anyio

TEXT: Final = {"type": "string"}
FIELDS: Final = ("region", "month", "region", "currency")
CALLS: list[str] = []


@dagrun.tool(effect="read")
async def form(context: ToolContext) -> list[str]:
    """Ask for each field; one of them twice."""
    CALLS.append(context.idempotency_key)
    return [await context.ask(f"Which {name}?", schema=TEXT) for name in FIELDS]


@dagrun.tool(effect="effectful")
async def book(context: ToolContext) -> str:
    """Ask, and book."""
    CALLS.append(context.idempotency_key)
    return f"booked {await context.ask('Which seat?', schema=TEXT)}"


@dagrun.tool(effect="pure")
async def nap(seconds: float) -> None:
    """Sleep."""
    await anyio.sleep(seconds)


TOOLS: Final = (form, book)


@pytest.fixture(autouse=True)
def no_calls() -> None:
    CALLS.clear()


def _said(question: Question, number: int) -> Answer:
    return Answer("approve", f"{question.text} {number}", by="ann")


WANTED: Final = [f"Which {name}? {number}" for number, name in enumerate(FIELDS)]


@asynccontextmanager
async def _process(journal: Keeping, *, is_first: bool) -> AsyncIterator[dagrun.Run]:
    """Start or resume the run; a host is there, who has not answered."""
    plan = Plan(steps=[Step(id="form", tool="form")])
    begun = (
        dagrun.start(plan, tools=TOOLS, journal=journal, run_id=RUN, attended=True)
        if is_first
        else dagrun.resume(RUN, tools=TOOLS, journal=journal, attended=True)
    )
    async with begun as run:
        await settle()
        try:
            yield run
        finally:
            run.cancel()


def _as_left(journal: Keeping) -> Keeping:
    """The record as it is now: what a process leaves behind that is killed."""
    left = Keeping()
    left.put(list(journal.texts))
    return left


async def test_a_form_of_n_questions_completes_over_n_crashes() -> None:
    """Each process gets one answer, and is killed. No field is asked about twice, or gets the answer of another."""
    journal, asked = Keeping(), list[str]()
    for number in range(len(FIELDS)):
        async with _process(journal, is_first=number == 0) as run:
            (question,) = run.pending
            asked.append(question.text)
            await run.answer(question, _said(question, number))
            journal = _as_left(journal)
    async with dagrun.resume(RUN, tools=TOOLS, journal=journal, attended=True) as run:
        result = await run.result()

    assert asked == [f"Which {name}?" for name in FIELDS]
    assert (result.status, result.output) == (Status.SUCCEEDED, WANTED)


async def test_with_a_journal_and_nobody_there_the_run_waits_and_each_answer_brings_it_further() -> None:
    """The answer comes while no process is at the run, and finds its question when the call is made again."""
    journal, plan = MemoryJournal(), Plan(steps=[Step(id="form", tool="form")])
    result = await dagrun.run(plan, tools=TOOLS, journal=journal, run_id=RUN)
    for number in range(len(FIELDS)):
        assert (result.status, result.reason) == (Status.WAITING, "nobody is there to answer about form")
        (question,) = (await dagrun.replay(RUN, journal=journal)).pending
        assert await leave_answer(journal, RUN, question.id, _said(question, number))
        async with dagrun.resume(RUN, tools=TOOLS, journal=journal) as run:
            result = await run.result()

    assert (result.status, result.output, len(CALLS)) == (Status.SUCCEEDED, WANTED, len(FIELDS) + 1)


async def test_several_tools_that_ask_wait_together() -> None:
    """Also those that stand in line to ask."""
    journal = MemoryJournal()
    plan = Plan(steps=[Step(id=name, tool="form") for name in "abc"])

    result = await dagrun.run(
        plan, tools=TOOLS, journal=journal, run_id=RUN, policy=Policy(questions=QuestionRule(max_pending=2))
    )

    assert result.status is Status.WAITING
    assert len((await dagrun.replay(RUN, journal=journal)).pending) == 2


async def test_the_run_waits_for_people_when_the_last_other_step_has_ended() -> None:
    """It never ended, as its call that asks was still running."""
    plan = Plan(steps=[Step(id="form", tool="form"), Step(id="nap", tool="nap", args={"seconds": 5.0})])

    result = await dagrun.run(plan, tools=(form, nap), journal=MemoryJournal(), run_id=RUN)

    assert (result.status, states(result)["nap"], result.makespan) == (Status.WAITING, "succeeded", 5.0)


async def test_a_call_that_must_not_be_repeated_is_not_left_in_its_middle() -> None:
    """It would be in doubt when the run is resumed; its tool says that nothing happened."""
    plan = Plan(steps=[Step(id="book", tool="book")])

    result = await dagrun.run(plan, tools=TOOLS, journal=MemoryJournal(), run_id=RUN)

    assert (states(result), result.status) == ({"book": "failed"}, Status.FAILED)
    assert result.steps["book"].reason == "nobody has answered: Which seat?"


async def test_an_attempt_that_has_ended_by_itself_asks_anew() -> None:
    """What was answered may be why it has failed."""
    said: list[Any] = ["one", "two"]

    @dagrun.tool(effect="read")
    async def pick(context: ToolContext) -> str:
        seat: str = await context.ask("Which seat?", schema=TEXT)
        if seat == "one":
            raise ConnectionError("the line is lost")
        return seat

    async def person(question: Question) -> Answer:
        return Answer("approve", said.pop(0))

    policy = Policy(retry=RetryRule(max_attempts=2, first_delay=0))
    result = await dagrun.run(Plan(steps=[Step(id="p", tool="pick")]), tools=[pick], approver=person, policy=policy)

    assert (result.output, said) == ("two", [])


@pytest.mark.parametrize("ends", [lambda run: run.suspend("later"), lambda run: run.cancel()])
async def test_a_question_in_the_middle_of_a_call_stays_open_when_the_run_is_suspended(
    ends: Callable[[dagrun.Run], object],
) -> None:
    journal = Keeping()
    async with _process(journal, is_first=True) as run:
        ends(run)
        result = await run.result()

    pending = (await dagrun.replay(RUN, journal=journal)).pending
    assert [question.text for question in pending] == (["Which region?"] if result.reason == "later" else [])


async def test_a_no_that_comes_while_the_run_is_being_suspended_is_taken() -> None:
    """The call that asked cleans up; no attempt has an end on record that the step could fail with."""

    @dagrun.tool(effect="read")
    async def asks(context: ToolContext) -> str:
        """Ask, and take half a second to clean up."""
        try:
            return str(await context.ask("Which region?", schema=TEXT))
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.5)

    journal = MemoryJournal()
    plan = Plan(steps=[Step(id="a", tool="asks")])
    async with dagrun.start(plan, tools=[asks], journal=journal, run_id=RUN, attended=True) as run:
        await settle()
        run.suspend()
        await anyio.sleep(0.1)
        await run.answer(run.pending, Answer("deny"))
        assert (await run.result()).status is Status.CANCELLED
    async with dagrun.resume(RUN, tools=[asks], journal=journal, attended=True) as again:
        await again.result()
    assert again.states["a"].is_settled
