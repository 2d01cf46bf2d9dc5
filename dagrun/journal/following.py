"""Following the record of a run that another process writes: new records since the last read, checked.

A follower keeps the running hash of the chain. So each look reads and checks the new records alone, and a record that
does not go on from the one before it is noticed, as it is when a whole record is read.
"""

from __future__ import annotations

from typing import Final

import anyio

from dagrun.errors import JournalDamaged
from dagrun.journal.hash_chain import Chain, verify
from dagrun.kernel.model.journal import Journal, Line, SupportsFollow, SupportsNotify

LOOK_EVERY: Final = 0.1  # seconds between two looks, where nobody tells; a look without news costs two looks at files
_LATEST: Final = 60.0


class RecordFollower:
    """Reads one run again and again, each record once.

    A look never waits for records: the caller decides when to look, or waits by `wait`. Only one look at a time.

    Args:
        journal: The journal with the record.
        run_id: The run.

    Attributes:
        is_cheap: Whether a look without news costs next to nothing; otherwise each one reads the whole record.
    """

    def __init__(self, journal: Journal, run_id: str) -> None:
        self.is_cheap = isinstance(journal, SupportsFollow)
        self._journal = journal
        self._run_id = run_id
        self._chain: Chain | None = None
        self._pause = LOOK_EVERY

    @property
    def seq(self) -> int:
        """The number of the last record that was read; 0 before the first."""
        return self._chain.seq if self._chain is not None else 0

    async def news(self) -> list[Line]:
        """Return the records that were added since the last call; the first call returns all.

        Raises:
            RunNotFound: There is no run with this id, or not any more.
            JournalDamaged: The records do not go on from those that were returned before. Call it no more after that.
            JournalFailed: The records cannot be read now.
        """
        chain = self._chain
        if chain is None:
            lines = await self._journal.read(self._run_id)
            self._chain = Chain(self._run_id, (line.text for line in lines))
            return lines
        if not isinstance(self._journal, SupportsFollow):
            return await self._read_again(chain)
        rows = await self._journal.rows_after(self._run_id, chain.seq)
        lines, fault = verify(self._run_id, rows, chain)
        if fault is not None:
            raise JournalDamaged(self._run_id, fault.seq, fault.reason)
        return lines

    async def wait(self) -> None:
        """Wait until there may be something new: until the owner of the run notifies, or a moment has passed.

        Raises:
            RunNotFound: There is no run with this id, or not any more.
            JournalFailed: The records cannot be read now.
        """
        if not isinstance(self._journal, SupportsNotify):
            await anyio.sleep(LOOK_EVERY)
            return
        is_told = await self._journal.wait_after(self._run_id, self.seq, self._pause)
        self._pause = LOOK_EVERY if is_told else min(2 * self._pause, _LATEST)

    async def _read_again(self, chain: Chain) -> list[Line]:
        lines = await self._journal.read(self._run_id)
        known = chain.seq
        if len(lines) < known or (known and lines[known - 1].digest != chain.digest):
            raise JournalDamaged(self._run_id, known, "the records that were read before no longer exist")
        for line in lines[known:]:
            chain.add(line.text)
        return lines[known:]
