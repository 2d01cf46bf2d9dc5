"""Actions of the page: answer a question, cancel a step or a run, suspend a run, put a run back into the queue.

A run of this process is told directly; for a run of another process, a message is left in its journal, with the answer
key of the run. Who answers is what the server knows of the request, never what the request says.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, Literal

import anyio
from starlette.responses import JSONResponse, Response

from dagrun.errors import AnswerRefused, ContractError, QuestionNotFound, StepNotFound, shorten
from dagrun.kernel.decide.questions import fault_of
from dagrun.kernel.model.journal import Journal
from dagrun.kernel.model.question import Answer, ControlMessage
from dagrun.observe.question_text import BadAnswer
from dagrun.serve.catalog import QueueRows
from dagrun.serve.feeds import Feed, LiveFeed
from dagrun.serve.guard import problem
from dagrun.serve.questions import AnswerBody, OrderBody
from dagrun.workers.submitting import leave_answer

MOST: Final = 20  # of answers and orders in a second, from all pages together
CLOSED: Final = "this question is closed"


class Actions:
    """Carries out the actions that requests ask for.

    Args:
        journal: The journal in which messages are left; `None` if there are only runs of this process.
        queue: The submitted runs.
    """

    def __init__(self, journal: Journal | None, queue: QueueRows) -> None:
        self._journal = journal
        self._queue = queue
        self._times: deque[float] = deque(maxlen=MOST)

    def _is_too_fast(self) -> bool:
        now = anyio.current_time()
        if len(self._times) == MOST and now - self._times[0] < 1.0:
            return True
        self._times.append(now)
        return False

    async def answer(self, feed: Feed, body: AnswerBody, by: str) -> Response:
        """Answer a question: 200; 409 with the known answer if it is closed; 422 if the answer does not fit."""
        if self._is_too_fast():
            return problem(429, f"more than {MOST} answers in a second")
        question = feed.graph.questions.get(body.question)
        if question is None:
            return problem(409, CLOSED, now=_what_became_of(feed, body.question))
        try:
            answer = body.answer_to(question, by)
        except BadAnswer as error:
            return problem(422, str(error))
        if fault := fault_of(question, answer):
            return problem(422, fault)
        if isinstance(feed, LiveFeed) and not feed.is_over:
            return await self._answer_here(feed, body.question, answer)
        if self._journal is None:
            return problem(409, "this run has ended")
        try:
            counts = await leave_answer(self._journal, feed.run_id, body.question, answer)
        except AnswerRefused as error:
            return problem(409, str(error), now=_what_became_of(feed, body.question))
        return JSONResponse({"taken": False, "counts": counts, "is_held": feed.watch.is_alive})

    async def _answer_here(self, feed: LiveFeed, question: str, answer: Answer) -> Response:
        try:
            await feed.run.answer(question, answer)
        except QuestionNotFound:
            return problem(409, CLOSED, now=_what_became_of(feed, question))
        except (AnswerRefused, ContractError) as error:
            return problem(422, str(error))
        return JSONResponse({"taken": True})

    async def order(self, feed: Feed, order: Literal["cancel", "suspend"], body: OrderBody, by: str) -> Response:
        """Order a run to stop: 202, and the stream shows the effects; 409 if no process runs it.

        A submitted run can be cancelled, too, while no process is at it.
        """
        if self._is_too_fast():
            return problem(429, f"more than {MOST} orders in a second")
        if body.step is not None and body.step not in feed.graph.nodes:
            return problem(422, f"the run has no step {shorten(body.step, 60)}")
        facts: dict[str, Any] = {"control": order, "step": body.step or "", "reason": body.reason, "by": by}
        message = ControlMessage(after=max(1, feed.watch.seq), **facts)
        if feed.is_over or not feed.watch.is_alive:
            is_whole = order == "cancel" and body.step is None and not feed.is_over
            done = await self._queue.cancel(feed.run_id, body.reason, by) if is_whole else None
            return done or problem(409, "no process is at this run")
        if not isinstance(feed, LiveFeed):
            return await self._post(feed, message)
        try:
            if order == "suspend":
                feed.run.suspend(message.text)
            else:
                feed.run.cancel(body.step, message.text)
        except (ContractError, StepNotFound) as error:
            return problem(422, str(error))
        return JSONResponse({"taken": True}, 202)

    async def requeue(self, feed: Feed) -> Response:
        """Put a run back into the queue: 202; 409 if it is neither stuck nor waiting there."""
        if self._is_too_fast():
            return problem(429, f"more than {MOST} orders in a second")
        return await self._queue.put_back(feed.run_id)

    async def _post(self, feed: Feed, order: ControlMessage) -> Response:
        """Leave an order for the process at the run, or for the next one."""
        if self._journal is None:
            return problem(409, "this run has ended")
        message = order.model_copy(update={"key": await self._journal.answer_key(feed.run_id)})
        await self._journal.post(feed.run_id, message.model_dump_json().encode())
        return JSONResponse({"taken": False, "is_held": feed.watch.is_alive}, 202)


def _what_became_of(feed: Feed, question: str) -> dict[str, Any] | None:
    """Return how a question was answered, as the view shows it; `None` if nothing is known of it."""
    found = (known for known in feed.watch.document("none")["questions"] if known["id"] == question)
    known = next(found, None)
    if known is None:
        return None
    return {"answer": known["answer"], "why_void": known["why_void"], "answered_at": known["answered_at"]}
