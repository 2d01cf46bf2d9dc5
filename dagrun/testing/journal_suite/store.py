"""The base of the journal suite: the store under test, and small helpers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import ClassVar

import anyio
import anyio.lowlevel
import pytest

from dagrun import Durability
from dagrun.extend import InboxMessage, Journal, RunLog
from dagrun.records import Line

RUN = "run-1"

# Texts that some stores have changed. All are JSON, as records are.
ODD_TEXTS = {
    "empty": b'""',
    "escaped zero": rb'"\u0000"',
    "escaped lone surrogate": rb'"\ud800"',
    "quotes": b'"\' ; DROP TABLE records; -- $1 %s ? :x {0}"',
    "line ends": b"[\r\n\t1\n]",
    "spaces at the ends": b'  {"a": 1}  \n',
    "accents, composed or not": '["\u00e9", "e\u0301"]'.encode(),
    "emoji": '"\U0001f9ee\U0001f469\u200d\U0001f680"'.encode(),
    "right to left": '"\u05d0\u202e\u0627"'.encode(),
    "line separators": '"\u2028\u2029\u0085"'.encode(),
    "byte order mark": '"\ufeff"'.encode(),
    "noncharacters": '"\uffff\ufffe\U0010ffff"'.encode(),
    "numbers": b"[1e400, -0.0, 123456789012345678901234567890, 0.1e-400]",
    "same key twice": b'{"b":1,"a":2,"b":3}',
    "deep": b"[" * 500 + b"]" * 500,
    "like a number": b"007",
    "backslashes": rb'"C:\\new\\table\\\\"',
}


class Store:
    """A journal under test.

    Attributes:
        survives_reopen: Whether another journal on the same place has the same runs (see `reopen_journal`).
        has_letters: Whether letters can be posted.
        durability: The level of durability that the journal promises.
        big: Bytes of the largest record that is written.
        patience: Seconds after which a test fails.
    """

    survives_reopen: ClassVar[bool] = True
    has_letters: ClassVar[bool] = True
    durability: ClassVar[Durability] = Durability.PROCESS
    big: ClassVar[int] = 1024 * 1024
    patience: ClassVar[float] = 30.0

    async def make_journal(self) -> Journal:
        """Make a journal without runs."""
        raise NotImplementedError("give the suite a journal: define make_journal")

    async def reopen_journal(self, journal: Journal) -> Journal:
        """Make another journal on the place of *journal*, as another process would."""
        raise NotImplementedError("define reopen_journal, or set survives_reopen to False")

    @asynccontextmanager
    async def journal(self) -> AsyncIterator[Journal]:
        """Open a journal without runs; no test takes longer than *patience*."""
        with anyio.fail_after(self.patience):
            journal = await self.make_journal()
            try:
                yield journal
            finally:
                await journal.aclose()

    @asynccontextmanager
    async def run_log(self, run_id: str = RUN) -> AsyncIterator[tuple[Journal, RunLog]]:
        """Open a journal, and the run log of a new run in it."""
        async with self.journal() as journal:
            run_log = await journal.create(run_id)
            try:
                yield journal, run_log
            finally:
                await run_log.aclose()

    @asynccontextmanager
    async def two(self) -> AsyncIterator[tuple[Journal, Journal]]:
        """Open two journals on one place, as two processes would."""
        if not self.survives_reopen:
            pytest.skip("the records of this journal are seen by itself alone (survives_reopen)")
        async with self.journal() as journal:
            other = await self.reopen_journal(journal)
            try:
                yield journal, other
            finally:
                await other.aclose()

    async def reopened(self, journal: Journal) -> RunLog:
        """Open the run and release it, to show that it is free."""
        run_log = await journal.open(RUN)
        await run_log.aclose()
        return run_log

    def need_inbox(self) -> None:
        """Skip the test for a journal that has no inbox."""
        if not self.has_letters:
            pytest.skip("this journal takes no letters (has_letters)")


def add(run_log: RunLog, *texts: bytes) -> None:
    """Add *texts* as one unit."""
    for text in texts:
        run_log.append(text)
    run_log.flush()


async def give_up(run_log: RunLog, seq: int) -> None:
    """Begin to wait for record *seq*, and cancel the wait."""
    with anyio.CancelScope() as scope:
        scope.cancel()
        await run_log.durable(seq)


async def write(run_log: RunLog, *texts: bytes) -> None:
    """Add *texts* as one unit, and wait until they are durable."""
    for text in texts:
        run_log.append(text)
    await run_log.durable()


async def take_messages(run_log: RunLog, count: int) -> list[InboxMessage]:
    """Return the next *count* messages."""
    letters: list[InboxMessage] = []
    async for letter in run_log.inbox():
        letters.append(letter)
        if len(letters) == count:
            break
    return letters


async def until(claim: Callable[[], bool]) -> None:
    """Wait until *claim* holds, by polling: a thread sets no event of the loop."""
    while not claim():  # noqa: ASYNC110
        await anyio.sleep(0.001)


async def yield_some() -> None:
    """Give other tasks some turns."""
    for _ in range(5):
        await anyio.lowlevel.checkpoint()


def numbered(count: int) -> list[bytes]:
    """Return *count* small records."""
    return [b'{"n":%d}' % number for number in range(count)]


def shown(lines: object) -> list[tuple[int, bytes]]:
    """Return the numbers and the texts of *lines*."""
    assert isinstance(lines, list | tuple)
    return [(line.seq, line.text) for line in lines if isinstance(line, Line)]
