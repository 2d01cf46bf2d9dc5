"""A run on disk as a crash leaves it, with records in the database and in its log; and copies of it to be damaged."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dagrun import SQLiteJournal
from dagrun.errors import JournalDamaged, JournalFailed
from dagrun.journal.sqlite.run_log import SQLiteRunLog
from dagrun.kernel.model.journal import Line

RUN = "run-1"
DATABASE, LOG, ANCHOR = "journal.db", "journal.db-wal", "anchor"


@dataclass(frozen=True)
class Crashed:
    """The files of a run whose owner has ended without a word.

    Attributes:
        files: What each of them holds.
        lines: All records that were written.
        anchored: How many of them the anchor knows of; the others were written and not acknowledged.
    """

    files: dict[str, bytes]
    lines: list[Line]
    anchored: int


async def crashed(folder: Path) -> Crashed:
    """Write a run: some records are in the database, some in the log, and the last ones are not in the anchor."""
    journal = SQLiteJournal(folder)
    await _write(await journal.create(RUN), 5, close=True)
    run_log = await journal.open(RUN)
    await _write(run_log, 3)
    anchor = (folder / RUN / ANCHOR).read_bytes()
    anchored = run_log.append(b"{}") - 1
    await _write(run_log, 3)
    files = {name: (folder / RUN / name).read_bytes() for name in (DATABASE, LOG)} | {ANCHOR: anchor}
    await run_log.aclose()
    lines = await journal.read(RUN)
    shutil.rmtree(folder)
    return Crashed(files, lines, anchored)


async def _write(run_log: SQLiteRunLog, units: int, *, close: bool = False) -> None:
    for unit in range(units):
        for record in range(6):
            run_log.append(b'{"unit":%d,"record":%d,"value":"%b"}' % (unit, record, b"abcdef" * 30))
        await run_log.durable()
    if close:
        await run_log.aclose()


class Patient:
    """A place where the files of a run are put, damaged, and looked at.

    Args:
        folder: An empty folder.
        crashed: What is put there.
    """

    def __init__(self, folder: Path, crashed: Crashed) -> None:
        self.journal = SQLiteJournal(folder, lease_seconds=0.05)
        self.folder = folder / RUN
        self.whole = crashed
        folder.mkdir(mode=0o700)

    def restore(self, **files: bytes | None) -> None:
        """Put the files back as they were; but those that are named: with other bytes, or not at all."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(mode=0o700)
        (self.folder / "inbox").mkdir(mode=0o700)
        changed = {
            "journal.db" if name == "database" else LOG if name == "log" else name: data for name, data in files.items()
        }
        for name, data in (self.whole.files | changed).items():
            if data is not None:
                (self.folder / name).write_bytes(data)
                (self.folder / name).chmod(0o600)

    def edit(self, *statements: str) -> None:
        """Change the database by SQL, as somebody with a shell would."""
        self.restore()
        database = sqlite3.connect(self.folder / DATABASE, isolation_level=None)
        for statement in statements:
            database.execute(statement)
        database.close()

    def change(self, act: Callable[[sqlite3.Connection], object]) -> None:
        """Change the database by *act*."""
        self.restore()
        database = sqlite3.connect(self.folder / DATABASE, isolation_level=None)
        act(database)
        database.close()

    async def look(self) -> str:
        """Read the run, and say what came of it.

        Returns:
            ``whole``, ``prefix`` (good records that reach the anchor), ``damaged``, ``failed``; or ``WRONG`` and what.
        """
        try:
            lines = await self.journal.read(RUN)
        except JournalDamaged:
            return "damaged"
        except JournalFailed:
            return "failed"
        return self.judge(lines)

    async def take(self) -> str:
        """Open the run, as `look` reads it."""
        try:
            run_log = await self.journal.open(RUN, steal=True)
        except JournalDamaged:
            return "damaged"
        except JournalFailed:
            return "failed"
        await run_log.aclose()
        return self.judge(list(run_log.lines))

    def judge(self, lines: list[Line]) -> str:
        """Whether *lines* are what a reader may get."""
        if lines == self.whole.lines:
            return "whole"
        if lines == self.whole.lines[: len(lines)] and len(lines) >= self.whole.anchored:
            return "prefix"
        return f"WRONG: {len(lines)} of {len(self.whole.lines)} records, {self.whole.anchored} of them anchored"
