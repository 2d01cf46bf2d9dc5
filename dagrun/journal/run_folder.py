"""The folders of runs: one each, which nobody but their user can read or write."""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dagrun.errors import JournalFailed, RunExists
from dagrun.journal.base import is_run_id

_MOUNTS: Final = Path("/proc/self/mountinfo")
# Those of the network: locks and shared memory of SQLite do not work there, or only seem to.
_NETWORK: Final = frozenset(
    ("afs", "beegfs", "ceph", "cifs", "davfs", "glusterfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs", "sshfs")
)


def network_of(path: Path, mounts: str | None = None) -> str:
    """The name of the network file system that *path* is on; empty if it is on none, or nobody says.

    Args:
        path: A folder that exists.
        mounts: What is mounted where, as ``/proc/self/mountinfo`` says it, which is read if nothing is given.
    """
    if mounts is None:
        try:
            mounts = _MOUNTS.read_text(errors="surrogateescape")
        except OSError:
            return ""
    real = os.path.realpath(path)
    # What is mounted deepest counts; of two at the same place, the later one.
    deepest, kind = -1, ""
    for point, its_kind in map(_mount, mounts.splitlines()):
        if _holds(point, real) and len(point) >= deepest:
            deepest, kind = len(point), its_kind
    return kind if kind.removeprefix("fuse.") in _NETWORK else ""


def _mount(line: str) -> tuple[str, str]:
    """Where something is mounted, and of what kind it is; two empty texts for a line that says neither."""
    before, _, after = line.partition(" - ")
    fields, kinds = before.split(" "), after.split(" ")
    if len(fields) < 5 or not kinds[0]:
        return "", ""
    point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal.group(1), 8)), fields[4])
    return point, kinds[0]


def _holds(point: str, path: str) -> bool:
    return bool(point) and (path == point or path.startswith(point.rstrip("/") + "/"))


FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600


class Place:
    """The folder of one run, and what is in it.

    Args:
        folder: Where it is.
    """

    __slots__ = ("anchor", "artifacts", "database", "folder", "inbox", "wake", "wal")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = folder / "journal.db"
        self.wal = folder / "journal.db-wal"
        self.anchor = folder / "anchor"
        self.artifacts = folder / "artifacts"
        self.inbox = folder / "inbox"
        self.wake = self.inbox / ".wake"

    def exists(self) -> bool:
        """Whether there is a run."""
        return os.path.lexists(self.folder)

    def identities(self) -> list[tuple[int, int]]:
        """What the files of the database are, to tell later whether their names still stand for them.

        Raises:
            OSError: One is missing.
        """
        found = [os.lstat(path) for path in (self.database, self.wal)]
        return [(file.st_dev, file.st_ino) for file in found]

    def make(self) -> None:
        """Make the folders and an empty database, closed to everybody else."""
        for folder in (self.folder, self.artifacts, self.inbox):
            os.mkdir(folder, FOLDER_MODE)
        os.mkfifo(self.wake, FILE_MODE)
        # SQLite gives the files beside it the mode of this one.
        os.close(os.open(self.database, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE))

    def check(self) -> None:
        """Refuse what others could have put there, or could change.

        Raises:
            JournalFailed: One of the files or folders is a link, somebody else's, or writable for everybody; the
                message says which.
        """
        check_folder(self.folder)
        for folder in (self.artifacts, self.inbox):
            if os.path.lexists(folder):
                check_folder(folder)
        for name in ("journal.db", "journal.db-wal", "journal.db-shm", "anchor"):
            path = self.folder / name
            if os.path.lexists(path):
                check_file(path)


def check_folder(path: Path) -> None:
    """Refuse a folder that is none of ours.

    Raises:
        JournalFailed: It is no folder, a link, somebody else's, or writable for everybody.
    """
    _check(path, stat.S_IFDIR, "folder")


def check_file(path: Path) -> None:
    """Refuse a file that is none of ours.

    Raises:
        JournalFailed: It is no plain file, a link, somebody else's, or writable for everybody.
    """
    _check(path, stat.S_IFREG, "plain file")


def _check(path: Path, kind: int, word: str) -> None:
    with as_failure(f"cannot use {path}"):
        found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode):
        raise JournalFailed(f"{path} is a symbolic link; records are kept only in a place that is named itself")
    if stat.S_IFMT(found.st_mode) != kind:
        raise JournalFailed(f"{path} is not a {word}; choose another place for the records of runs")
    if found.st_uid != os.geteuid():
        raise JournalFailed(f"{path} belongs to user {found.st_uid}; records are kept only in a place of one's own")
    if found.st_mode & stat.S_IWOTH:
        raise JournalFailed(f"{path} can be written by everybody; take that away (chmod o-w), or choose another place")


def make_root(folder: Path) -> None:
    """Make the folder of all runs, if it is not there, and check it.

    Raises:
        JournalFailed: It cannot be made, is none of ours, or is on a file system of the network.
    """
    if not os.path.lexists(folder):
        with as_failure(f"cannot make the folder {folder}"):
            os.makedirs(folder, FOLDER_MODE, exist_ok=True)
    check_folder(folder)
    if network := network_of(folder):
        raise JournalFailed(f"{folder} is on {network}, where SQLite is not safe; choose a local folder, or PostgreSQL")


def run_names(folder: Path) -> list[str]:
    """The names of the runs in *folder*, sorted; none if it does not exist."""
    if not os.path.lexists(folder):
        return []
    check_folder(folder)
    with as_failure(f"cannot look into {folder}"):
        return sorted(
            name for name in os.listdir(folder) if is_run_id(name) and (folder / name / "journal.db").exists()
        )


def unseen(folder: Path, why: str) -> Path:
    """A path in *folder* that is no name of a run: for what is not there yet, or not any more."""
    return folder / f".{why}-{secrets.token_hex(8)}"


def publish(new: Path, place: Place) -> None:
    """Give the finished folder of a run its name, in one step.

    Raises:
        RunExists: There is one of this name.
        JournalFailed: It cannot be done.
    """
    try:
        os.rename(new, place.folder)
    except OSError as error:
        if place.exists():
            raise RunExists(f"there is a run '{place.folder.name}' already; choose another id") from error
        raise JournalFailed(f"cannot make {place.folder}: {error.strerror}") from error


def sync_folder(folder: Path) -> None:
    """Make the names in *folder* survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def as_failure(what: str) -> Iterator[None]:
    """Say of an error of the system what could not be done.

    Raises:
        JournalFailed: In place of an `OSError`.
    """
    try:
        yield
    except OSError as error:
        raise JournalFailed(f"{what}: {error.strerror or error}") from error
