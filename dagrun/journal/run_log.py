"""A run log whose records are written by another thread: the part that SQLite and PostgreSQL share."""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

import anyio
from anyio.lowlevel import EventLoopToken, current_token

from dagrun.errors import JournalError, JournalFailed
from dagrun.journal.base import HasLetters
from dagrun.journal.write_queue import Callback, WriteQueue, uninterrupted_time
from dagrun.kernel.model.journal import Durability, InboxMessage, Line
from dagrun.kernel.runtime.backend import call_soon

# Seconds for which a run that was seen to be held is taken for held. Far below any lease, and above what writing a
# record takes; so a process that was stopped, or whose machine slept, looks again.
FRESH: Final = 0.1


class DurableWaiters:
    """The tasks that wait for a record to become durable: one event for each awaited record.

    The event of a task that was cancelled stays until its record is durable.
    """

    __slots__ = ("_events", "_seqs")

    def __init__(self) -> None:
        self._events: dict[int, anyio.Event] = {}
        self._seqs: list[int] = []

    @property
    def first(self) -> int:
        """The first awaited record; 0 if there is none."""
        return self._seqs[0] if self._seqs else 0

    def event(self, seq: int) -> anyio.Event:
        """Return the event of record *seq*, set when it is durable or never will be."""
        event = self._events.get(seq)
        if event is None:
            event = self._events[seq] = anyio.Event()
            heapq.heappush(self._seqs, seq)
        return event

    def wake(self, upto: int) -> bool:
        """Wake the tasks that wait for a record up to *upto*; return whether there were any."""
        count = len(self._seqs)
        while self._seqs and self._seqs[0] <= upto:
            self._events.pop(heapq.heappop(self._seqs)).set()
        return len(self._seqs) < count

    def wake_all(self) -> None:
        """Wake all tasks."""
        for event in self._events.values():
            event.set()
        self._events.clear()
        self._seqs.clear()


class AnswerInbox(Protocol):
    """The inbox of a run for its owner: an iterator that waits for more, until it is closed."""

    def __aiter__(self) -> AsyncIterator[InboxMessage]:
        """Return the inbox itself."""
        ...

    async def __anext__(self) -> InboxMessage:
        """Return the oldest message that was not returned yet."""
        ...

    async def backlog(self) -> list[InboxMessage]:
        """Return the messages that are in the inbox now, and were not returned yet."""
        ...

    def close(self) -> None:
        """End the iteration; called on the loop."""
        ...


InboxT = TypeVar("InboxT", bound=AnswerInbox)
WriterT = TypeVar("WriterT", bound=WriteQueue)


class BufferedRunLog(HasLetters, Generic[InboxT, WriterT]):
    """A run log that hands its records over to a writer.

    Args:
        run_id: The run.
        durability: What an acknowledged record survives.
        lines: The records that were there when the run was opened.
        artifacts: The folder for the files of the run, if there is one.
        answer_key: The secret that each answer must carry.
        inbox: The messages for the run.
        start: Starts the writer; its argument is the `notify` of `WriteQueue`.
    """

    def __init__(
        self,
        run_id: str,
        durability: Durability,
        lines: Sequence[Line],
        artifacts: Path | None,
        *,
        answer_key: str,
        inbox: InboxT,
        start: Callable[[Callback], WriterT],
    ) -> None:
        self.run_id = run_id
        self.durability = durability
        self.lines = lines
        self.artifacts = artifacts
        self.answer_key = answer_key
        self.on_failure: Callable[[JournalError], None] = _ignore
        self._inbox = inbox
        self._loop: EventLoopToken = current_token()
        self._last = self._flushed = len(lines)
        self._waiters = DurableWaiters()
        self._looked: anyio.Event | None = None  # set when the writer has looked whether the run is still held
        self._ended = anyio.Event()
        self._is_closed = False
        self._writer = start(lambda: call_soon(self._loop, self._check_writer))
        self._add = self._writer.texts.append

    def append(self, text: bytes) -> int:
        """Add a record, and return its number."""
        self._add(text)
        self._last += 1
        return self._last

    def flush(self) -> None:
        """Hand over the records since the last flush as one unit: all of them become durable, or none."""
        if self._last == self._flushed:
            return
        self._flushed = self._last
        if not self._is_closed and not self._writer.has_ended:
            self._writer.put(self._last)

    async def durable(self, seq: int | None = None) -> None:
        """Wait until record *seq* is durable; by default, the last one that was added.

        Raises:
            JournalFailed: The record could not be written, or was added after the run log was closed.
            OwnerLost: Another process has taken the run over; the record was not written.
            ValueError: Record *seq* was never added.
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
                # Look again: the writer may have acknowledged the record just before it ended.
                if writer.acknowledged < seq:
                    self._raise_failure()
                    raise JournalFailed(f"the run log of run '{self.run_id}' is closed: record {seq} came too late")
                return
            event = self._waiters.event(seq)
            writer.request_notice(self._waiters.first)
            # The record may have become durable just before the request.
            if writer.acknowledged < seq and not writer.has_ended:
                await event.wait()

    async def held(self) -> None:
        """Wait until the last record is durable, and the run is known to be held by this process now.

        The lease was checked when the record was written. If the process was stopped since, its lease may have
        expired; then it looks again, and again if it was stopped for the rest of the lease meanwhile.

        Raises:
            JournalFailed: As for `durable`.
            OwnerLost: Another process has taken the run over, whether the record was written or not.
        """
        await self.durable()
        held_for = self._writer.held_for
        limit = min(FRESH, held_for)
        while uninterrupted_time() - self._writer.seen >= limit:
            await self._look()
            limit = held_for  # the look itself may have taken long

    async def _look(self) -> None:
        """Wait until the writer has seen that the run is still held."""
        asked, writer = uninterrupted_time(), self._writer
        while writer.seen < asked:
            self._raise_failure()
            if writer.has_ended:
                raise JournalFailed(f"the run log of run '{self.run_id}' is closed")
            looked = self._looked = self._looked or anyio.Event()
            writer.request_look()
            # The writer may have looked, or ended, just before the request.
            if writer.seen < asked and not writer.has_ended:
                await looked.wait()

    def inbox(self) -> AsyncIterator[InboxMessage]:
        """Return an iterator over the messages, oldest first, each once; it waits for more."""
        return self._inbox

    async def backlog(self) -> list[InboxMessage]:
        """Return the messages that are in the inbox now, oldest first; `inbox` does not yield them again.

        Raises:
            JournalFailed: The messages cannot be read.
        """
        return await self._inbox.backlog()

    async def aclose(self) -> None:
        """Write the last records, and release the run."""
        self.flush()
        if not self._is_closed:
            self._is_closed = True
            self._inbox.close()
            self._writer.close()
        # This takes no longer than the disk, or the patience with the server or with a process that has locked the
        # database.
        with anyio.CancelScope(shield=True):
            await self._ended.wait()

    def _check_writer(self) -> None:
        """Wake the tasks whose records are durable; all of them if the writer has ended."""
        writer = self._writer
        if self._looked is not None:
            self._looked.set()
            self._looked = None
        if writer.has_ended:
            self._end()
            return
        # Again if there were any: the writer may have written more before the new request.
        while self._waiters.wake(writer.take_notice()):
            writer.request_notice(self._waiters.first)

    def _end(self) -> None:
        self._waiters.wake_all()
        if self._ended.is_set():
            return
        self._ended.set()
        if self._writer.failure is not None:
            self.on_failure(self._writer.failure)

    def _raise_failure(self) -> None:
        failure = self._writer.failure
        if failure is not None and self._writer.has_ended:
            # A new error each time: many tasks may raise it at once.
            raise type(failure)(*failure.args) from failure


def _ignore(_: JournalError) -> None:
    """The default `on_failure`."""
