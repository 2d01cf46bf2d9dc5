"""Answers to the questions of runs that go on in other processes, or wait in their journal."""

from __future__ import annotations

import anyio

from dagrun.api.submitting import held_run
from dagrun.errors import AnswerRefused
from dagrun.journal.following import RecordFollower
from dagrun.model.codec.event_codec import decode
from dagrun.model.event import QuestionAnswered, QuestionAsked
from dagrun.model.journal import Journal
from dagrun.model.question import Answer, AnswerLetter, standing


async def leave_answer(journal: Journal, run_id: str, question: str, answer: Answer, *, seconds: float = 2.0) -> bool:
    """Leave an answer for a run, and find out whether it counts: the first one does, and any other is refused.

    Args:
        journal: The journal that has the record of the run.
        run_id: The run.
        question: The id of the question; the answer fits it.
        answer: The answer.
        seconds: How long the process that holds the run, if there is one, has to take the answer.

    Returns:
        Whether it counts: it is on record, or lies in the journal of a run that nobody holds. False if the process at
        the run has not taken it yet.

    Raises:
        AnswerRefused: The question was answered already, and the message says how; or it needs no answer any more.
        RunNotFound: There is no such run.
    """
    letter = AnswerLetter.of(question, answer, await journal.answer_key(run_id))
    await journal.post(run_id, letter.model_dump_json().encode())
    follower, closed, until = RecordFollower(journal, run_id), None, anyio.current_time() + seconds
    while True:
        is_held = (await held_run(journal, run_id)).is_held  # before the last records are read
        for event in (decode(line.text) for line in await follower.news()):
            if isinstance(event, QuestionAsked) and event.question.id == question:
                closed = None
            elif isinstance(event, QuestionAnswered) and event.question == question:
                closed = event
        if closed is not None:
            _must_be(answer, closed)
        if closed is not None or not is_held or anyio.current_time() >= until:
            return closed is not None or not is_held
        await follower.wait()


def _must_be(answer: Answer, closed: QuestionAnswered) -> None:
    stands = closed.answer
    if stands is None:
        raise AnswerRefused(f"it needs no answer any more: {closed.reason}")
    if (stands.choice, stands.by) != (answer.choice, answer.by):  # the rest may be redacted on record
        raise AnswerRefused(standing(stands))
