"""Who may add to a run: a lease that ends by itself, and a token that only ever grows.

The lease keeps others away while its owner lives. It cannot keep an owner away that slept through its end: the token
does that. Each transaction that adds records looks, inside itself, whether the token is still the owner's.
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
    """A process, named so that no later one can be taken for it.

    Attributes:
        host: The name of the machine.
        boot: Of its start; empty where the system tells none.
        space: In which process ids are counted: two containers count apart.
        pid: The process id.
        started: When the process was started, in ticks since the start of the machine; 0 where nobody tells.
    """

    host: str
    boot: str
    space: str
    pid: int
    started: int

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    def encode(self) -> str:
        """Give the owner as text."""
        return json.dumps(asdict(self))

    def is_dead(self) -> bool:
        """Whether the process is known to have ended; of one on another machine nobody knows."""
        here = this_process()
        if (self.host, self.space) != (here.host, here.space):
            return False
        return self.boot != here.boot or _started(self.pid) != self.started


def this_process() -> Owner:
    """The process that asks."""
    pid = os.getpid()
    return Owner(os.uname().nodename, _boot(), _space(), pid, _started(pid) or 0)


def decode(text: object) -> Owner | None:
    """Read an owner; `None` if nobody is named, or not in our words."""
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
    """When a process was started; `None` if it has ended, 0 if it lives and the system does not say since when."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return _is_alive(pid)
    # A process that was killed stays a zombie until its parent has looked.
    return None if fields[0] in {b"Z", b"X"} else int(fields[19])


def _is_alive(pid: int) -> int | None:
    if os.path.exists("/proc/self/stat"):
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        pass  # it lives, and is somebody else's
    return 0


@dataclass(frozen=True, slots=True)
class Holding:
    """Who holds a run, as the database says.

    Attributes:
        token: Of the last owner.
        owner: The process; `None` if nobody holds the run, or its name cannot be read.
        expires: When the lease runs out, in seconds since 1970.
    """

    token: int
    owner: Owner | None
    expires: float

    @property
    def is_held(self) -> bool:
        """Whether the run could not be opened now."""
        return self.expires > time.time() and not (self.owner is not None and self.owner.is_dead())


def holding(database: sqlite3.Connection) -> Holding:
    """Say who holds the run.

    Raises:
        sqlite3.DatabaseError: The database does not say.
    """
    found = database.execute("SELECT token, CAST(owner AS BLOB), expires FROM lease").fetchall()
    if len(found) != 1 or type(found[0][0]) is not int or type(found[0][2]) not in {int, float}:
        raise sqlite3.DatabaseError("the row of the owner is missing or spoilt")
    token, owner, expires = found[0]
    return Holding(token, decode(bytes(owner or b"").decode(errors="replace")), expires)


class Lease:
    """The right to add to a run, as its owner holds it.

    Args:
        run_id: The run.
        token: Ours.
        seconds: How long the lease goes on after it was renewed.
    """

    def __init__(self, run_id: str, token: int, seconds: float) -> None:
        self.run_id = run_id
        self.token = token
        self.seconds = seconds

    @classmethod
    def take(cls, database: sqlite3.Connection, run_id: str, seconds: float, *, steal: bool) -> Lease:
        """Take the run over, in a transaction that is open already.

        Raises:
            RunHeld: It has an owner that lives, and *steal* is false.
        """
        found = holding(database)
        if found.is_held and not steal:
            raise RunHeld(held_text(run_id, found))
        lease = cls(run_id, found.token + 1, seconds)
        database.execute(
            "UPDATE lease SET token = ?, owner = ?, expires = ?",
            (lease.token, this_process().encode(), time.time() + seconds),
        )
        return lease

    def check(self, database: sqlite3.Connection) -> None:
        """Make sure that the run is still ours, in the transaction that adds to it; renew what is two thirds left.

        Raises:
            OwnerLost: Somebody else has it.
        """
        found = database.execute("SELECT token, expires FROM lease").fetchone()
        if found is None or not self.is_ours(found[0]):
            raise OwnerLost(f"run '{self.run_id}' was taken over by another process; this one writes nothing more")
        now = time.time()
        if found[1] < now + self.seconds * 2 / 3:
            database.execute("UPDATE lease SET expires = ?", (now + self.seconds,))

    def is_ours(self, token: object) -> bool:
        """Whether *token*, which the database holds, is ours: the fence."""
        return token == self.token

    def release(self, database: sqlite3.Connection) -> None:
        """Let go of the run."""
        database.execute("UPDATE lease SET owner = '', expires = 0 WHERE token = ?", (self.token,))


def held_text(run_id: str, found: Holding) -> str:
    """The sentence for a run that somebody holds."""
    who = str(found.owner) if found.owner is not None else "somebody unknown"
    # A spoilt time must not hide the message.
    until = datetime.fromtimestamp(min(max(found.expires, 0), 2**32), UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"run '{run_id}' is held by {who}, at least until {until}; stop that process, or take the run over"
