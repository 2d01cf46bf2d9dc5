"""The way to one worker: messages out and in, many at a time, and the certainty that it is still there.

1. One question at a time carries messages, so all that is to be sent in the meantime goes with the next one.
2. A question is under way nearly always: while calls are open, one is held by the worker; without calls, the next one
   follows after `IDLE_SECONDS`. A worker that has answered none for *lost_after* seconds is lost.
3. Once it is lost, it stays so: its calls end, nothing that it says is heard any more, and its actor is killed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final

from dagrun.executors.ray.worker import STOP, Message
from dagrun.executors.wire import CallRequest, is_answer
from dagrun.executors.wire.messages import NEVER_BEGUN
from dagrun.kernel.model.executor import WorkerLost

IDLE_SECONDS: Final = 0.25
_MAX_MESSAGES: Final = 200  # a question; the worker answers the next one when it has begun these calls
_MAX_BYTES: Final = 1 << 20
_MAX_UNDER_WAY: Final = 2  # questions: one is held, and one brings messages
_LATE: Final = 0.5  # seconds that the timer of this loop may be late; later, the loop was blocked


class NeverSent(Exception):
    """The worker was lost before the request of a call had left: nothing has happened."""


class CallLine:
    """The messages of one call from the worker, until its receiver is closed."""

    __slots__ = ("_come", "_link", "_waiter", "id", "is_answered", "is_sent", "is_stopped")

    def __init__(self, link: Link, id: str) -> None:
        self.id = id
        self.is_sent = False
        self.is_answered = False
        self.is_stopped = False
        self._link = link
        self._come: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None

    async def receive(self) -> bytes:
        """Return the next message; `NEVER_BEGUN` for a cancelled call that was never sent.

        Raises:
            NeverSent: The worker is lost, and never got the request; and the call is still wanted.
            WorkerLost: The worker is lost.
        """
        while not self._come:
            if self._link.fault:
                if self.is_sent:
                    raise WorkerLost(self._link.fault)
                if self.is_stopped:
                    return NEVER_BEGUN
                raise NeverSent(self._link.fault)
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._come.popleft()

    async def stop(self) -> None:
        """Tell the worker to cancel the call."""
        self.is_stopped = True
        self._link.send(self.id, STOP)

    def close(self) -> None:
        """Expect no more messages; a call that has not ended is cancelled."""
        self._link.close(self)

    def put(self, message: bytes) -> None:
        """Take a message of the worker."""
        self._come.append(message)
        self.is_answered = is_answer(message)
        self.wake()

    def wake(self) -> None:
        """Wake the receiver."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Link:
    """The way to one worker.

    Args:
        worker: The handle of the actor.
        place: Where it is.
        lost_after: Seconds without an answer after which it is lost.

    Attributes:
        place: As above.
        fault: Why the worker is lost; empty as long as it is not.
    """

    def __init__(self, worker: Any, place: str, lost_after: float) -> None:
        self.place = place
        self.fault = ""
        self._worker = worker
        self._lost_after = lost_after
        self._loop = asyncio.get_running_loop()
        self._lines: dict[str, CallLine] = {}
        self._unanswered = 0  # calls
        self._outgoing: deque[Message] = deque()
        self._is_flushing = False
        self._idle: asyncio.TimerHandle | None = None
        self._under_way = 0
        self._heard = self._loop.time()
        self._number = 0  # of the last answer whose messages were delivered
        self._early: dict[int, list[Message]] = {}  # answers that have overtaken another one
        self._lost = asyncio.Event()

    @property
    def calls(self) -> int:
        """The number of open calls."""
        return len(self._lines)

    def open(self, request: CallRequest) -> CallLine:
        """Send a request, and return the line for the messages of its call."""
        line = self._lines[request.id] = CallLine(self, request.id)
        self._unanswered += 1
        self.send(request.id, request.data)
        return line

    def send(self, id: str, data: bytes) -> None:
        """Send a message at the end of this turn of the loop, together with all others of it."""
        self._outgoing.append((id, data))
        self._flush_soon()

    def close(self, line: CallLine) -> None:
        """Forget a call; one that has not ended is cancelled."""
        if self._lines.pop(line.id, None) is not None and not line.is_answered:
            self._unanswered -= 1
            self.send(line.id, STOP)

    async def run(self) -> None:
        """Receive messages of the worker until it is lost."""
        asyncio.wrap_future(self._worker.run.remote().future()).add_done_callback(self._has_ended)
        self._ask()
        while not self.fault:
            seconds = self._heard + self._lost_after - self._loop.time()
            if seconds < -_LATE:  # this loop was blocked, so nothing could be heard: begin again
                self._heard = self._loop.time()
            elif seconds <= 0:
                self.lose(f"it was not heard of for {self._lost_after:g} s")
            else:
                await self._wait(seconds)

    def lose(self, reason: str) -> None:
        """Give the worker up: end all calls, and receive nothing more from it."""
        if self.fault:
            return
        self.fault = f"the Ray worker on {self.place} is lost: {reason}"
        self._lost.set()
        for line in self._lines.values():
            line.wake()

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._lost.wait()
        except TimeoutError:
            pass

    def _has_ended(self, ended: asyncio.Future[Any]) -> None:
        """React at once to the end of the process, which Ray notices as long as its node lives."""
        error = None if ended.cancelled() else ended.exception()
        self.lose("it has ended by itself" if error is None else _words(error))

    def _flush_soon(self) -> None:
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        if self.fault or self._under_way >= _MAX_UNDER_WAY:
            return  # the end of a question that is under way flushes again
        if self._outgoing or (self._unanswered and not self._under_way):
            self._ask()

    def _ask(self) -> None:
        """Ask the worker for messages, and take those along that wait."""
        self._under_way += 1
        question = self._worker.exchange.remote(self._next_messages())
        asyncio.wrap_future(question.future()).add_done_callback(self._take_answer)

    def _next_messages(self) -> list[Message]:
        messages: list[Message] = []
        size = 0
        while self._outgoing and len(messages) < _MAX_MESSAGES and size < _MAX_BYTES:
            id, data = self._outgoing.popleft()
            line = self._lines.get(id)
            if data != STOP:
                if line is None:
                    continue  # closed before it was sent
                line.is_sent = True
            size += len(data)
            messages.append((id, data))
        return messages

    def _take_answer(self, answer: asyncio.Future[tuple[int, list[Message]]]) -> None:
        """Deliver the messages that have come, and ask the next question when it is time."""
        self._under_way -= 1
        error = None if answer.cancelled() else answer.exception()
        if error is not None:  # one of Ray, or of the worker, which Ray raises here
            self.lose(_words(error))
        if self.fault or answer.cancelled():
            return
        self._heard = self._loop.time()
        number, come = answer.result()
        if number:
            self._early[number] = come
        while self._number + 1 in self._early:
            self._number += 1
            self._deliver(self._early.pop(self._number))
        if self._unanswered or self._outgoing:
            self._flush_soon()
        elif self._idle is None:
            self._idle = self._loop.call_later(IDLE_SECONDS, self._end_idling)

    def _end_idling(self) -> None:
        self._idle = None
        if not self.fault and not self._under_way:
            self._ask()

    def _deliver(self, messages: list[Message]) -> None:
        for id, message in messages:
            if (line := self._lines.get(id)) is None:
                continue
            line.put(message)
            self._unanswered -= line.is_answered


def _words(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0][:300]
