"""Answers and orders to stop from other processes: messages in the inbox of the run, in its journal."""

from __future__ import annotations

import logging
import warnings
from hmac import compare_digest
from typing import Final

import anyio
from anyio.abc import TaskGroup
from pydantic import ValidationError

from dagrun.errors import AnswerRefused, JournalError, QuestionNotFound
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.model.journal import InboxMessage, RunLog
from dagrun.kernel.model.question import AnswerMessage, ControlMessage, read_message
from dagrun.kernel.model.signature import explain
from dagrun.kernel.runtime.people.human_input import HumanInput
from dagrun.kernel.runtime.run_callbacks import RunCallbacks

_LOG: Final = logging.getLogger("dagrun.run")


class MessagesFromJournal:
    """Reads the inbox of one run: answers its questions, and passes on orders to stop.

    A message must carry the answer key of the run. Tools cannot read the key, so no plan can answer its own questions.
    A message to a question that is not open may be early: it is kept until the question is asked, or the run ends. One
    to a question that was answered meanwhile is thrown away: it must not answer that question if it is asked again.
    An order is for the process that had the run when it was written: one that is older than that is thrown away, so
    that a run which is resumed does not stop at once.

    Args:
        run_log: The run log of the run, where the messages arrive.
        graph: Holds the open questions.
        people: Takes the answers.
        up: Carries out orders, and is told when an answer may have changed the run.

    Attributes:
        has_looked: Whether the messages that were there when the run was opened have been read.
    """

    def __init__(self, run_log: RunLog, graph: LiveGraph, people: HumanInput, up: RunCallbacks) -> None:
        self.has_looked = False
        self._run_log = run_log
        self._graph = graph
        self._people = people
        self._waiting: dict[str, tuple[InboxMessage, AnswerMessage]] = {}
        self._has_warned = False
        self._scope = anyio.CancelScope()
        self._news = anyio.Event()
        self._first = 1
        self._up = up
        up.expects_answers = self._is_expected
        up.asked = self._look_again

    def open(self, tasks: TaskGroup, first: int) -> None:
        """Begin to read, with the messages that are already there.

        Args:
            tasks: The task group of the run.
            first: The number of the first record that this process has written.
        """
        self._first = first
        tasks.start_soon(self._work, name="dagrun messages")

    def close(self) -> None:
        """Stop reading: the run has ended."""
        self._scope.cancel()

    def _is_expected(self) -> bool:
        """Whether a message may answer an open question: one that is unread, or arrived before its question."""
        open_ones = self._graph.questions
        return not self.has_looked or any(reply.question in open_ones for _, reply in self._waiting.values())

    def _look_again(self) -> None:
        if self._waiting:
            self._news.set()

    async def _work(self) -> None:
        with self._scope:
            try:
                await self._read()
            except* JournalError as error:  # if nothing can be written either, the run log reports that
                _LOG.warning("the inbox of the run cannot be read: %s", error.exceptions[0])
                self._waiting.clear()
                self._look_up()

    def _look_up(self) -> None:
        self.has_looked = True
        self._up.on_external_change()  # a run with nobody to answer has waited for this

    async def _read(self) -> None:
        for message in await self._run_log.backlog():
            await self._take(message)
        self._look_up()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._retry)
            inbox = getattr(self._run_log, "inbox", None)
            if inbox is None:
                text = f"{type(self._run_log).__qualname__}.letters is now inbox; letters is removed in 0.4"
                warnings.warn(text, DeprecationWarning, stacklevel=1)
                inbox = getattr(self._run_log, "letters")  # noqa: B009 - until 0.4
            async for message in inbox():
                await self._take(message)

    async def _retry(self) -> None:
        """Apply the early messages again, whenever a question has been asked."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            for message, reply in list(self._waiting.values()):
                await self._answer(message, reply)

    async def _take(self, message: InboxMessage) -> None:
        try:
            content = read_message(message.text)
        except ValidationError as error:
            _LOG.warning("a message in the inbox of the run was discarded: %s", explain(error))
            await self._run_log.discard(message.id)
            return
        if not self._proves_sender(content.key):
            await self._run_log.discard(message.id)
        elif isinstance(content, ControlMessage):
            await self._obey(message, content)
        else:
            await self._answer(message, content)

    def _proves_sender(self, sent: str) -> bool:
        """Return whether a message carries the answer key of the run; the first one without it is logged."""
        key = self._run_log.answer_key
        if key and compare_digest(sent.encode(), key.encode()):
            return True
        if not self._has_warned:  # once: a process that can write messages must not be able to fill the log
            self._has_warned = True
            _LOG.warning(
                "a message in the inbox of the run was ignored: it does not carry the answer key of the run, so a tool "
                "or another program may have written it; answer with dagrun answer"
            )
        return False

    async def _answer(self, message: InboxMessage, reply: AnswerMessage) -> None:
        try:
            self._people.answer([reply.question], reply.answer)
        except QuestionNotFound:
            # When the run is over, or suspended, the next process decides.
            if self._graph.status is not None or self._people.answered(reply.question) is None:
                self._waiting[message.id] = (message, reply)
                return
            _LOG.warning("an answer from elsewhere was thrown away: its question was answered already")
        except AnswerRefused as error:
            _LOG.warning("an answer from elsewhere was refused: %s", error)
        if self._waiting.pop(message.id, None) is not None:
            self._up.on_external_change()  # the run has waited for it, and it may have been refused
        await self._has_used(message)

    async def _obey(self, message: InboxMessage, order: ControlMessage) -> None:
        if order.after < self._first:
            _LOG.warning("an order to stop was thrown away: it is older than the last start of the run")
        else:
            self._up.ordered(order)
        await self._has_used(message)

    async def _has_used(self, message: InboxMessage) -> None:
        # Also if that was the end of the run: a message that has been used must not answer the next question, too.
        with anyio.CancelScope(shield=True):
            await self._run_log.durable()
            await self._run_log.discard(message.id)
