"""The queue of records between the loop of a run and the writer of its journal.

The two sides run in different threads, and share a `WriteQueue` without a lock:

1. The loop adds texts, and then the end of their unit, at the right. The writer takes whole units at the left.
2. Each side changes the lists by single calls (`append`, `del` of a slice), which the interpreter does not interrupt.
3. The writer waits while it has nothing to write, or while nothing is urgent. It sets its flags before it looks at the
   queue for the last time; so whatever the loop adds after that look, the loop sees the flags, and wakes the writer.
4. The writer notifies the loop once about a durable record that is awaited, and again only after the loop has looked.
5. Each transaction that finds the run still held moves `seen`. The loop may ask for one at any time: a process that was
   stopped for longer than its lease must not do anything before it has seen that nobody has taken the run over.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable
from typing import Final, TypeAlias

from dagrun.errors import JournalError

MAX_BYTES: Final = 4 * 1024 * 1024  # in one batch

Callback: TypeAlias = Callable[[], None]

# A clock that goes on while the process is stopped, and on Linux also while the machine sleeps.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def uninterrupted_time() -> float:
    """Return seconds on a clock that also runs while the process is stopped."""
    return time.clock_gettime(_CLOCK)


class WriteQueue(ABC):
    """The records that wait for the writer, and how far it has come; the base class of writers.

    Args:
        last: Number of the last durable record.
        most: The most records in one batch.
        lease_seconds: How long the lease lasts after each renewal.
        notify: Called by the writer when the loop should look: at `take_notice`, because an awaited record is durable,
            and at `has_ended` and `failure`.

    Attributes:
        texts: The loop appends records here. The writer takes them after `put` has ended their unit.
        acknowledged: Number of the last durable record.
        has_ended: Whether the writer has ended: nothing more will be written.
        failure: Why the writer ended, if it was not closed.
        seen: When the run was last seen to be held by this process, by `uninterrupted_time`: the time before the
            database was asked.
        held_for: How long after that nobody can take the run over, unless a person lets them, in seconds. Less than a
            lease: SQLite renews one when a third of it is over.
    """

    def __init__(self, last: int, most: int, lease_seconds: float, notify: Callback) -> None:
        self.acknowledged = last
        self.has_ended = False
        self.failure: JournalError | None = None
        self._most = most
        self._notify = notify
        self.held_for = lease_seconds * 2 / 3
        self.seen = uninterrupted_time()
        self._wants_look = False  # set by the loop, taken back by the writer before it reads the clock
        self._awaited = 0  # the first record that a task waits for; 0 for none
        self._has_notified = False
        self.texts: list[bytes] = []
        self._ends: list[int] = []  # number of the last record of each unit
        self._put = self._taken = last  # record numbers: `_put` is set by the loop, `_taken` by the writer
        self._is_waiting = self._is_idle = self._is_closing = False  # idle: it waits with an empty queue

    # On the loop of the run -------------------------------------------------------------------------------------------

    def put(self, seq: int) -> None:
        """End the unit of the added records, up to record *seq*: they become durable together."""
        self._put = seq
        self._ends.append(seq)
        if self._is_waiting and (self._is_idle or self._has_batch):
            self._wake_writer()

    def request_notice(self, seq: int) -> None:
        """Ask the writer to write at once, and to notify when record *seq* is durable; 0 takes the request back."""
        self._awaited = seq
        if seq and self._is_waiting:
            self._wake_writer()

    def request_look(self) -> None:
        """Ask the writer to look whether the run is still held, and to notify when `seen` has moved."""
        self._wants_look = True
        if self._is_waiting:
            self._wake_writer()

    def take_notice(self) -> int:
        """Return the last durable record, and let the writer notify again."""
        self._has_notified = False
        return self.acknowledged

    def close(self) -> None:
        """Ask the writer to write the rest, and to end."""
        self._is_closing = True
        self._wake_writer()

    @abstractmethod
    def _wake_writer(self) -> None:
        """Wake the writer from the thread of the loop."""

    # By the writer ----------------------------------------------------------------------------------------------------

    @property
    def _has_batch(self) -> bool:
        return self._put - self._taken >= self._most

    @property
    def _is_urgent(self) -> bool:
        """Whether to write now, without waiting for more records."""
        return bool(self._awaited) or self._is_closing or self._has_batch or self._wants_look

    def _gather(self) -> list[bytes]:
        """Take as many whole units as fit into a batch; always at least one."""
        ends, taken = self._ends, self._taken
        units = max(1, bisect_right(ends, taken + self._most))
        while units > 1 and sum(map(len, self.texts[: ends[units - 1] - taken])) > MAX_BYTES:
            units //= 2
        self._taken = ends[units - 1]
        batch = self.texts[: self._taken - taken]
        del self.texts[: len(batch)]
        del ends[:units]
        return batch

    def _begin_look(self) -> tuple[float, bool]:
        """Return the time before a transaction that checks the lease, and whether the loop waits for it."""
        is_wanted, self._wants_look = self._wants_look, False
        return uninterrupted_time(), is_wanted

    def _end_look(self, look: tuple[float, bool]) -> None:
        """Note that the run was still held in the committed transaction of *look*."""
        self.seen, is_wanted = look
        if is_wanted:
            self._notify()

    def _acknowledge(self, seq: int) -> None:
        """Mark the records up to *seq* as durable."""
        self.acknowledged = seq
        if 0 < self._awaited <= seq and not self._has_notified:
            self._has_notified = True
            self._notify()
