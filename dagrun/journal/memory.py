"""The journal in memory: for tests, and for programs that need no records after they end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import anyio
from anyio.lowlevel import EventLoopToken, current_token

from dagrun.errors import JournalError, JournalFailed, OwnerLost, RunExists, RunHeld
from dagrun.journal.base import (
    HasLetters,
    Readable,
    check_first,
    check_message,
    check_run_id,
    new_answer_key,
    no_such_run,
)
from dagrun.journal.hash_chain import Chain, chained
from dagrun.journal.queue import QueueStatus, Release
from dagrun.kernel.decide.durations import Durations
from dagrun.kernel.model.journal import Durability, Held, InboxMessage, Line, StoredRow
from dagrun.kernel.runtime.backend import call_soon

if TYPE_CHECKING:
    from dagrun.journal.memory_queue import MemoryQueue


class MemoryJournal(Readable):
    """Keeps the records of runs until the process ends, or the journal object is dropped.

    It has no thread and reads no clock, so it works on virtual time. Several parts of one program may share it if all
    run on one event loop. Each run has one owner at a time, as in any journal.
    """

    durability = Durability.MEMORY
    run_log_type: ClassVar[type[MemoryRunLog]]

    def __init__(self) -> None:
        self._runs: dict[str, _KeptRun] = {}
        self._durations = Durations()
        self._queue: MemoryQueue | None = None

    def __repr__(self) -> str:
        return f"<MemoryJournal of {len(self._runs)} run{'s' * (len(self._runs) != 1)}>"

    async def create(self, run_id: str) -> MemoryRunLog:
        """Start the record of a new run.

        Raises:
            RunExists: There is a run of this name.
            JournalFailed: *run_id* is invalid.
        """
        check_run_id(run_id)
        if run_id in self._runs:
            raise RunExists(f"there is a run '{run_id}' in this journal already; choose another id")
        kept = self._runs[run_id] = _KeptRun(run_id)
        return kept.taken(self.run_log_type)

    async def open(self, run_id: str, *, steal: bool = False) -> MemoryRunLog:
        """Take over a run, to resume it: its former owner can no longer add records.

        Raises:
            RunNotFound: There is no run of this name.
            RunHeld: The run log of the run is not closed, and *steal* is false.
        """
        kept = self._find(run_id)
        if kept.owner is not None and not steal:
            raise RunHeld(f"run '{run_id}' is already open in this process; close it first, or steal it")
        run_log = kept.taken(self.run_log_type)
        if self._queue is not None:
            self._queue.opened(run_log)
        return run_log

    async def read(self, run_id: str) -> list[Line]:
        """Return the records of a run.

        Raises:
            RunNotFound: There is no run of this name.
        """
        return list(self._find(run_id).lines())

    async def rows_after(self, run_id: str, seq: int) -> list[StoredRow]:
        """Return the records after record *seq*; see `SupportsFollow`.

        Raises:
            RunNotFound: There is no run of this name.
        """
        return [(line.seq, line.text, line.digest) for line in self._find(run_id).lines()[seq:]]

    async def marks(self) -> dict[str, str]:
        """Return how many records each run has."""
        return {name: str(len(kept.texts)) for name, kept in sorted(self._runs.items())}

    async def held(self, run_id: str) -> Held:
        """Return the holder of a run in this process.

        Raises:
            RunNotFound: There is no run of this name.
        """
        return self._find(run_id).held()

    def artifacts(self, run_id: str) -> Path | None:
        """Return `None`: this journal has no folders."""
        return None

    async def runs(self) -> list[Held]:
        """Return all runs, in the order of their names."""
        return [kept.held() for _, kept in sorted(self._runs.items())]

    async def answer_key(self, run_id: str) -> str:
        """Return the secret that each answer for the run must carry.

        Raises:
            RunNotFound: There is no run of this name.
        """
        return self._find(run_id).answer_key

    async def post(self, run_id: str, text: bytes) -> None:
        """Leave a message in the inbox of a run.

        Raises:
            RunNotFound: There is no run of this name.
            JournalFailed: The message is too long.
            AnswerRefused: Another answer to the same question lies there.
        """
        kept = self._find(run_id)
        check_message(text)
        check_first(text, kept.letters.values())
        kept.posted += 1
        kept.letters[kept.posted] = text
        if kept.owner is not None:
            kept.owner.notify_message()
        if self._queue is not None:
            self._queue.wake(run_id)

    @property
    def queue(self) -> MemoryQueue:
        """The queue of submitted runs, for workers on the same loop; see `dagrun.journal.queue.RunQueue`."""
        if self._queue is None:
            from dagrun.journal.memory_queue import MemoryQueue  # here: most runs are not submitted

            self._queue = MemoryQueue(self)
        return self._queue

    async def delete(self, run_id: str) -> None:
        """Delete a run.

        Raises:
            RunNotFound: There is no run of this name.
            RunHeld: The run log of the run is not closed.
        """
        if self._find(run_id).owner is not None:
            raise RunHeld(f"run '{run_id}' is open in this process; close it first")
        del self._runs[run_id]
        if self._queue is not None:
            self._queue.forget(run_id)

    async def durations(self) -> dict[str, Any]:
        """Return how long the calls of each tool took, in all runs so far."""
        return self._durations.as_dict()

    async def keep_durations(self, new: dict[str, Any]) -> None:
        """Add the durations that a run has measured.

        Raises:
            RecordRefused: *new* is not what `Durations.as_dict` returns.
        """
        self._durations.merge(Durations.from_dict(new))

    async def aclose(self) -> None:
        """Do nothing: there is nothing to release."""

    def _find(self, run_id: str) -> _KeptRun:
        try:
            return self._runs[run_id]
        except KeyError:
            raise no_such_run(run_id) from None


class _KeptRun:
    """The records and the inbox of one run, and its owner."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.texts: list[bytes] = []
        self.owner: MemoryRunLog | None = None
        self.letters: dict[int, bytes] = {}  # by number, in the order of posting
        self.posted = 0
        self.answer_key = new_answer_key()
        self._chain = Chain(run_id)
        self._lines: list[Line] = []

    def lines(self) -> list[Line]:
        # The chain is computed only on request, and once: most runs in memory are never read, others again and again.
        self._lines += chained(self.run_id, self.texts[len(self._lines) :], self._chain)
        return self._lines

    def held(self) -> Held:
        """Return the holder of the run."""
        return Held(self.run_id, "this process" if self.owner else "", self.owner is not None)

    def taken(self, run_log_type: type[MemoryRunLog]) -> MemoryRunLog:
        """Return a new run log, the owner from now on, and report the loss to the former owner."""
        former, self.owner = self.owner, run_log_type(self)
        if former is not None:
            former.fail(OwnerLost(f"run '{self.run_id}' was taken over in this process"))
        return self.owner


class MemoryRunLog(HasLetters):
    """The records of one run, held by its owner."""

    durability = Durability.MEMORY
    artifacts: Path | None = None

    def __init__(self, kept: _KeptRun) -> None:
        self.run_id = kept.run_id
        self.lines: Sequence[Line] = list(kept.lines())
        self.answer_key = kept.answer_key
        self.on_failure: Callable[[JournalError], None] = _ignore
        self._kept = kept
        self._loop: EventLoopToken = current_token()
        self._letters = _Letters(kept)
        self._unit: list[bytes] = []
        self._last = self._kept_last = len(kept.texts)
        self._failure: JournalError | None = None
        self.on_release: Callable[[MemoryRunLog], None] | None = None  # set by the queue, for runs that were submitted
        self.left = Release()

    @property
    def last_text(self) -> bytes:
        """The last record that is kept."""
        return self._kept.texts[-1] if self._kept.texts else b""

    @property
    def has_unread_messages(self) -> bool:
        """Whether there are messages that were not returned yet."""
        return self._letters.has_more

    def leave(self, standing: QueueStatus, reason: str, *, is_untouched: bool = False) -> None:
        """Choose the queue status of a submitted run for its release; see `dagrun.journal.queue.ClaimedRunLog`."""
        self.left.leave(standing, reason, is_untouched=is_untouched)

    def append(self, text: bytes) -> int:
        """Add a record, and return its number."""
        self._unit.append(text)
        self._last += 1
        return self._last

    def flush(self) -> None:
        """Keep the records that were added since the last flush."""
        if not self._unit:
            return
        unit, self._unit = self._unit, []
        if self.is_owner():
            self._kept.texts += unit
            self._kept_last = self._last

    def is_owner(self) -> bool:
        """Return whether this run log still owns the run. This is the fence against former owners."""
        return self._kept.owner is self

    async def durable(self, seq: int | None = None) -> None:
        """Wait until record *seq* is kept; by default, the last one that was added.

        Raises:
            OwnerLost: The run was taken over.
            JournalFailed: The run log was closed before the record was added.
            ValueError: Record *seq* was never added.
        """
        self.flush()
        if seq is not None and seq > self._last:
            raise ValueError(f"record {seq} was never added; the last one is {self._last}")
        if seq is not None and seq <= self._kept_last:
            return
        if self._failure is not None:
            raise type(self._failure)(*self._failure.args)
        if self._last > self._kept_last:
            raise JournalFailed(f"the run log of run '{self.run_id}' is closed: record {self._last} came too late")

    def inbox(self) -> AsyncIterator[InboxMessage]:
        """Return an iterator over the messages, oldest first, each once; it waits for more, forever."""
        return self._letters

    async def backlog(self) -> list[InboxMessage]:
        """Return the messages that are in the inbox now, oldest first; `inbox` does not yield them again."""
        messages = []
        while (message := self._letters.take()) is not None:
            messages.append(message)
        return messages

    def notify_message(self) -> None:
        """Wake the iterator over the messages: a message has arrived."""
        self._letters.notify()

    async def discard(self, message: str) -> None:
        """Delete a message."""
        if message.isdecimal():
            self._kept.letters.pop(int(message), None)

    async def aclose(self) -> None:
        """Keep the last records, and release the run."""
        self.flush()
        if self.is_owner():
            self._kept.owner = None
            if self.on_release is not None:
                self.on_release(self)

    def fail(self, error: JournalError) -> None:
        """Refuse further records; the run is notified by its loop, never in the middle of a change."""
        self._failure = error
        call_soon(self._loop, lambda: self.on_failure(error))


class _Letters:
    """The inbox of a run for one owner: an iterator that waits for more."""

    def __init__(self, kept: _KeptRun) -> None:
        self._kept = kept
        self._last = 0
        self._has_post = anyio.Event()

    def __aiter__(self) -> _Letters:
        return self

    async def __anext__(self) -> InboxMessage:
        while (message := self.take()) is None:
            await self._has_post.wait()
        return message

    def notify(self) -> None:
        self._has_post.set()
        self._has_post = anyio.Event()

    @property
    def has_more(self) -> bool:
        return any(number > self._last for number in self._kept.letters)

    def take(self) -> InboxMessage | None:
        """Return the oldest message that was not returned yet; `None` if there is none."""
        number = next((number for number in self._kept.letters if number > self._last), None)
        if number is None:
            return None
        self._last = number
        return InboxMessage(str(number), self._kept.letters[number])


def _ignore(_: JournalError) -> None:
    """The default `on_failure`."""


MemoryJournal.run_log_type = MemoryRunLog
