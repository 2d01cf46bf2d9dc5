"""The right to add records to a run: a lease that expires by itself, and a token that only grows.

The lease keeps other processes away while its owner lives. It cannot stop an owner that slept until after its lease
had expired; the token does. Each transaction that adds records checks that the token is still the owner's.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from dagrun.errors import OwnerLost, RunHeld

TABLE = """CREATE TABLE lease (
    only INTEGER PRIMARY KEY CHECK (only = 1), token INTEGER NOT NULL, owner TEXT NOT NULL, expires REAL NOT NULL
)"""


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, described so that no later process can be mistaken for it.

    Attributes:
        host: The name of the machine.
        boot: The id of the machine's last start; empty if the system has none.
        space: The namespace of the process id: each container has its own.
        pid: The process id.
        started: When the process was started, in ticks since the machine was; 0 if unknown.
    """

    host: str
    boot: str
    space: str
    pid: int
    started: int

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    def encode(self) -> str:
        """Return the owner as JSON text."""
        return json.dumps(asdict(self))

    def is_dead(self) -> bool:
        """Return whether the process is known to have ended; false for a process on another machine."""
        here = this_process()
        if (self.host, self.space) != (here.host, here.space):
            return False
        return self.boot != here.boot or _started(self.pid) != self.started


def this_process() -> Owner:
    """Return the running process as an owner."""
    pid = os.getpid()
    return Owner(os.uname().nodename, _boot(), _space(), pid, _started(pid) or 0)


def decode(text: object) -> Owner | None:
    """Return the owner in *text*; `None` if it is empty, or not written by `Owner.encode`."""
    try:
        fields: dict[str, Any] = json.loads(text) if isinstance(text, str) and text else {}
        owner = Owner(**fields)
    except (ValueError, TypeError):
        return None
    kinds = [type(value) for value in asdict(owner).values()]
    return owner if kinds == [str, str, str, int, int] else None


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _space() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _started(pid: int) -> int | None:
    """Return when a process was started, in ticks; `None` if it has ended, 0 if it lives and the time is unknown."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return _is_alive(pid)
    # A killed process stays a zombie until its parent has waited for it.
    return None if fields[0] in {b"Z", b"X"} else int(fields[19])


def _is_alive(pid: int) -> int | None:
    if os.path.exists("/proc/self/stat"):
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        pass  # the process lives, and belongs to another user
    return 0


@dataclass(frozen=True, slots=True)
class Holding:
    """The holder of a run, according to the database.

    Attributes:
        token: Token of the last owner.
        owner: The process that holds the run; `None` if there is none, or it cannot be read.
        expires: When the lease expires, in seconds since 1970.
    """

    token: int
    owner: Owner | None
    expires: float

    @property
    def is_held(self) -> bool:
        """Whether the run cannot be opened now: its lease has not expired, and its owner is not known to be dead."""
        return self.expires > time.time() and not (self.owner is not None and self.owner.is_dead())


def holding(database: sqlite3.Connection) -> Holding:
    """Return the holder of the run of *database*.

    Raises:
        sqlite3.DatabaseError: The row of the lease is missing or damaged.
    """
    rows = database.execute("SELECT token, CAST(owner AS BLOB), expires FROM lease").fetchall()
    if len(rows) != 1 or type(rows[0][0]) is not int or type(rows[0][2]) not in {int, float}:
        raise sqlite3.DatabaseError("the row of the owner is missing or spoilt")
    token, owner, expires = rows[0]
    return Holding(token, decode(bytes(owner or b"").decode(errors="replace")), expires)


class Lease:
    """The right of this process to add records to a run.

    Args:
        run_id: The run.
        token: The token of this owner.
        seconds: How long the lease lasts after each renewal.
    """

    def __init__(self, run_id: str, token: int, seconds: float) -> None:
        self.run_id = run_id
        self.token = token
        self.seconds = seconds

    @classmethod
    def take(cls, database: sqlite3.Connection, run_id: str, seconds: float, *, steal: bool) -> Lease:
        """Take the run over, in a transaction that is open already.

        Raises:
            RunHeld: The run is held, and *steal* is false.
        """
        former = holding(database)
        if former.is_held and not steal:
            raise RunHeld(held_text(run_id, former))
        lease = cls(run_id, former.token + 1, seconds)
        database.execute(
            "UPDATE lease SET token = ?, owner = ?, expires = ?",
            (lease.token, this_process().encode(), time.time() + seconds),
        )
        return lease

    def check(self, database: sqlite3.Connection) -> None:
        """Check that the run is still ours, in the transaction that adds records; renew the lease after a third of it.

        Raises:
            OwnerLost: Another process has taken the run over.
        """
        row = database.execute("SELECT token, expires FROM lease").fetchone()
        if row is None or not self.is_ours(row[0]):
            raise OwnerLost(f"run '{self.run_id}' was taken over by another process; this one writes nothing more")
        now = time.time()
        if row[1] < now + self.seconds * 2 / 3:
            database.execute("UPDATE lease SET expires = ?", (now + self.seconds,))

    def is_ours(self, token: object) -> bool:
        """Return whether *token*, read from the database, is ours. This is the fence against former owners."""
        return token == self.token

    def release(self, database: sqlite3.Connection) -> bool:
        """Release the run; return whether it was still ours."""
        cursor = database.execute("UPDATE lease SET owner = '', expires = 0 WHERE token = ?", (self.token,))
        return cursor.rowcount == 1


def held_text(run_id: str, holder: Holding) -> str:
    """Return the error message for a run that is held."""
    who = str(holder.owner) if holder.owner is not None else "somebody unknown"
    # The time comes from the database: a damaged one must not raise here.
    until = datetime.fromtimestamp(min(max(holder.expires, 0), 2**32), UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"run '{run_id}' is held by {who}, at least until {until}; stop that process, or take the run over"
