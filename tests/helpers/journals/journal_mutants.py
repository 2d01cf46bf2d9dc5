"""Broken journals: each does one thing wrong that a store could do wrong, and the suite must notice every one."""

from __future__ import annotations

import unicodedata
from collections.abc import AsyncIterator, Sequence

import anyio

from dagrun import Durability, MemoryJournal
from dagrun.errors import JournalError, RunExists, RunHeld
from dagrun.journal.base import new_answer_key
from dagrun.journal.hash_chain import chained
from dagrun.journal.memory import MemoryRunLog
from dagrun.kernel.model.journal import Held, InboxMessage, Line, StoredRow


def mutant(run_log: type[MemoryRunLog]) -> type[MemoryJournal]:
    """A journal that hands out broken run logs."""
    return type(run_log.__name__, (MemoryJournal,), {"run_log_type": run_log, "__doc__": run_log.__doc__})


class SplitsUnits(MemoryRunLog):
    """Writes the records of a unit one after the other, so that a reader may find half of it."""

    def append(self, text: bytes) -> int:
        seq = super().append(text)
        super().flush()
        return seq


class NoFence(MemoryRunLog):
    """Lets a former owner write on."""

    def is_owner(self) -> bool:
        return True


class NeverLetsGo(MemoryRunLog):
    """Holds the run after it was closed."""

    async def aclose(self) -> None:
        self.flush()


class LosesTheLast(MemoryRunLog):
    """Drops at the end what was not flushed."""

    async def aclose(self) -> None:
        self._unit.clear()
        await super().aclose()


class CountsFromOne(MemoryRunLog):
    """Numbers the records of each opening anew."""

    def append(self, text: bytes) -> int:
        return super().append(text) - len(self.lines)


class WaitsWithoutFlush(MemoryRunLog):
    """Says that a record is durable which it has not handed on."""

    async def durable(self, seq: int | None = None) -> None:
        unit, self._unit = self._unit, []
        await super().durable(None if seq is None else min(seq, self._kept_last))
        self._unit = unit


class SaysYes(MemoryRunLog):
    """Acknowledges whatever becomes of it."""

    async def durable(self, seq: int | None = None) -> None:
        self.flush()


class WaitsForNobody(MemoryRunLog):
    """Takes any number for durable."""

    async def durable(self, seq: int | None = None) -> None:
        await super().durable(None if seq is None else min(seq, self._last))


class TellsNobody(MemoryRunLog):
    """Does not say that it has lost the run."""

    def fail(self, error: JournalError) -> None:
        self._failure = error


class TellsTwice(MemoryRunLog):
    """Says so twice."""

    def fail(self, error: JournalError) -> None:
        super().fail(error)
        super().fail(error)


class TellsTheWrongThing(MemoryRunLog):
    """Calls a theft by another name."""

    def fail(self, error: JournalError) -> None:
        super().fail(JournalError(*error.args))


class LosesCancelled(MemoryRunLog):
    """Forgets a record whose waiter was cancelled."""

    async def durable(self, seq: int | None = None) -> None:
        unit, self._unit = self._unit, []
        await anyio.lowlevel.checkpoint()
        self._unit = unit
        await super().durable(seq)


class DropsOwnersAtAll(MemoryRunLog):
    """Lets go of the run for whoever has it, when an old run log is closed."""

    async def aclose(self) -> None:
        await super().aclose()
        self._kept.owner = None


class RaisesOnClose(MemoryRunLog):
    """Cannot be closed twice."""

    async def aclose(self) -> None:
        assert not hasattr(self, "is_closed")
        self.is_closed = True
        await super().aclose()


class ClosesByChance(MemoryRunLog):
    """Does not write what is left when it is closed by a task that was cancelled."""

    async def aclose(self) -> None:
        await anyio.lowlevel.checkpoint()
        await super().aclose()


class GrowingLines(MemoryRunLog):
    """Shows what it writes itself among the records of its opening."""

    @property
    def lines(self) -> Sequence[Line]:
        return self._kept.lines()

    @lines.setter
    def lines(self, _: Sequence[Line]) -> None:
        pass


class Composes(MemoryRunLog):
    """Puts texts into Unicode's normal form."""

    def append(self, text: bytes) -> int:
        return super().append(unicodedata.normalize("NFC", text.decode()).encode())


class Strips(MemoryRunLog):
    """Takes the spaces at the ends away."""

    def append(self, text: bytes) -> int:
        return super().append(text.strip())


class CutsMarks(MemoryRunLog):
    """Reads texts as a file is read that may begin with a mark of its encoding."""

    def append(self, text: bytes) -> int:
        return super().append(text.replace("\ufeff".encode(), b""))


class CutsBigOnes(MemoryRunLog):
    """Keeps 64 KiB of each record."""

    def append(self, text: bytes) -> int:
        return super().append(text[:65536])


class Batches(MemoryRunLog):
    """Writes at most 200 records of a unit, and the others with the next one."""

    def flush(self) -> None:
        if len(self._unit) <= 200:
            super().flush()
            return
        rest, self._unit = self._unit[200:], self._unit[:200]
        super().flush()
        self._unit = rest


class NewestFirst(MemoryRunLog):
    """Turns the records of a unit round."""

    def flush(self) -> None:
        self._unit.reverse()
        super().flush()


class Deaf(MemoryRunLog):
    """Is not woken by a letter."""

    def notify_message(self) -> None:
        pass


class KeepsLetters(MemoryRunLog):
    """Throws no letter away."""

    async def discard(self, letter: str) -> None:
        pass


class ThrowsAll(MemoryRunLog):
    """Throws all letters away with one."""

    async def discard(self, letter: str) -> None:
        self._kept.letters.clear()


class StrictDiscard(MemoryRunLog):
    """Cannot discard what is not there."""

    async def discard(self, letter: str) -> None:
        del self._kept.letters[int(letter)]


class ReadsOnce(MemoryRunLog):
    """Throws letters away as it reads them: a crash loses the answer."""

    async def backlog(self) -> list[InboxMessage]:
        letters = await super().backlog()
        for letter in letters:
            await self.discard(letter.id)
        return letters


class GivesTwice(MemoryRunLog):
    """Gives the letters of the backlog again."""

    async def backlog(self) -> list[InboxMessage]:
        last = self._letters._last
        letters = await super().backlog()
        self._letters._last = last
        return letters


class Forgets(MemoryRunLog):
    """Does not show the letters that were there before it was opened."""

    def inbox(self) -> AsyncIterator[InboxMessage]:
        self._letters._last = max(self._letters._last, self._kept.posted - 1)
        return super().inbox()


class AnyName(MemoryJournal):
    """Takes any id."""

    async def create(self, run_id: str) -> MemoryRunLog:
        made = await super().create("x" + "".join(c for c in run_id if c.isascii() and c.isalnum())[:50])
        self._runs[run_id] = self._runs.pop(made.run_id)
        made.run_id = made._kept.run_id = run_id
        return made


class Overwrites(MemoryJournal):
    """Begins a run anew that is there."""

    async def create(self, run_id: str) -> MemoryRunLog:
        self._runs.pop(run_id, None)
        return await super().create(run_id)


class SlowCreate(MemoryJournal):
    """Looks first and makes the run later."""

    async def create(self, run_id: str) -> MemoryRunLog:
        if run_id in self._runs:
            raise RunExists(run_id)
        await anyio.lowlevel.checkpoint()
        self._runs.pop(run_id, None)
        return await super().create(run_id)


class AlwaysOpen(MemoryJournal):
    """Gives a run to whoever asks."""

    async def open(self, run_id: str, *, steal: bool = False) -> MemoryRunLog:
        return await super().open(run_id, steal=True)


class NeverStolen(MemoryJournal):
    """Never takes a run away."""

    async def open(self, run_id: str, *, steal: bool = False) -> MemoryRunLog:
        return await super().open(run_id)


class SlowOpen(MemoryJournal):
    """Looks first who holds a run, and takes it later."""

    async def open(self, run_id: str, *, steal: bool = False) -> MemoryRunLog:
        if self._find(run_id).owner is not None and not steal:
            raise RunHeld(run_id)
        await anyio.lowlevel.checkpoint()
        return await super().open(run_id, steal=True)


class OneChain(MemoryJournal):
    """Begins the chain of every run alike."""

    async def read(self, run_id: str) -> list[Line]:
        return chained("", [line.text for line in await super().read(run_id)])


class NoChain(MemoryJournal):
    """Gives the digest of each record by itself."""

    async def read(self, run_id: str) -> list[Line]:
        return [chained(run_id, [line.text])[0] for line in await super().read(run_id)]


class Unsorted(MemoryJournal):
    """Lists runs as they come."""

    async def runs(self) -> list[Held]:
        held = {each.run_id: each for each in await super().runs()}
        return [held[run_id] for run_id in self._runs]


class NobodyHolds(MemoryJournal):
    """Does not say who holds a run."""

    async def runs(self) -> list[Held]:
        return [Held(each.run_id) for each in await super().runs()]


class DeletesHeld(MemoryJournal):
    """Deletes a run under its owner."""

    async def delete(self, run_id: str) -> None:
        self._find(run_id).owner = None
        await super().delete(run_id)


class DeletesAlike(MemoryJournal):
    """Deletes all runs whose names begin alike."""

    async def delete(self, run_id: str) -> None:
        await super().delete(run_id)
        self._runs = {name: kept for name, kept in self._runs.items() if not name.startswith(run_id)}


class Undeletable(MemoryJournal):
    """Deletes the records and keeps the run."""

    async def delete(self, run_id: str) -> None:
        self._find(run_id).texts.clear()


class LongLetters(MemoryJournal):
    """Takes letters of any length, in pieces."""

    async def post(self, run_id: str, text: bytes) -> None:
        for begin in range(0, max(len(text), 1), 65536):
            await super().post(run_id, text[begin : begin + 65536])


class LostLetters(MemoryJournal):
    """Drops letters for runs that nobody holds."""

    async def post(self, run_id: str, text: bytes) -> None:
        if self._find(run_id).owner is not None:
            await super().post(run_id, text)


class AllLetters(MemoryJournal):
    """Gives every letter to every run."""

    async def post(self, run_id: str, text: bytes) -> None:
        self._find(run_id)
        for name in self._runs:
            await super().post(name, text)


class OneKey(MemoryJournal):
    """Has one answer key for all runs."""

    async def answer_key(self, run_id: str) -> str:
        self._find(run_id)
        return self._find(min(self._runs)).answer_key


class NewKeys(MemoryJournal):
    """Makes a new answer key each time a run is opened."""

    async def open(self, run_id: str, *, steal: bool = False) -> MemoryRunLog:
        self._find(run_id).answer_key = new_answer_key()
        return await super().open(run_id, steal=steal)


class ShortKeys(MemoryJournal):
    """Has answer keys that can be guessed."""

    async def create(self, run_id: str) -> MemoryRunLog:
        run_log = await super().create(run_id)
        self._find(run_id).answer_key = run_log.answer_key = run_id
        return run_log


class SkipsOne(MemoryJournal):
    """Leaves out the first of the records that a follower has not seen."""

    async def rows_after(self, run_id: str, seq: int) -> list[StoredRow]:
        return await super().rows_after(run_id, seq + 1)


class RepeatsOne(MemoryJournal):
    """Shows a follower once more what it has seen last."""

    async def rows_after(self, run_id: str, seq: int) -> list[StoredRow]:
        return await super().rows_after(run_id, max(0, seq - 1))


class OneMark(MemoryJournal):
    """Has one mark for all runs."""

    async def marks(self) -> dict[str, str]:
        marks = await super().marks()
        return dict.fromkeys(marks, "-".join(marks.values()))


class StaleMarks(MemoryJournal):
    """Has marks that do not change."""

    async def marks(self) -> dict[str, str]:
        return dict.fromkeys(await super().marks(), "1")


class HeldByNobody(MemoryJournal):
    """Says of each single run that it is free."""

    async def held(self, run_id: str) -> Held:
        return Held((await super().held(run_id)).run_id)


class WrongLevel(MemoryJournal):
    """Promises more than it keeps."""

    durability = Durability.POWER


MUTANTS = {
    each.__name__: each if issubclass(each, MemoryJournal) else mutant(each)
    for each in list(globals().values())
    if isinstance(each, type)
    and issubclass(each, MemoryJournal | MemoryRunLog)
    and each not in {MemoryJournal, MemoryRunLog}
}
