"""The anchor of a run: a file outside the database with the number of its last record.

A database that has lost its last records looks whole: SQLite opens a truncated log file without an error, and returns
fewer rows. The anchor shows the loss. It has two slots that are written in turn, so a torn write leaves one good slot.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from dagrun.journal.hash_chain import ChainFault
from dagrun.journal.run_folder import FILE_MODE, as_failure
from dagrun.kernel.model.journal import Durability, Line

SLOT: Final = 512  # bytes: one disk sector, which a disk writes whole or not at all
_MARK = re.compile(rb"dagrun-anchor 1 (\d{1,18}) ([0-9a-f]{64}) (\d{1,18}) ([0-9a-f]{64})\n *")


@dataclass(frozen=True, slots=True)
class AnchorMark:
    """How far the records of a run go.

    Attributes:
        seq: Number of the last acknowledged record; 0 if there is none.
        digest: Digest of that record, in hex.
        token: Token of the owner that wrote it.
    """

    seq: int
    digest: str
    token: int

    def encode(self) -> bytes:
        """Return the mark as the bytes of one slot."""
        body = b"dagrun-anchor 1 %d %b %d" % (self.seq, self.digest.encode(), self.token)
        return (body + b" " + sha256(body).hexdigest().encode() + b"\n").ljust(SLOT)


def decode(slot: bytes) -> AnchorMark | None:
    """Return the mark in a slot; `None` if the slot is torn, or was never written."""
    match = _MARK.fullmatch(slot)
    if match is None:
        return None
    mark = AnchorMark(int(match[1]), match[2].decode(), int(match[3]))
    return mark if mark.encode() == slot else None


class Anchor:
    """The anchor of a run, open for writing.

    Args:
        path: The file.
        durability: With `Durability.POWER`, each mark is synced to the disk.
    """

    def __init__(self, path: Path, durability: Durability) -> None:
        self._path = path
        self._is_synced = durability is Durability.POWER
        self._descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._slot = 0
        self._identity = _identity(os.fstat(self._descriptor))

    def write(self, mark: AnchorMark) -> None:
        """Write that the records go as far as *mark*. They must be durable already."""
        self._slot = 1 - self._slot
        os.pwrite(self._descriptor, mark.encode(), self._slot * SLOT)
        if self._is_synced:
            os.fdatasync(self._descriptor)

    def is_in_place(self) -> bool:
        """Return whether the path still names the file that was opened.

        Raises:
            OSError: The path names no file.
        """
        return _identity(os.lstat(self._path)) == self._identity

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def replace(path: Path, mark: AnchorMark, durability: Durability) -> Anchor:
    """Replace the anchor file; a former owner may still be writing to the old one.

    Raises:
        OSError: The new file cannot be written.
    """
    new = path.with_name(".anchor-new")
    descriptor = os.open(new, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    try:
        os.write(descriptor, mark.encode() * 2)
        if durability is Durability.POWER:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(new, path)
    return Anchor(path, durability)


def read(path: Path) -> AnchorMark | None:
    """Return the newer mark of the two slots; `None` if neither slot is good, or there is no file.

    Raises:
        JournalFailed: The file cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        with as_failure(f"cannot read {path}"):
            raise error
    try:
        with as_failure(f"cannot read {path}"):
            marks = (decode(os.pread(descriptor, SLOT, place)) for place in (0, SLOT))
            return max((mark for mark in marks if mark is not None), key=lambda mark: mark.seq, default=None)
    finally:
        os.close(descriptor)


def check(lines: Sequence[Line], mark: AnchorMark | None) -> ChainFault | None:
    """Compare the good records of a run with its anchor.

    Returns:
        The fault; `None` if the records go at least as far as the mark, and the record that it names has its digest.
    """
    if mark is None:
        return ChainFault(0, "the anchor, which says how far the records go, is missing or unreadable")
    if mark.seq > len(lines):
        first = len(lines) + 1
        return ChainFault(
            first, f"the records end at {len(lines)}, and {mark.seq} were acknowledged: the last are lost"
        )
    if mark.seq and lines[mark.seq - 1].digest != mark.digest:
        return ChainFault(
            mark.seq, f"record {mark.seq} is not the one that the anchor knows: the records were created again"
        )
    return None
