"""The `Journal` and `RunLog` protocols: where the records of runs are stored.

With its records, a run that was killed can be resumed, and a run that has ended can be read. A record is one line of
JSON text, which `dagrun.codec` writes and reads. A journal stores these texts in order,
chained by hashes, and decides which process may add to them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from dagrun.errors import JournalError, short_repr

FORMAT: Final = 1  # the format of records; each record contains it


class Durability(StrEnum):
    """The failure that an acknowledged record survives."""

    MEMORY = "memory"  # nothing: it is lost with the process
    PROCESS = "process"  # the end of the process, also by kill -9
    POWER = "power"  # a power cut, if the disk really writes what it acknowledges


@dataclass(frozen=True, slots=True)
class Line:
    """A record as a journal stores it.

    Attributes:
        seq: The number of the record in its run, from 1.
        text: JSON, in UTF-8.
        digest: The hash of this record and all before it, in hex; see `dagrun.journal.hash_chain`.
    """

    seq: int
    text: bytes
    digest: str

    __repr__ = short_repr


@dataclass(frozen=True, slots=True)
class InboxMessage:
    """An answer that another process has left for a run.

    Attributes:
        id: The id by which it is discarded.
        text: JSON, in UTF-8. Anyone with write access may have written it, so it is not trusted.
    """

    id: str
    text: bytes

    __repr__ = short_repr


@dataclass(frozen=True, slots=True)
class Held:
    """A run in a journal, and the process that holds it.

    Attributes:
        run_id: The id of the run.
        owner: The owner in words (``process 123 on host``); empty if there is none.
        is_held: Whether the run cannot be opened now, because its owner lives or its lease has not expired.
    """

    run_id: str
    owner: str = ""
    is_held: bool = False


class RunLog(Protocol):
    """The records of one run, opened by the only process that may add to them.

    Attributes:
        run_id: The id of the run.
        durability: What its acknowledged records survive.
        lines: The records that existed when the run log was opened, checked.
        artifacts: The folder for the files of the run; `None` if the journal stores no files.
        answer_key: As of `Journal.answer_key`. A message without it is ignored; if it is empty, all messages are.
        on_failure: Called once, on the loop, when no record can be added any more: the disk is full, or another process
            has taken over the run (`OwnerLost`). Set by the run.
    """

    run_id: str
    durability: Durability
    lines: Sequence[Line]
    artifacts: Path | None
    answer_key: str
    on_failure: Callable[[JournalError], None]

    def append(self, text: bytes) -> int:
        """Add a record, and return its number. Never waits or fails: `durable` and `on_failure` report errors."""
        ...

    def flush(self) -> None:
        """Pass on the records that were added since the last flush; all of them become durable together, or none."""
        ...

    async def durable(self, seq: int | None = None) -> None:
        """Wait until record *seq* is durable; by default, the last record that was added. Flushes first.

        Raises:
            JournalFailed: The record could not be written.
            OwnerLost: Another process has taken over the run; nothing was written.
        """
        ...

    async def backlog(self) -> list[InboxMessage]:
        """Return the messages that are in the inbox now, oldest first; `inbox` does not return them again."""
        ...

    def inbox(self) -> AsyncIterator[InboxMessage]:
        """Yield the messages that arrive from now on, each once, oldest first; never ends."""
        ...

    async def discard(self, message: str) -> None:
        """Delete a message, after its consequences are durable."""
        ...

    async def aclose(self) -> None:
        """Write the remaining records, and release the run. Raises nothing: `on_failure` reports a failure."""
        ...


@runtime_checkable
class HeldRunLog(RunLog, Protocol):
    """A run log writer that can check whether its process still holds the run. This is optional.

    A process that was stopped (SIGSTOP, a machine that sleeps) may wake after its lease has expired, between the
    instant at which the start of a call became durable and the call itself. Where another process has taken the run
    over meanwhile, the call must not be made.
    """

    async def held(self) -> None:
        """Wait until the last record is durable, and the run is known to be held by this process now.

        Raises:
            JournalFailed: As for `durable`.
            OwnerLost: Another process has taken the run over.
        """
        ...


class Journal(Protocol):
    """Stores the records of runs. One journal may serve many runs at once; its owner closes it.

    Attributes:
        durability: What an acknowledged record survives.
    """

    durability: Durability

    async def create(self, run_id: str) -> RunLog:
        """Create the records of a new run.

        Raises:
            RunExists: There is already a run with this id.
            JournalFailed: The records cannot be written; the message says why.
        """
        ...

    async def open(self, run_id: str, *, steal: bool = False) -> RunLog:
        """Open the records of a run to resume it; its former owner can no longer add records.

        Args:
            run_id: The id of the run.
            steal: Whether to take the run from an owner that still lives.

        Raises:
            RunNotFound: There is no run with this id.
            RunHeld: Another process holds the run.
            JournalDamaged: The records were changed after they were written.
            JournalFailed: The records cannot be written.
        """
        ...

    async def read(self, run_id: str) -> list[Line]:
        """Return the records of a run, checked. Its owner, if there is one, can continue to write.

        Raises:
            RunNotFound: There is no run with this id.
            JournalDamaged: The records were changed after they were written.
        """
        ...

    def artifacts(self, run_id: str) -> Path | None:
        """Return the folder for the files of a run; `None` if the journal stores no files."""
        ...

    async def runs(self) -> list[Held]:
        """Return the runs in the journal, in the order of their ids."""
        ...

    async def answer_key(self, run_id: str) -> str:
        """Return the secret of the run that each answer for it must carry: random, at least 128 bits, as text.

        The journal makes it together with the run, or, for a run of an older version, when it is first asked for. It is
        stored where only the user can read it, and where no tool for files can.

        Raises:
            RunNotFound: There is no run with this id.
        """
        ...

    async def post(self, run_id: str, text: bytes) -> None:
        """Leave a message in the inbox of a run, whether a process holds it or not.

        Raises:
            RunNotFound: There is no run with this id.
            AnswerRefused: Another answer to the same question lies there; see `dagrun.journal.base.check_first`.
        """
        ...

    async def delete(self, run_id: str) -> None:
        """Delete a run and all that belongs to it.

        Raises:
            RunNotFound: There is no run with this id.
            RunHeld: Another process holds the run.
        """
        ...

    async def aclose(self) -> None:
        """Release all resources; called once, after the last run log was closed."""
        ...


@runtime_checkable
class SupportsDurations(Protocol):
    """A journal that also stores how long the calls of each tool took, for the runs of later processes.

    This is optional. The durations change in which order steps start, and when a call counts as slow, but never the
    results of a run. So an error of these methods is logged, and the run continues; a replay does not need them. Each
    engine asks each journal object once.
    """

    async def durations(self) -> dict[str, Any]:
        """Return the stored durations as plain JSON for `Durations.from_dict`; if there are none, empty ones."""
        ...

    async def keep_durations(self, new: dict[str, Any]) -> None:
        """Add the durations of a run, from `Durations.as_dict`, to the stored ones; see `Durations.merge`."""
        ...


# Records as a store keeps them: the number of the first one, one or several texts, and the digest of the last one. The
# values are as they were found, whatever their types; `dagrun.journal.hash_chain.verify` checks them.
StoredRow: TypeAlias = tuple[object, object, object]


@runtime_checkable
class SupportsFollow(Protocol):
    """A journal that can read the new records of a run alone. This is optional.

    This is optional: `dagrun.journal.following` reads the whole record again from a journal without it.
    """

    async def rows_after(self, run_id: str, seq: int) -> list[StoredRow]:
        """Return the records after record *seq*, unchecked, in order; cheap if there are none.

        Args:
            run_id: The run.
            seq: The number of a record that an earlier call of this method, or of `Journal.read`, has returned last.

        Raises:
            RunNotFound: There is no run with this id.
            JournalDamaged: The store was changed or damaged.
        """
        ...


@runtime_checkable
class SupportsNotify(Protocol):
    """A journal that notifies other processes of new records. This is optional: without it, they poll."""

    async def wait_after(self, run_id: str, seq: int, seconds: float) -> bool:
        """Wait until a run has records after *seq*, or has changed hands; for *seconds* at most, or less.

        Args:
            run_id: The run.
            seq: The number of the last record that is known.
            seconds: How long to wait at most.

        Returns:
            Whether there is something new, as far as is known.

        Raises:
            RunNotFound: There is no run with this id.
        """
        ...


@runtime_checkable
class SupportsVersions(Protocol):
    """A journal that reports cheaply which records have changed, for lists of many runs. This is optional."""

    async def marks(self) -> dict[str, str]:
        """Return a short text for each run, by its id, that changes with its record. It does not open the record."""
        ...

    async def held(self, run_id: str) -> Held:
        """Return which process holds a run.

        Raises:
            RunNotFound: There is no run with this id.
        """
        ...


@runtime_checkable
class SupportsSummaryCache(Protocol):
    """A journal that can keep, for lists of runs, a short text about each. This is optional.

    The texts are a help: they may get lost, and none counts once its record has changed.
    """

    async def standings(self, run_ids: Sequence[str]) -> dict[str, bytes]:
        """Return cached summaries by run id; stale ones are left out."""
        ...

    async def keep_standing(self, run_id: str, mark: str, text: bytes) -> None:
        """Keep a text about a run.

        Args:
            run_id: The run.
            mark: What `SupportsVersions.marks` returned for it before its record was read.
            text: The text; a long one is not kept.
        """
        ...
