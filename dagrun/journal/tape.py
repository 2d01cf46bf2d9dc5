"""The records of one run in the hands of its owner, where something beside the loop writes them."""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import anyio
from anyio.lowlevel import EventLoopToken, current_token

from dagrun.errors import JournalError, JournalFailed
from dagrun.journal.handover import WriteQueue
from dagrun.model.journal import Durability, Letter, Line
from dagrun.runtime.backend import call_soon


class DurableWaiters:
    """An event for each record that somebody waits for. One who was cancelled meanwhile costs nothing but its event."""

    __slots__ = ("_events", "_seqs")

    def __init__(self) -> None:
        self._events: dict[int, anyio.Event] = {}
        self._seqs: list[int] = []

    @property
    def first(self) -> int:
        """The first record that somebody waits for; 0 if nobody waits."""
        return self._seqs[0] if self._seqs else 0

    def event(self, seq: int) -> anyio.Event:
        """The event of record *seq*, set when it is durable or never will be."""
        event = self._events.get(seq)
        if event is None:
            event = self._events[seq] = anyio.Event()
            heapq.heappush(self._seqs, seq)
        return event

    def wake(self, upto: int) -> bool:
        """Wake those who wait for record *upto* or one before; say whether there were any."""
        count = len(self._seqs)
        while self._seqs and self._seqs[0] <= upto:
            self._events.pop(heapq.heappop(self._seqs)).set()
        return len(self._seqs) < count

    def wake_all(self) -> None:
        """Wake everybody."""
        for event in self._events.values():
            event.set()
        self._events.clear()
        self._seqs.clear()


class AnswerInbox(Protocol):
    """The letters of a run, as its owner gets them: an iterator that waits for more, until it is closed."""

    def __aiter__(self) -> AsyncIterator[Letter]:
        """Itself."""
        ...

    async def __anext__(self) -> Letter:
        """The oldest letter that was not given yet."""
        ...

    async def backlog(self) -> list[Letter]:
        """The letters that lie there now, and were not given yet."""
        ...

    def close(self) -> None:
        """End the waiting; on the loop."""
        ...


InboxT = TypeVar("InboxT", bound=AnswerInbox)
WriterT = TypeVar("WriterT", bound=WriteQueue)


class BufferedTape(Generic[InboxT, WriterT]):
    """A tape whose records are handed over to a writer.

    Args:
        run_id: The run.
        durability: What its acknowledged records survive.
        lines: The records that are there.
        artifacts: The folder for its files, if there is one.
        inbox: The letters for it.
        start: Starts the writer, given what it calls to be heard.
    """

    def __init__(
        self,
        run_id: str,
        durability: Durability,
        lines: Sequence[Line],
        artifacts: Path | None,
        *,
        inbox: InboxT,
        start: Callable[[Callable[[], None]], WriterT],
    ) -> None:
        self.run_id = run_id
        self.durability = durability
        self.lines = lines
        self.artifacts = artifacts
        self.on_failure: Callable[[JournalError], None] = _ignore
        self._inbox = inbox
        self._loop: EventLoopToken = current_token()
        self._last = self._flushed = len(lines)
        self._waiting = DurableWaiters()
        self._ended = anyio.Event()
        self._is_closed = False
        self._writer = start(lambda: call_soon(self._loop, self._hear))
        self._add = self._writer.texts.append

    def append(self, text: bytes) -> int:
        """Add a record, and give its number."""
        self._add(text)
        self._last += 1
        return self._last

    def flush(self) -> None:
        """Hand on what was added since the last time: it becomes durable together, all of it or nothing."""
        if self._last == self._flushed:
            return
        self._flushed = self._last
        if not self._is_closed and not self._writer.has_ended:
            self._writer.put(self._last)

    async def durable(self, seq: int | None = None) -> None:
        """Wait until record *seq* is durable; by default, the last one that was added.

        Raises:
            JournalFailed: It could not be written, or came after the tape was closed.
            OwnerLost: Somebody else has taken the run over; nothing of it was written.
            ValueError: There is no such record.
        """
        self.flush()
        if seq is None:
            seq = self._last
            self._raise_failure()
        elif seq > self._last:
            raise ValueError(f"record {seq} was never added; the last one is {self._last}")
        writer = self._writer
        while writer.acknowledged < seq:
            if writer.has_ended:
                # What was acknowledged before the end is durable all the same.
                if writer.acknowledged < seq:
                    self._raise_failure()
                    raise JournalFailed(f"the tape of run '{self.run_id}' is closed: record {seq} came too late")
                return
            event = self._waiting.event(seq)
            writer.hurry(self._waiting.first)
            # It may have become durable just before the writer was asked to tell.
            if writer.acknowledged < seq and not writer.has_ended:
                await event.wait()

    def letters(self) -> AsyncIterator[Letter]:
        """The letters that others have left, each once, oldest first; waits for more."""
        return self._inbox

    async def backlog(self) -> list[Letter]:
        """The letters that lie there now, oldest first; `letters` does not give them again.

        Raises:
            JournalFailed: They cannot be read.
        """
        return await self._inbox.backlog()

    async def aclose(self) -> None:
        """Write what is left, and let go of the run."""
        self.flush()
        if not self._is_closed:
            self._is_closed = True
            self._inbox.close()
            self._writer.close()
        # It takes no longer than the disk, or the patience with a server or with whoever has locked the database.
        with anyio.CancelScope(shield=True):
            await self._ended.wait()

    def _hear(self) -> None:
        """Look at what the writer has done."""
        writer = self._writer
        if writer.has_ended:
            self._end()
            return
        # Again, if it has gone on between the look and the request.
        while self._waiting.wake(writer.heard()):
            writer.hurry(self._waiting.first)

    def _end(self) -> None:
        self._waiting.wake_all()
        if self._ended.is_set():
            return
        self._ended.set()
        if self._writer.failure is not None:
            self.on_failure(self._writer.failure)

    def _raise_failure(self) -> None:
        failure = self._writer.failure
        if failure is not None and self._writer.has_ended:
            # A new one each time: many tasks may raise it at once.
            raise type(failure)(*failure.args) from failure


def _ignore(_: JournalError) -> None:
    """What a failure calls that nobody wants to hear of."""
