"""Records on their way from the loop of a run to what writes them, and the word back that they are durable."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable
from typing import Final

from dagrun.errors import JournalError

MAX_BYTES: Final = 4 * 1024 * 1024  # in a batch


class WriteQueue(ABC):
    """What the loop of a run and the writer of its records share; they are in different threads.

    Both change it by single steps that need no lock: the loop adds texts, and then the end of their unit, at the right;
    the writer takes many at once at the left. It naps while there is nothing to write, or nobody waits for it, and is
    rung for when that changes.

    Args:
        last: Number of the last record that is durable.
        most: Records in a batch.
        tell: Called by the writer when the loop should look: at `heard`, since somebody waits for it, and at
            `has_ended` and `failure`.

    Attributes:
        texts: Where the loop adds records. Those of a unit are taken when it has been put.
        acknowledged: Number of the last record that is durable.
        has_ended: Whether nothing is written any more.
        failure: Why, if that was not wanted.
    """

    def __init__(self, last: int, most: int, tell: Callable[[], None]) -> None:
        self.acknowledged = last
        self.has_ended = False
        self.failure: JournalError | None = None
        self._most = most
        self._tell = tell
        self._awaited = 0  # the first record that somebody waits for
        self._has_told = False
        self.texts: list[bytes] = []
        self._ends: list[int] = []  # numbers of the last records of units
        self._put = self._taken = last  # numbers of records: one for each side
        self._is_dozing = self._is_idle = self._is_closing = False

    # On the loop of the run -------------------------------------------------------------------------------------------

    def put(self, seq: int) -> None:
        """Hand over what was added, up to record *seq*: it becomes durable together."""
        self._put = seq
        self._ends.append(seq)
        if self._is_dozing and (self._is_idle or self._has_batch):
            self._ring()

    def hurry(self, seq: int) -> None:
        """Have the writer tell when record *seq* is durable, and not wait for more to write along; 0 is for none."""
        self._awaited = seq
        if seq and self._is_dozing:
            self._ring()

    def heard(self) -> int:
        """Give the last record that is durable; the writer tells again when there is more that somebody waits for."""
        self._has_told = False
        return self.acknowledged

    def close(self) -> None:
        """Have the writer write what is left, and end."""
        self._is_closing = True
        self._ring()

    @abstractmethod
    def _ring(self) -> None:
        """Wake the writer; in the thread of the loop."""

    # By the writer ----------------------------------------------------------------------------------------------------

    @property
    def _has_batch(self) -> bool:
        return self._put - self._taken >= self._most

    @property
    def _is_urgent(self) -> bool:
        """Whether what is there is to be written without waiting for more."""
        return bool(self._awaited) or self._is_closing or self._has_batch

    def _gather(self) -> list[bytes]:
        """Take as many whole units as fit into a batch."""
        ends, taken = self._ends, self._taken
        units = max(1, bisect_right(ends, taken + self._most))
        while units > 1 and sum(map(len, self.texts[: ends[units - 1] - taken])) > MAX_BYTES:
            units //= 2
        self._taken = ends[units - 1]
        batch = self.texts[: self._taken - taken]
        del self.texts[: len(batch)]
        del ends[:units]
        return batch

    def _acknowledge(self, seq: int) -> None:
        """Say that the records up to *seq* are durable."""
        self.acknowledged = seq
        if 0 < self._awaited <= seq and not self._has_told:
            self._has_told = True
            self._tell()
