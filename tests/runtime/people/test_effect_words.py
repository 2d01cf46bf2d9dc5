"""Whether a call may be made, and whether it took effect, are two questions with words of their own."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import pytest

import dagrun
from crash_process import RUN
from dagrun import Answer, Asked, Drop, MemoryJournal, Patch, Plan, Question, Replace, State, Status, Step
from dagrun.errors import AnswerRefused, CannotResume, SpliceRefused
from dagrun.kernel.model.question import AnswerMessage, Choice
from keeping import Keeping
from persons import settle
from small_tools import states

pytestmark = pytest.mark.anyio

CALLS: list[str] = []
PLAN: Final = Plan(
    steps=[
        Step(id="mail", tool="send", args={"to": "ann"}),
        Step(id="file", tool="keep", args={"receipt": "${mail}"}),
        Step(id="other", tool="keep", args={"receipt": "none"}),
    ]
)


@dagrun.tool(effect="effectful")
async def send(to: str) -> str:
    """Send a mail; the server refuses it, and nobody knows that it did."""
    CALLS.append(to)
    raise RuntimeError("550 mailbox not found")


@dagrun.tool(effect="effectful")
async def tell(to: str) -> None:
    """Send a mail, of which nothing is returned."""
    CALLS.append(to)
    raise RuntimeError("550 mailbox not found")


@dagrun.tool(effect="pure")
async def keep(receipt: str) -> str:
    """Return the receipt."""
    return receipt


TOOLS: Final = (send, tell, keep)


@pytest.fixture(autouse=True)
def no_calls() -> None:
    CALLS.clear()


@asynccontextmanager
async def _held(plan: Plan = PLAN) -> AsyncIterator[dagrun.Run]:
    """Start a plan, let it come to its question, and cancel it in the end."""
    async with dagrun.start(plan, tools=TOOLS, attended=True) as run:
        await settle()
        try:
            yield run
        finally:
            run.cancel()


@pytest.mark.parametrize("said", [True, False, Answer("approve", "sent"), Answer("deny")])
async def test_words_of_an_approval_do_not_say_whether_a_call_took_effect(said: Any) -> None:
    """The question stays open, and nothing is called again."""
    async with _held() as run:
        (question,) = run.pending
        with pytest.raises(
            AnswerRefused, match=r"one of took_effect, did_not, unknown, escalate, not '(approve|deny)'"
        ):
            await run.answer(question, said)
        assert (question.kind, run.pending, len(CALLS)) == (Asked.EFFECT, (question,), 1)


@pytest.mark.parametrize("word", ["took_effect", "did_not", "unknown"])
async def test_words_about_an_effect_approve_nothing(word: Choice) -> None:
    plan = Plan(steps=[Step(id="mail", tool="send", args={"to": "ann"}, pause="before")])
    async with _held(plan) as run:
        with pytest.raises(AnswerRefused, match="one of approve, deny, escalate"):
            await run.answer(run.pending[0], Answer(word))
        assert CALLS == []


@pytest.mark.parametrize("says", [True, False, None, Answer("approve", "sent"), Answer("deny")])
async def test_an_approver_that_says_the_same_to_everything_does_not_know(says: Any) -> None:
    """One that approves hides no failure, and one that denies has nothing called again."""

    async def person(question: Question) -> Any:
        return says

    result = await dagrun.run(PLAN, tools=TOOLS, approver=person)

    assert (result.status, states(result)["mail"], len(CALLS)) == (Status.UNKNOWN, "unknown", 1)


@pytest.mark.parametrize("word", ["approve", "deny", "took_effect"])
async def test_an_answer_from_elsewhere_is_held_to_the_same_words(word: Choice) -> None:
    journal = MemoryJournal()
    assert (await dagrun.run(PLAN, tools=TOOLS, journal=journal, run_id=RUN)).status is Status.WAITING
    (question,) = (await dagrun.replay(RUN, journal=journal)).pending
    letter = AnswerMessage.of(question.id, Answer(word, "sent"), await journal.answer_key(RUN))
    await journal.post(RUN, letter.model_dump_json().encode())

    async with dagrun.resume(RUN, tools=TOOLS, journal=journal) as run:
        result = await run.result()

    assert len(CALLS) == 1
    assert result.status is (Status.SUCCEEDED if word == "took_effect" else Status.WAITING)


async def test_the_question_says_why_and_which_words_it_takes() -> None:
    async with _held() as run:
        shown = run.pending[0].as_dict()
        assert shown["why"].startswith("RuntimeError: 550 mailbox not found")
        assert shown["choices"] == ["took_effect", "did_not", "unknown", "escalate"]
        assert all(word in shown["text"] for word in ("took_effect", "did_not, so it is called again", "unknown"))
        assert shown["schema"]["type"] == "string"


@pytest.mark.parametrize("says", [Answer("took_effect", "sent"), Answer("unknown"), None])
async def test_the_error_is_logged_whatever_is_answered(says: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def person(question: Question) -> Any:
        return says

    await dagrun.run(PLAN, tools=TOOLS, approver=person)

    warned = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING and "550" in r.getMessage()]
    assert warned
    assert warned[0].startswith("step mail may or may not have taken effect: RuntimeError: 550 mailbox not found")


# Known to have taken effect, without its output -----------------------------------------------------------------------


async def _without_output(tool: str = "send", **fields: Any) -> tuple[dagrun.RunResult, MemoryJournal]:
    async def person(question: Question) -> Answer:
        return Answer("took_effect", by="ann")

    journal = MemoryJournal()
    first, others = Step(id="mail", tool=tool, args={"to": "ann"}, **fields), PLAN.steps[1:]
    plan = Plan(steps=[first, *(others if tool == "send" else ())])
    result = await dagrun.run(plan, tools=TOOLS, approver=person, journal=journal, run_id=RUN)
    return result, journal


async def test_what_took_effect_without_its_output_has_failed_and_is_not_in_doubt() -> None:
    """A success would hand null to whoever reads it as a text."""
    result, journal = await _without_output()

    assert states(result) == {"mail": "failed", "file": "skipped", "other": "succeeded"}
    assert (result.status, len(CALLS)) == (Status.FAILED, 1)
    text = "a person knows that it took effect, but not what send returned (RuntimeError: 550 mailbox not found"
    assert result.steps["mail"].reason.startswith(text)
    past = await dagrun.replay(RUN, journal=journal)
    assert {id_: str(state) for id_, state in past.states.items()} == states(result)


async def test_it_is_not_called_again_by_a_retry_of_the_run() -> None:
    _, journal = await _without_output()

    with pytest.raises(CannotResume, match="a person knows that these took effect: mail"):
        async with dagrun.retry(RUN, tools=TOOLS, journal=journal):
            pass
    assert len(CALLS) == 1


@pytest.mark.parametrize("to", ["ann", "bob"])
async def test_no_patch_calls_it_again(to: str) -> None:
    """What has failed so is bound to its call, as any failure of a call that may have gone through."""
    async with _held() as run:
        await run.splice(Patch(edits=[Drop(id="file")]))
        await run.answer(run.pending[0], Answer("took_effect"))
        await settle()
        new = Step(id="again", tool="send", args={"to": to})
        with pytest.raises(SpliceRefused):
            await run.splice(Patch(edits=[Replace(id="mail", step=new)]))
    assert CALLS == ["ann"]


async def test_its_default_takes_the_place_of_its_output() -> None:
    result, _ = await _without_output(on_failure="default", default="no receipt")

    assert (result.status, result.steps["file"].output, len(CALLS)) == (Status.SUCCEEDED, "no receipt", 1)


async def test_a_tool_that_returns_nothing_needs_no_output() -> None:
    result, _ = await _without_output("tell")

    assert (states(result)["mail"], len(CALLS)) == ("succeeded", 1)


async def test_an_output_of_another_type_is_refused() -> None:
    async with _held() as run:
        with pytest.raises(AnswerRefused, match="must be of type string, got"):
            await run.answer(run.pending[0], Answer("took_effect", 17))
        assert run.states["mail"] is State.HELD


# Records of the first releases ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("new", "old"), [("took_effect", "approve"), ("did_not", "deny")])
async def test_a_record_with_the_old_words_reads_as_it_did(new: str, old: str) -> None:
    said = [Answer(cast("Choice", new), "sent" if new == "took_effect" else None)]

    async def person(question: Question) -> Answer:
        return said.pop() if said else Answer("took_effect", "later")

    journal = Keeping()
    result = await dagrun.run(PLAN, tools=TOOLS, approver=person, journal=journal, run_id=RUN)
    texts = [text.replace(f'"choice":"{new}"'.encode(), f'"choice":"{old}"'.encode()) for text in journal.texts]
    before = Keeping()
    before.put(texts)

    assert texts != journal.texts
    past, now = await dagrun.replay(RUN, journal=before), await dagrun.replay(RUN, journal=journal)
    values = [replayed.graph.nodes["file"].value for replayed in (past, now)]
    assert (past.status, past.states, values[0]) == (now.status, now.states, values[1])
    assert result.status is Status.SUCCEEDED
    assert past.graph.nodes["mail"].generation == now.graph.nodes["mail"].generation == (new == "did_not")
