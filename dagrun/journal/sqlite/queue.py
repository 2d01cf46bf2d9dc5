"""The submitted runs of a folder: for one worker, or several, on the machine that has the folder."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

import anyio

from dagrun.errors import ContractError, JournalDamaged, JournalError, JournalFailed, RunHeld, RunNotFound
from dagrun.journal.base import check_run_id, no_such_run
from dagrun.journal.lease import Holding, holding
from dagrun.journal.queue import (
    LATEST,
    PutOffs,
    QueuedRun,
    QueueStanding,
    QueueTicket,
    Wanted,
    ended_at_it,
    left_out,
    read_standing,
)
from dagrun.journal.run_folder import RunPaths, make_root
from dagrun.journal.sqlite import database
from dagrun.journal.sqlite.pipes import Bell, ring
from dagrun.journal.sqlite.queue_table import QueueTable, SubmittedRun
from dagrun.journal.sqlite.tape import SQLiteTape, TakenRun
from dagrun.model.journal import Durability

_LOG: Final = logging.getLogger("dagrun.run")
_SOONEST: Final = 0.05  # seconds: what is due, and could not be had, is not looked at again at once
_MOST_KNOWN: Final = 1_000
_CLAIMABLE: Final = """FROM queue WHERE standing IN ('queued', 'running')
    AND pool IN (SELECT value FROM json_each(?)) AND build NOT IN (SELECT value FROM json_each(?))"""
_NEXT: Final = f"SELECT * {_CLAIMABLE} AND not_before <= ? ORDER BY priority DESC, number"
_DUE: Final = f"SELECT * {_CLAIMABLE} ORDER BY standing = 'queued', not_before"  # those that run, then the soonest
_LEFT: Final = """SELECT * FROM queue WHERE standing IN ('queued', 'running')
    AND pool IN (SELECT value FROM json_each(?)) AND build IN (SELECT value FROM json_each(?))"""
_FITTED: Final = "SELECT DISTINCT pool, build FROM queue WHERE fitted > ?"
_WAKE: Final = "standing = 'queued', queued = ?, reason = ''"
_PUT_BACK: Final = f"{_WAKE}, takeovers = 0"
_LIST: Final = "SELECT * FROM queue WHERE standing NOT IN (SELECT value FROM json_each(?1))"
_NEWEST: Final = "SELECT * FROM queue WHERE run_id = ? ORDER BY number DESC LIMIT 1"
_UNDONE: Final = (QueueStanding.QUEUED, QueueStanding.RUNNING, QueueStanding.WAITING)


@dataclass(frozen=True, slots=True)
class FolderAccess:
    """What a journal lends its queue.

    Attributes:
        folder: The folder of all runs.
        durability: What a change survives.
        busy_seconds: How long to wait for a database that another process has locked.
        make: Makes a run of its id, its first record and its ticket; nobody owns it.
        open: Takes a run over, by force if the second argument is true.
        tape: Makes the tape of a run that was taken over.
    """

    folder: Path
    durability: Durability
    busy_seconds: float
    make: Callable[[str, bytes, str], None]
    open: Callable[[str, bool, SubmittedRun], TakenRun]
    tape: Callable[[TakenRun], SQLiteTape]


class SQLiteQueue:
    """The submitted runs; see `dagrun.journal.queue.RunQueue`.

    Args:
        journal: What the journal lends.
    """

    def __init__(self, journal: FolderAccess) -> None:
        self._journal = journal
        self._table = QueueTable(journal.folder, journal.durability, journal.busy_seconds)
        # Who holds a run, by its ticket, and by its token: looked up once for as long as its lease lasts.
        self._known: dict[tuple[str, int], Holding] = {}
        self._put_off = PutOffs()
        self._left_builds: tuple[str, ...] = ()
        self._leave_next = 0.0

    async def submit(self, run_id: str, first: bytes, ticket: QueueTicket, *, connection: Any = None) -> None:
        """Create a run without an owner, and queue it; see `RunQueue.submit`.

        Raises:
            RunExists: There is already a run with this id.
            JournalFailed: It cannot be written.
            ContractError: A connection is given: files take part in no transaction.
        """
        if connection is not None:
            raise ContractError("a journal in a folder takes part in no transaction: leave out connection=…")
        check_run_id(run_id)
        await anyio.to_thread.run_sync(self._submit, run_id, first, ticket)

    async def claim(self, wanted: Wanted) -> SQLiteTape | None:
        """Take over one run that may be claimed; see `RunQueue.claim`."""
        # There is no `await` after this line: a cancellation cannot leave a claimed run behind.
        found = await anyio.to_thread.run_sync(self._claim, wanted)
        return None if found is None else self._journal.tape(found)

    async def wait(self, wanted: Wanted) -> None:
        """Wait until there may be something to claim; see `RunQueue.wait`."""
        bell = await anyio.to_thread.run_sync(self._bell)
        try:
            # The bell is there before the look: what is queued after it rings.
            with anyio.move_on_after(await anyio.to_thread.run_sync(self._seconds_until_due, wanted)):
                await bell.wait()
        finally:
            bell.close()

    async def runs(self, standings: Collection[QueueStanding] = ()) -> list[QueuedRun]:
        """Return the submitted runs; see `RunQueue.runs`."""
        return await anyio.to_thread.run_sync(self._list, [str(standing) for standing in standings])

    async def put_back(self, run_id: str) -> bool:
        """Queue a run again that waits or is stuck; see `RunQueue.put_back`."""
        return await anyio.to_thread.run_sync(self._put_back, run_id)

    @property
    def is_there(self) -> bool:
        """Whether a run was ever submitted here."""
        return self._table.is_there

    # For the journal, in a thread -------------------------------------------------------------------------------------

    def opened(self, run_id: str, ticket: str, *, steal: bool) -> TakenRun:
        """Take over a run by hand, and note in its row that it is carried out."""
        submitted = SubmittedRun(self._table, self._paths(run_id), ticket)
        with self._table.transaction() as rows:
            row = rows.execute("SELECT takeovers FROM queue WHERE ticket = ?", (ticket,)).fetchone()
            submitted.left.takeovers_before = row["takeovers"] if row is not None else 0
            taken = self._journal.open(run_id, steal, submitted)
            _take(rows, submitted, submitted.left.takeovers_before)
        return taken

    def wake(self, run_id: str) -> None:
        """Put a run that waits back into the queue: a letter has come."""
        self._queue_again(run_id, _WAKE, ("waiting",))

    def forget(self, ticket: str) -> None:
        """Forget a run that was deleted."""
        with self._table.transaction() as rows:
            rows.execute("DELETE FROM queue WHERE ticket = ?", (ticket,))

    # In a thread ------------------------------------------------------------------------------------------------------

    def _paths(self, run_id: str) -> RunPaths:
        return RunPaths(self._journal.folder / run_id)

    def _submit(self, run_id: str, first: bytes, ticket: QueueTicket) -> None:
        make_root(self._journal.folder)
        self._table.make()
        name = token_hex(16)
        values = (name, run_id, ticket.pool, ticket.build, ticket.priority, ticket.not_before, time.time())
        with self._table.transaction() as rows:
            rows.execute(
                """INSERT INTO queue (ticket, run_id, standing, pool, build, priority, not_before, queued)
                VALUES (?, ?, 'queued', ?, ?, ?, ?, ?)""",
                values,
            )
        try:
            self._journal.make(run_id, first, name)  # from here on the row counts
        except BaseException:
            self.forget(name)
            raise
        ring(self._table.folder)

    def _claim(self, wanted: Wanted) -> TakenRun | None:
        if not self._table.is_there:
            return None
        failure: JournalError | None = None
        with self._table.transaction() as rows:
            self._leave_unfit(rows, wanted)
            left = self._put_off.left()
            for row in rows.execute(_NEXT, (*_filter(wanted), time.time())).fetchall():
                if _entry(row) in left:
                    continue
                if not self._is_free(row):
                    self._leave_damaged(rows, row)
                    continue
                takeovers = row["takeovers"] + (row["standing"] == QueueStanding.RUNNING)
                if takeovers > wanted.max_takeovers:
                    _set_aside(rows, row, ended_at_it(row["takeovers"]))
                    continue
                submitted = SubmittedRun(self._table, self._paths(row["run_id"]), row["ticket"])
                submitted.left.takeovers_before = takeovers
                try:
                    taken = self._journal.open(row["run_id"], False, submitted)
                except (RunHeld, RunNotFound):  # it was opened or deleted just now, or its row has missed that
                    self._put_off.add(_entry(row))
                except (JournalDamaged, JournalFailed) as error:  # of its own files, perhaps: the others go on
                    self._put_off.add(_entry(row))
                    failure = _left(rows, row, self._paths(row["run_id"]).database, error) or failure
                else:
                    self._put_off.forget(_entry(row))
                    _take(rows, submitted, takeovers)
                    return taken
        if failure is not None:
            raise failure
        return None

    def _leave_unfit(self, rows: sqlite3.Connection, wanted: Wanted) -> None:
        """Say of runs of refused builds what differs, and set those aside that no worker fits; not at each claim."""
        now, builds = time.monotonic(), tuple(wanted.refused)
        if not builds or (builds == self._left_builds and now < self._leave_next):
            return
        self._left_builds, self._leave_next = builds, now + min(LATEST, wanted.unfit_after / 10)
        before = time.time() - wanted.unfit_after
        left = rows.execute(_LEFT, _filter(wanted)).fetchall()
        # A build is alive where a run of it is in the hands of a worker, or was a while ago.
        alive = {(row["pool"], row["build"]) for row in rows.execute(_FITTED, (before,))}
        running = [row for row in left if row["standing"] == QueueStanding.RUNNING]
        alive |= {(row["pool"], row["build"]) for row in running if self._holder(row).expires > before}
        for row in left:
            reason, is_alive = wanted.refused[row["build"]], (row["pool"], row["build"]) in alive
            if not is_alive and max(row["queued"], row["not_before"]) < before and self._is_free(row):
                _set_aside(rows, row, reason)
            elif row["standing"] == QueueStanding.QUEUED and not row["reason"]:
                rows.execute("UPDATE queue SET reason = ? WHERE number = ?", (reason, row["number"]))

    def _leave_damaged(self, rows: sqlite3.Connection, row: sqlite3.Row) -> None:
        """Set a run aside whose ticket is damaged, so that it would be in no list, and nobody would miss it."""
        if fault := self._fault(rows, row):
            _set_aside(rows, row, fault)
            _LOG.warning("run %s is stuck: %s", row["run_id"], fault)

    def _fault(self, rows: sqlite3.Connection, row: sqlite3.Row) -> str:
        """Return why a run is not there by its ticket, though its folder is; empty if it is there, over, or held."""
        if row["standing"] == QueueStanding.ENDED or self._is_there(row):
            return ""
        fault = self._paths(row["run_id"]).ticket_fault()
        if not fault or (row["standing"] == QueueStanding.RUNNING and self._holder(row).is_held):
            return ""
        # Those before it are of runs that were deleted by hand, and whose name was free again.
        newest: int = rows.execute(_NEWEST, (row["run_id"],)).fetchone()["number"]
        return fault if row["number"] == newest else ""

    def _is_free(self, row: sqlite3.Row) -> bool:
        """Return whether a run is there, and nobody carries it out."""
        if not self._is_there(row):
            return False
        return row["standing"] != QueueStanding.RUNNING or not self._holder(row).is_held

    def _is_there(self, row: sqlite3.Row) -> bool:
        ticket: str = row["ticket"]
        return self._paths(row["run_id"]).read_ticket() == ticket

    def _holder(self, row: sqlite3.Row) -> Holding:
        """Return who holds a run that is being carried out."""
        key = (row["ticket"], row["token"])
        known = self._known.get(key)
        if known is None or not known.is_held:
            known = self._read_holder(row["run_id"])
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[key] = known
        return known

    def _read_holder(self, run_id: str) -> Holding:
        paths = self._paths(run_id)
        try:
            with (
                database.reading(run_id, paths.database),
                closing(database.open_for_reading(paths.database, self._journal.busy_seconds)) as records,
            ):
                return holding(records)
        except (JournalDamaged, JournalFailed):
            return Holding(0, None, 0.0)  # whoever opens it finds out what is wrong

    def _bell(self) -> Bell:
        make_root(self._journal.folder)
        self._table.make()
        return Bell(self._table.folder)

    def _seconds_until_due(self, wanted: Wanted) -> float:
        due, now, left = LATEST, time.time(), self._put_off.left()
        with self._table.transaction() as rows:
            found = rows.execute(_DUE, _filter(wanted)).fetchall()
        for row in found:
            if not self._is_there(row):
                continue
            if (later := left.get(_entry(row))) is not None:
                due = min(due, later)
            elif row["standing"] == QueueStanding.RUNNING:
                holder = self._holder(row)
                due = min(due, max(holder.expires if holder.is_held else 0.0, row["not_before"]) - now)
            else:
                due = min(due, row["not_before"] - now)
                break  # the others come later
        return max(_SOONEST, due)

    def _list(self, standings: list[str]) -> list[QueuedRun]:
        if not self._table.is_there:
            return []
        # One whose ticket is damaged is stuck, whatever its row says before a worker has looked at it.
        asked = {*standings, *_UNDONE} if QueueStanding.STUCK in standings else standings
        with self._table.transaction() as rows:
            found = rows.execute(f"{_LIST} ORDER BY number", (json.dumps(left_out(asked)),)).fetchall()
        there = {row["number"] for row in found if self._is_there(row)}
        faults = self._faults([row for row in found if row["number"] not in there])
        shown = [
            self._shown(row, faults.get(row["number"], "")) for row in found if row["number"] in there | faults.keys()
        ]
        return [run for run in shown if not standings or run.standing in standings]

    def _faults(self, lost: Sequence[sqlite3.Row]) -> dict[int, str]:
        """Return why runs that are not there by their tickets are stuck, by the numbers of their rows."""
        damaged = [row for row in lost if self._paths(row["run_id"]).ticket_fault()]
        if not damaged:
            return {}
        with self._table.transaction() as rows:
            return {row["number"]: fault for row in damaged if (fault := self._fault(rows, row))}

    def _shown(self, row: sqlite3.Row, fault: str) -> QueuedRun:
        holder = self._holder(row) if row["standing"] == QueueStanding.RUNNING else None
        standing, reason = (QueueStanding.STUCK, fault) if fault else read_standing(row["standing"], row["reason"])
        return QueuedRun(
            run_id=row["run_id"],
            standing=standing,
            ticket=QueueTicket(
                pool=row["pool"], build=row["build"], priority=row["priority"], not_before=row["not_before"]
            ),
            takeovers=row["takeovers"],
            reason=reason,
            queued=row["queued"],
            owner="" if holder is None or holder.owner is None else str(holder.owner),
        )

    def _put_back(self, run_id: str) -> bool:
        paths = self._paths(run_id)
        if not paths.ticket_fault() or not self._table.is_there:
            return self._queue_again(run_id, _PUT_BACK, ("waiting", "stuck"))
        with self._table.transaction() as rows:
            row = rows.execute(_NEWEST, (run_id,)).fetchone()
            if row is None:
                raise no_such_run(run_id)
            if not (fault := self._fault(rows, row)):
                return False
            paths.renew_ticket(row["ticket"])
            _set_aside(rows, row, fault)
        return self._queue_again(run_id, _PUT_BACK, ("waiting", "stuck"))

    def _queue_again(self, run_id: str, change: str, standings: tuple[str, ...]) -> bool:
        ticket = self._paths(run_id).read_ticket()
        if not ticket or not self._table.is_there:
            raise no_such_run(run_id)
        with self._table.transaction() as rows:
            changed = rows.execute(
                f"UPDATE queue SET {change} WHERE ticket = ? AND standing IN (SELECT value FROM json_each(?))",
                (time.time(), ticket, json.dumps(standings)),
            ).rowcount
        if changed:
            ring(self._table.folder)
        return bool(changed)


def _filter(wanted: Wanted) -> tuple[str, str]:
    return json.dumps(list(wanted.pools)), json.dumps(list(wanted.refused))


def _take(rows: sqlite3.Connection, submitted: SubmittedRun, takeovers: int) -> None:
    rows.execute(
        "UPDATE queue SET standing = 'running', reason = '', takeovers = ?, token = ? WHERE ticket = ?",
        (takeovers, submitted.token, submitted.ticket),
    )


def _entry(row: sqlite3.Row) -> tuple[str, float]:
    return row["ticket"], row["queued"]


def _left(rows: sqlite3.Connection, row: sqlite3.Row, kept: Path, error: JournalError) -> JournalError | None:
    """Set a run aside that nobody can open; of one that somebody may put right soon, keep why, and return that.

    Args:
        rows: The queue.
        row: The run.
        kept: The file of its records.
        error: Why it could not be opened.
    """
    if isinstance(error, JournalDamaged):
        _set_aside(rows, row, str(error))
        return None
    if not os.path.lexists(kept):
        _set_aside(rows, row, f"its records are gone: {error}")
        return None
    if row["standing"] == QueueStanding.QUEUED and row["reason"] != str(error):
        rows.execute("UPDATE queue SET reason = ? WHERE number = ?", (str(error), row["number"]))
    return error


def _set_aside(rows: sqlite3.Connection, row: sqlite3.Row, reason: str) -> None:
    rows.execute("UPDATE queue SET standing = 'stuck', reason = ? WHERE number = ?", (reason, row["number"]))
