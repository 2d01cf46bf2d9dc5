"""Records in memory: for tests, and for programs that want to read what happened and not to keep it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import anyio
from anyio.lowlevel import EventLoopToken, current_token

from dagrun.decide.durations import Durations
from dagrun.errors import JournalError, JournalFailed, OwnerLost, RunExists, RunHeld
from dagrun.journal.base import Readable, check_letter, check_run_id, no_such_run
from dagrun.journal.hash_chain import chained
from dagrun.model.journal import Durability, Held, Letter, Line
from dagrun.runtime.backend import call_soon


class MemoryJournal(Readable):
    """Keeps the records of runs until the process ends, or the journal is forgotten.

    It has no thread and reads no clock, so it works on virtual time. Several parts of one program may share it, all
    on one event loop; each run has one owner at a time, as in any journal.
    """

    durability = Durability.MEMORY
    tape_type: ClassVar[type[MemoryTape]]

    def __init__(self) -> None:
        self._runs: dict[str, _KeptRun] = {}
        self._durations = Durations()

    async def create(self, run_id: str) -> MemoryTape:
        """Begin the records of a new run.

        Raises:
            RunExists: There is one of this name.
            JournalFailed: No run may be called so.
        """
        check_run_id(run_id)
        if run_id in self._runs:
            raise RunExists(f"there is a run '{run_id}' in this journal already; choose another id")
        kept = self._runs[run_id] = _KeptRun(run_id)
        return kept.taken(self.tape_type)

    async def open(self, run_id: str, *, steal: bool = False) -> MemoryTape:
        """Take over a run, to go on with it: its former owner cannot add to it any more.

        Raises:
            RunNotFound: There is none of this name.
            RunHeld: Its tape is not closed, and *steal* is false.
        """
        kept = self._find(run_id)
        if kept.owner is not None and not steal:
            raise RunHeld(f"run '{run_id}' is held by another tape of this process; close that one first, or steal it")
        return kept.taken(self.tape_type)

    async def read(self, run_id: str) -> list[Line]:
        """Give the records of a run.

        Raises:
            RunNotFound: There is none of this name.
        """
        return self._find(run_id).lines()

    def artifacts(self, run_id: str) -> Path | None:
        """Nowhere: `None`."""
        return None

    async def runs(self) -> list[Held]:
        """The runs that are kept, in the order of their names."""
        return [
            Held(name, "a tape of this process" if kept.owner else "", kept.owner is not None)
            for name, kept in sorted(self._runs.items())
        ]

    async def post(self, run_id: str, text: bytes) -> None:
        """Leave a letter for a run.

        Raises:
            RunNotFound: There is none of this name.
            JournalFailed: The letter is too long.
        """
        kept = self._find(run_id)
        check_letter(text)
        kept.posted += 1
        kept.letters[kept.posted] = text
        if kept.owner is not None:
            kept.owner.knock()

    async def delete(self, run_id: str) -> None:
        """Forget a run.

        Raises:
            RunNotFound: There is none of this name.
            RunHeld: Its tape is not closed.
        """
        if self._find(run_id).owner is not None:
            raise RunHeld(f"run '{run_id}' is held by a tape of this process; close that one first")
        del self._runs[run_id]

    async def durations(self) -> dict[str, Any]:
        """How long the calls of each tool took in all runs so far."""
        return self._durations.as_dict()

    async def keep_durations(self, new: dict[str, Any]) -> None:
        """Add what a run has learned of that.

        Raises:
            RecordRefused: It is not what `Durations.as_dict` gives.
        """
        self._durations.merge(Durations.from_dict(new))

    async def aclose(self) -> None:
        """Nothing to let go of."""

    def _find(self, run_id: str) -> _KeptRun:
        try:
            return self._runs[run_id]
        except KeyError:
            raise no_such_run(run_id) from None


class _KeptRun:
    """What is kept of one run."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.texts: list[bytes] = []
        self.owner: MemoryTape | None = None
        self.letters: dict[int, bytes] = {}  # by the order of posting
        self.posted = 0

    def lines(self) -> list[Line]:
        # The chain is computed when somebody asks: most runs in memory nobody ever reads.
        return chained(self.run_id, self.texts)

    def taken(self, tape_type: type[MemoryTape]) -> MemoryTape:
        """A new tape, which is the owner from now on; the former one is told."""
        former, self.owner = self.owner, tape_type(self)
        if former is not None:
            former.fail(OwnerLost(f"run '{self.run_id}' was taken over by another tape of this process"))
        return self.owner


class MemoryTape:
    """The records of one run, in the hands of the one who may add to them."""

    durability = Durability.MEMORY
    artifacts: Path | None = None

    def __init__(self, kept: _KeptRun) -> None:
        self.run_id = kept.run_id
        self.lines: Sequence[Line] = kept.lines()
        self.on_failure: Callable[[JournalError], None] = _ignore
        self._kept = kept
        self._loop: EventLoopToken = current_token()
        self._letters = _Letters(kept)
        self._unit: list[bytes] = []
        self._last = self._kept_last = len(kept.texts)
        self._failure: JournalError | None = None

    def append(self, text: bytes) -> int:
        """Add a record, and give its number."""
        self._unit.append(text)
        self._last += 1
        return self._last

    def flush(self) -> None:
        """Hand on what was added since the last time."""
        if not self._unit:
            return
        unit, self._unit = self._unit, []
        if self.is_owner():
            self._kept.texts += unit
            self._kept_last = self._last

    def is_owner(self) -> bool:
        """Whether nobody else has taken the run over: the fence."""
        return self._kept.owner is self

    async def durable(self, seq: int | None = None) -> None:
        """Wait until record *seq* is kept; by default, the last one that was added.

        Raises:
            OwnerLost: The run was taken over.
            JournalFailed: The tape was closed before.
            ValueError: There is no such record.
        """
        self.flush()
        if seq is not None and seq > self._last:
            raise ValueError(f"record {seq} was never added; the last one is {self._last}")
        if seq is not None and seq <= self._kept_last:
            return
        if self._failure is not None:
            raise type(self._failure)(*self._failure.args)
        if self._last > self._kept_last:
            raise JournalFailed(f"the tape of run '{self.run_id}' is closed: record {self._last} came too late")

    def letters(self) -> AsyncIterator[Letter]:
        """The letters that others have left, each once, oldest first; waits for more."""
        return self._letters

    async def backlog(self) -> list[Letter]:
        """The letters that lie there now, oldest first; `letters` does not give them again."""
        letters = []
        while (letter := self._letters.take()) is not None:
            letters.append(letter)
        return letters

    def knock(self) -> None:
        """Say that there is a letter."""
        self._letters.knock()

    async def discard(self, letter: str) -> None:
        """Throw a letter away."""
        if letter.isdecimal():
            self._kept.letters.pop(int(letter), None)

    async def aclose(self) -> None:
        """Keep what is left, and let go of the run."""
        self.flush()
        if self.is_owner():
            self._kept.owner = None

    def fail(self, error: JournalError) -> None:
        """Take nothing more; the run is told on its loop, and not in the middle of what it does."""
        self._failure = error
        call_soon(self._loop, lambda: self.on_failure(error))


class _Letters:
    """The letters of a run, as one owner gets them: an iterator that waits for more."""

    def __init__(self, kept: _KeptRun) -> None:
        self._kept = kept
        self._last = 0
        self._has_post = anyio.Event()

    def __aiter__(self) -> _Letters:
        return self

    async def __anext__(self) -> Letter:
        while (letter := self.take()) is None:
            await self._has_post.wait()
        return letter

    def knock(self) -> None:
        self._has_post.set()
        self._has_post = anyio.Event()

    def take(self) -> Letter | None:
        """The oldest letter that was not given yet, if there is one."""
        number = next((number for number in self._kept.letters if number > self._last), None)
        if number is None:
            return None
        self._last = number
        return Letter(str(number), self._kept.letters[number])


def _ignore(_: JournalError) -> None:
    """What a failure calls that nobody wants to hear of."""


MemoryJournal.tape_type = MemoryTape
