"""The SQLite database of one run: its tables, its opening, and the meaning of its errors."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from dagrun.errors import JournalDamaged, JournalFailed
from dagrun.journal import lease
from dagrun.journal.hash_chain import ChainFault, verify
from dagrun.kernel.model.journal import Durability, Line, StoredRow

FORMAT: Final = 1  # of the tables
APPLICATION: Final = 0x64616772  # "dagr": shown by the command `file`
CHECKPOINT: Final = 4000  # pages of the log: rare checkpoints cost less, and 16 MB are read fast after a crash
# A row holds the records of one transaction: the number of the first, all texts, and the digest of the last. One row
# for each record would take SQLite four times as long.
RECORDS = "CREATE TABLE records (seq INTEGER PRIMARY KEY, text TEXT NOT NULL, digest TEXT NOT NULL)"
INSERT: Final = "INSERT INTO records (seq, text, digest) VALUES (?, ?, ?)"
_SCHEMA = sorted((RECORDS, lease.TABLE))

# Errors of the place (disk, rights, locks), which say nothing about the records; the texts are part of error messages.
_PLACE: Final = {
    sqlite3.SQLITE_PERM: "access is denied",
    sqlite3.SQLITE_BUSY: "another process has locked it for too long",
    sqlite3.SQLITE_LOCKED: "another process has locked it for too long",
    sqlite3.SQLITE_READONLY: "it cannot be written",
    sqlite3.SQLITE_IOERR: "the disk does not do what it should",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened",
    sqlite3.SQLITE_NOLFS: "the disk does not take files of this size",
    sqlite3.SQLITE_AUTH: "access is denied",
    sqlite3.SQLITE_INTERRUPT: "it was interrupted",
}
_SHORT_READ: Final = 522  # SQLITE_IOERR_SHORT_READ: the file ends in the middle of a page


def create(path: Path, durability: Durability) -> None:
    """Make the tables of a new run, which has no owner yet, in the empty file *path*.

    Args:
        path: The file.
        durability: What the run survives.

    Raises:
        sqlite3.Error: The file cannot be written.
    """
    database = sqlite3.connect(path, isolation_level=None)
    try:
        # At level `process` nothing is synced: if this breaks off, nothing is lost, as the run has no name yet.
        database.execute(f"PRAGMA synchronous={'FULL' if durability is Durability.POWER else 'OFF'}")
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("BEGIN IMMEDIATE")
        for statement in (RECORDS, lease.TABLE, "INSERT INTO lease VALUES (1, 0, '', 0)"):
            database.execute(statement)
        database.execute(f"PRAGMA application_id={APPLICATION}")
        database.execute(f"PRAGMA user_version={FORMAT}")
        database.execute("COMMIT")
    finally:
        database.close()


def open_for_writing(path: Path, durability: Durability, busy_seconds: float) -> sqlite3.Connection:
    """Open the database of a run to add records.

    Raises:
        sqlite3.Error: The database cannot be opened.
    """
    # One thread opens the connection and another one writes with it, but never both at once.
    database = _connect(path, "rw", busy_seconds)
    try:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute(f"PRAGMA synchronous={'FULL' if durability is Durability.POWER else 'NORMAL'}")
        database.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT}")
    except BaseException:
        database.close()
        raise
    return database


def _connect(path: Path, mode: str, busy_seconds: float) -> sqlite3.Connection:
    database = sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?mode={mode}",
        uri=True,
        timeout=busy_seconds,
        isolation_level=None,  # no implicit transactions: each is begun by a statement of ours
        check_same_thread=False,
    )
    # Text is returned as stored, valid UTF-8 or not.
    database.text_factory = bytes
    # A file that another program has made must not run code through its schema.
    database.execute("PRAGMA trusted_schema=OFF")
    database.execute("PRAGMA cell_size_check=ON")
    return database


def rows_after(database: sqlite3.Connection, seq: int) -> list[StoredRow]:
    """Read the records after record *seq*, and check nothing.

    Raises:
        sqlite3.Error: The database cannot be read.
    """
    rows = database.execute("SELECT seq, text, digest FROM records WHERE seq > ? ORDER BY seq", (seq,))
    return [(number, text, _digest(stored)) for number, text, stored in rows]


def records(run_id: str, database: sqlite3.Connection) -> tuple[list[Line], ChainFault | None]:
    """Read and check the records of a run, in a transaction that is open already.

    Returns:
        The good records; and the fault of the next record or of the database, or `None`.

    Raises:
        sqlite3.Error: The database cannot be read.
    """
    fault = _fault_of_schema(database)
    if fault is not None:
        return [], fault
    rows = database.execute("SELECT seq, text, digest FROM records ORDER BY seq")  # also numbers below 1
    return verify(run_id, ((seq, text, _digest(stored)) for seq, text, stored in rows))


def _digest(stored: object) -> object:
    return stored.decode("ascii", "replace") if isinstance(stored, bytes) else stored


def _fault_of_schema(database: sqlite3.Connection) -> ChainFault | None:
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version != FORMAT:
        return ChainFault(0, f"the database has format {version}; this version of dagrun reads format {FORMAT}")
    rows = database.execute("SELECT CAST(sql AS BLOB) FROM sqlite_master")
    tables = sorted((sql or b"").decode(errors="replace") for (sql,) in rows)
    return None if tables == _SCHEMA else ChainFault(0, "the database does not have the tables of a journal")


@contextmanager
def reading(run_id: str, path: Path) -> Iterator[None]:
    """Turn a read error of SQLite into one that tells damaged records from an unreachable file.

    Raises:
        JournalDamaged: The database was changed or damaged.
        JournalFailed: The database cannot be read.
    """
    try:
        yield
    except MemoryError as error:
        raise JournalDamaged(run_id, 0, "the database names a size that no memory has") from error
    except sqlite3.Error as error:
        if _is_of_the_place(error):
            raise JournalFailed(f"cannot read {path}: {_why(error)}") from error
        raise JournalDamaged(run_id, 0, f"the database was changed or damaged: {error}") from error


@contextmanager
def open_for_reading(run_id: str, path: Path, busy_seconds: float) -> Iterator[sqlite3.Connection]:
    """Open the database of a run for the body, which only reads it; its owner may add records meanwhile.

    Raises:
        JournalDamaged: The database was changed or damaged.
        JournalFailed: The database cannot be read.
    """
    with reading(run_id, path):
        connection = _connect(path, "ro", busy_seconds)
        try:
            yield connection
        finally:
            connection.close()


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an error of SQLite or of the system while writing into `JournalFailed`.

    Raises:
        JournalFailed: The body raised such an error.
    """
    try:
        yield
    except sqlite3.Error as error:
        raise JournalFailed(f"cannot write {path}: {_why(error)}") from error
    except (OSError, MemoryError) as error:
        raise JournalFailed(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from error


def _is_of_the_place(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", 0)
    return code != _SHORT_READ and code & 0xFF in _PLACE


def _why(error: sqlite3.Error) -> str:
    words = _PLACE.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
    return f"{words} ({error})" if words else str(error)
