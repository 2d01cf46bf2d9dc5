"""Journals: where the records of runs are kept, so that a run that was killed can go on, and one that ended be read.

A record is one line of JSON text. What it says is the business of `dagrun.model.codec.event_codec`; a journal keeps
texts in their order, chained by hashes, and knows who may add to them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from dagrun.errors import JournalError

FORMAT: Final = 1  # of the records; part of each


class Durability(StrEnum):
    """What an acknowledged record survives."""

    MEMORY = "memory"  # nothing: it ends with the process
    PROCESS = "process"  # the end of the process, by kill -9 too
    POWER = "power"  # a power cut, if the disk does what it says


@dataclass(frozen=True, slots=True)
class Line:
    """A record as a journal keeps it.

    Attributes:
        seq: 1 for the first of its run, then one more each.
        text: JSON, in UTF-8.
        digest: Of this record and all before it, in hex; see `dagrun.journal.hash_chain`.
    """

    seq: int
    text: bytes
    digest: str


@dataclass(frozen=True, slots=True)
class Letter:
    """An answer that another process has left for a run.

    Attributes:
        id: By which it is thrown away.
        text: JSON, in UTF-8; it comes from anybody who may write there.
    """

    id: str
    text: bytes


@dataclass(frozen=True, slots=True)
class Held:
    """A run of a journal, and who holds it.

    Attributes:
        run_id: The run.
        owner: Who holds it, in words (``process 123 on host``); empty if nobody does.
        is_held: Whether it could not be opened now: its owner lives, or its lease has not run out.
    """

    run_id: str
    owner: str = ""
    is_held: bool = False


class Tape(Protocol):
    """The records of one run, in the hands of the one who may add to them.

    Attributes:
        run_id: The run.
        durability: What its acknowledged records survive.
        lines: The records that were there when it was opened, checked.
        artifacts: The folder for the files of the run; `None` if the journal keeps none.
        on_failure: Called on the loop, once, when nothing can be added any more: the disk is full, or somebody else
            has taken the run over (`OwnerLost`). Set by the run.
    """

    run_id: str
    durability: Durability
    lines: Sequence[Line]
    artifacts: Path | None
    on_failure: Callable[[JournalError], None]

    def append(self, text: bytes) -> int:
        """Add a record, and give its number. Never waits and never fails: `durable` and `on_failure` tell."""
        ...

    def flush(self) -> None:
        """Hand on what was added since the last time: it becomes durable together, all of it or nothing."""
        ...

    async def durable(self, seq: int | None = None) -> None:
        """Wait until record *seq* is durable; by default, the last one that was added. Flushes first.

        Raises:
            JournalFailed: It could not be written.
            OwnerLost: Somebody else has taken the run over; nothing of it was written.
        """
        ...

    async def backlog(self) -> list[Letter]:
        """The answers that lie there now, oldest first; `letters` does not give them again."""
        ...

    def letters(self) -> AsyncIterator[Letter]:
        """The answers that others leave from now on, each once, oldest first; waits for more, for ever."""
        ...

    async def discard(self, letter: str) -> None:
        """Throw a letter away: what came of it is durable."""
        ...

    async def aclose(self) -> None:
        """Write what is left, and let go of the run. Raises nothing: a failure was told by `on_failure`."""
        ...


class Journal(Protocol):
    """Keeps the records of runs. One may serve many runs at once; whoever has made it closes it.

    Attributes:
        durability: What an acknowledged record survives.
    """

    durability: Durability

    async def create(self, run_id: str) -> Tape:
        """Begin the records of a new run.

        Raises:
            RunExists: There is one of this name.
            JournalFailed: It cannot be written there; the message says why.
        """
        ...

    async def open(self, run_id: str, *, steal: bool = False) -> Tape:
        """Take over a run, to go on with it: its former owner cannot add to it any more.

        Args:
            run_id: The run.
            steal: Whether to take it from an owner that still lives.

        Raises:
            RunNotFound: There is none of this name.
            RunHeld: Another process holds it.
            JournalDamaged: Its records are not what was written.
            JournalFailed: It cannot be written there.
        """
        ...

    async def read(self, run_id: str) -> list[Line]:
        """Give the records of a run, checked; whoever holds it goes on meanwhile.

        Raises:
            RunNotFound: There is none of this name.
            JournalDamaged: Its records are not what was written.
        """
        ...

    def artifacts(self, run_id: str) -> Path | None:
        """The folder for the files of a run; `None` if the journal keeps none."""
        ...

    async def runs(self) -> list[Held]:
        """The runs that are kept, in the order of their names."""
        ...

    async def post(self, run_id: str, text: bytes) -> None:
        """Leave a letter for a run, whoever holds it, if anybody does.

        Raises:
            RunNotFound: There is none of this name.
        """
        ...

    async def delete(self, run_id: str) -> None:
        """Forget a run with all that belongs to it.

        Raises:
            RunNotFound: There is none of this name.
            RunHeld: Another process holds it.
        """
        ...

    async def aclose(self) -> None:
        """Let go of everything; called once, after the last tape was closed."""
        ...


@runtime_checkable
class RemembersDurations(Protocol):
    """A journal that also keeps how long the calls of each tool took, for the runs of later processes.

    No journal needs to. What it keeps is only good to know: it changes in which order steps start and when a slow call
    is called slow, never what a run gives; an error of these methods is logged, and the run goes on. Replay needs none
    of it. A journal is asked once by each engine, which knows it by its identity.
    """

    async def durations(self) -> dict[str, Any]:
        """What is kept, as plain JSON that `Durations.from_dict` reads; that of an empty one if nothing is."""
        ...

    async def keep_durations(self, new: dict[str, Any]) -> None:
        """Add what a run has learned, as `Durations.as_dict` gives it, to what is kept: see `Durations.merge`."""
        ...
