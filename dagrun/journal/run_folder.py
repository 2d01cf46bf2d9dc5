"""The folder of a run on disk: its paths, and the checks that only its user can read or write it."""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from dagrun.errors import JournalFailed, RunExists
from dagrun.journal.base import ANSWER_KEY_LENGTH, is_run_id, new_answer_key

_MOUNTS: Final = Path("/proc/self/mountinfo")
# Network file systems: SQLite's locks and shared memory do not work there, or only seem to.
_NETWORK: Final = frozenset(
    ("afs", "beegfs", "ceph", "cifs", "davfs", "glusterfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs", "sshfs")
)


def network_of(path: Path, mounts: str | None = None) -> str:
    """Return the name of the network file system that *path* is on; empty if it is on none, or if that is unknown.

    Args:
        path: A folder that exists.
        mounts: The text of ``/proc/self/mountinfo``; `None` to read that file.
    """
    if mounts is None:
        try:
            mounts = _MOUNTS.read_text(errors="surrogateescape")
        except OSError:
            return ""
    real = os.path.realpath(path)
    # The deepest mount point counts; of two mounts at the same point, the later one.
    deepest, kind = -1, ""
    for point, its_kind in map(_mount, mounts.splitlines()):
        if _holds(point, real) and len(point) >= deepest:
            deepest, kind = len(point), its_kind
    return kind if kind.removeprefix("fuse.") in _NETWORK else ""


def _mount(line: str) -> tuple[str, str]:
    """Return the mount point and the file system type of a line; two empty texts for a line that has none."""
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
_ANSWER_KEY: Final = re.compile(rb"[0-9a-f]{%d}" % ANSWER_KEY_LENGTH)


class RunPaths:
    """The paths in the folder of one run.

    Args:
        folder: The folder of the run.
    """

    __slots__ = ("anchor", "answer_key", "artifacts", "database", "folder", "inbox", "wake", "wal")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = folder / "journal.db"
        self.wal = folder / "journal.db-wal"
        self.anchor = folder / "anchor"
        self.answer_key = folder / "answer_key"  # beside the inbox: who may write messages need not read the key
        self.artifacts = folder / "artifacts"
        self.inbox = folder / "inbox"
        self.wake = self.inbox / ".wake"

    def exists(self) -> bool:
        """Return whether the folder of the run exists."""
        return os.path.lexists(self.folder)

    def identities(self) -> list[tuple[int, int]]:
        """Return device and inode of the database files, to find out later whether a file was replaced.

        Raises:
            OSError: A file is missing.
        """
        files = [os.lstat(path) for path in (self.database, self.wal)]
        return [(file.st_dev, file.st_ino) for file in files]

    def state(self) -> tuple[int, ...]:
        """Return inode, size and time of the last write of the database files; they change with each write.

        Raises:
            OSError: There is no database.
        """
        files = [os.lstat(self.database)]
        with suppress(FileNotFoundError):  # SQLite deletes the log when the last process closes the database
            log = os.lstat(self.wal)
            files += [log] if log.st_size else []  # a reader makes an empty one
        return tuple(number for file in files for number in (file.st_ino, file.st_size, file.st_mtime_ns))

    def make(self) -> None:
        """Make the folders and an empty database, with access for this user only."""
        for folder in (self.folder, self.artifacts, self.inbox):
            os.mkdir(folder, FOLDER_MODE)
        os.mkfifo(self.wake, FILE_MODE)
        # SQLite makes the log files beside it with the mode of this file.
        os.close(os.open(self.database, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE))
        self.read_answer_key()

    def read_answer_key(self) -> str:
        """Return the answer key of the run. A run of an older version, or after a power cut, gets a new one.

        Raises:
            JournalFailed: The file cannot be read or written, or another user could have put it there.
        """
        with as_failure(f"cannot use {self.answer_key}"):
            if not self._has_answer_key():
                self.answer_key.unlink(missing_ok=True)
                self._write_answer_key()
            return self.answer_key.read_text(encoding="ascii")

    def _has_answer_key(self) -> bool:
        if not os.path.lexists(self.answer_key):
            return False
        check_file(self.answer_key)
        return _ANSWER_KEY.fullmatch(self.answer_key.read_bytes()) is not None

    def _write_answer_key(self) -> None:
        """Write a new answer key, unless another process has just written one."""
        draft = hidden_path(self.folder, "key")
        descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, FILE_MODE)
        try:
            with open(descriptor, "w", encoding="ascii") as file:
                file.write(new_answer_key())
            with suppress(FileExistsError):
                os.link(draft, self.answer_key)
        finally:
            draft.unlink()

    def check(self) -> None:
        """Refuse files and folders that another user could have put there, or could change.

        Raises:
            JournalFailed: A file or folder is a link, belongs to another user, or is writable for everybody; the
                message says which.
        """
        check_folder(self.folder)
        for folder in (self.artifacts, self.inbox):
            if os.path.lexists(folder):
                check_folder(folder)
        for name in ("journal.db", "journal.db-wal", "journal.db-shm", "anchor", "answer_key"):
            path = self.folder / name
            if os.path.lexists(path):
                check_file(path)


def check_folder(path: Path) -> None:
    """Refuse a folder that is not safe to use.

    Raises:
        JournalFailed: *path* is not a folder, is a link, belongs to another user, or is writable for everybody.
    """
    _check(path, stat.S_IFDIR, "folder")


def check_file(path: Path) -> None:
    """Refuse a file that is not safe to use.

    Raises:
        JournalFailed: *path* is not a plain file, is a link, belongs to another user, or is writable for everybody.
    """
    _check(path, stat.S_IFREG, "plain file")


def _check(path: Path, kind: int, word: str) -> None:
    with as_failure(f"cannot use {path}"):
        status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        raise JournalFailed(f"{path} is a symbolic link; records are kept only in a place that is named itself")
    if stat.S_IFMT(status.st_mode) != kind:
        raise JournalFailed(f"{path} is not a {word}; choose another place for the records of runs")
    if status.st_uid != os.geteuid():
        raise JournalFailed(f"{path} belongs to user {status.st_uid}; records are kept only in a place of one's own")
    if status.st_mode & stat.S_IWOTH:
        raise JournalFailed(f"{path} can be written by everybody; take that away (chmod o-w), or choose another place")


def make_root(folder: Path) -> None:
    """Make the folder of all runs, unless it exists, and check it.

    Raises:
        JournalFailed: The folder cannot be made, is not safe to use, or is on a network file system.
    """
    if not os.path.lexists(folder):
        with as_failure(f"cannot make the folder {folder}"):
            os.makedirs(folder, FOLDER_MODE, exist_ok=True)
    check_folder(folder)
    if network := network_of(folder):
        raise JournalFailed(f"{folder} is on {network}, where SQLite is not safe; choose a local folder, or PostgreSQL")


def run_names(folder: Path) -> list[str]:
    """Return the names of the runs in *folder*, sorted; none if the folder does not exist."""
    if not os.path.lexists(folder):
        return []
    check_folder(folder)
    with as_failure(f"cannot look into {folder}"):
        return sorted(
            name for name in os.listdir(folder) if is_run_id(name) and (folder / name / "journal.db").exists()
        )


def hidden_path(folder: Path, why: str) -> Path:
    """Return a new path in *folder* that is not a valid run id: for a run that is being made, or being deleted."""
    return folder / f".{why}-{secrets.token_hex(8)}"


def read_up_to(path: Path, most: int) -> bytes:
    """Return the first bytes of a file, *most* and one; links are not followed, and pipes not waited for.

    Raises:
        OSError: It cannot be opened.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        return file.read(most + 1)


def write_new(path: Path, data: bytes, *, is_synced: bool) -> None:
    """Write a new file for this user only, completely or not at all.

    Raises:
        OSError: There is one, or it cannot be written.
    """
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            if is_synced:
                file.flush()
                os.fsync(descriptor)
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise


def replace_file(path: Path, data: bytes, *, is_synced: bool = False) -> None:
    """Put a new file in the place of *path*: readers see the old one or the new one.

    Raises:
        OSError: It cannot be written.
    """
    new = hidden_path(path.parent, "new")
    write_new(new, data, is_synced=is_synced)
    try:
        os.rename(new, path)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise
    if is_synced:
        sync_folder(path.parent)


def publish(new: Path, paths: RunPaths) -> None:
    """Rename the finished folder *new* to the folder of the run, in one step.

    Raises:
        RunExists: There is a run of this name.
        JournalFailed: The folder cannot be renamed.
    """
    try:
        os.rename(new, paths.folder)
    except OSError as error:
        if paths.exists():
            raise RunExists(f"there is a run '{paths.folder.name}' already; choose another id") from error
        raise JournalFailed(f"cannot make {paths.folder}: {error.strerror}") from error


def sync_folder(folder: Path) -> None:
    """Make the names in *folder* survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def as_failure(what: str) -> Iterator[None]:
    """Turn an `OSError` of the body into a `JournalFailed` that begins with *what*.

    Raises:
        JournalFailed: The body raised an `OSError`.
    """
    try:
        yield
    except OSError as error:
        raise JournalFailed(f"{what}: {error.strerror or error}") from error
