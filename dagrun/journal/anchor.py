"""The anchor: how far the records of a run go, kept outside their database.

A database that has lost its tail looks whole: a truncated file of SQLite's log opens without an error, and gives fewer
rows. The anchor tells. It has two slots that are written in turn, so that a torn write leaves one that is good.
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
from dagrun.model.journal import Durability, Line

SLOT: Final = 512  # bytes: a sector of a disk, which is written whole
_MARK = re.compile(rb"dagrun-anchor 1 (\d{1,18}) ([0-9a-f]{64}) (\d{1,18}) ([0-9a-f]{64})\n *")


@dataclass(frozen=True, slots=True)
class AnchorMark:
    """How far a journal goes.

    Attributes:
        seq: Of the last record that was acknowledged; 0 if there is none.
        digest: Of that record, in hex.
        token: Of the owner who wrote it.
    """

    seq: int
    digest: str
    token: int

    def encode(self) -> bytes:
        """Give the mark as a slot holds it."""
        body = b"dagrun-anchor 1 %d %b %d" % (self.seq, self.digest.encode(), self.token)
        return (body + b" " + sha256(body).hexdigest().encode() + b"\n").ljust(SLOT)


def decode(slot: bytes) -> AnchorMark | None:
    """Read a slot; `None` if it was torn, or never written."""
    found = _MARK.fullmatch(slot)
    if found is None:
        return None
    mark = AnchorMark(int(found[1]), found[2].decode(), int(found[3]))
    return mark if mark.encode() == slot else None


class Anchor:
    """The anchor of a run, open for writing.

    Args:
        path: The file.
        durability: Whether each mark has to survive a power cut.
    """

    def __init__(self, path: Path, durability: Durability) -> None:
        self._path = path
        self._is_synced = durability is Durability.POWER
        self._descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._slot = 0
        self._identity = _identity(os.fstat(self._descriptor))

    def write(self, mark: AnchorMark) -> None:
        """Say that the journal goes as far as *mark*; what it says must be durable already."""
        self._slot = 1 - self._slot
        os.pwrite(self._descriptor, mark.encode(), self._slot * SLOT)
        if self._is_synced:
            os.fdatasync(self._descriptor)

    def is_in_place(self) -> bool:
        """Whether the file is still where it was.

        Raises:
            OSError: There is none.
        """
        return _identity(os.lstat(self._path)) == self._identity

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def replace(path: Path, mark: AnchorMark, durability: Durability) -> Anchor:
    """Begin a new anchor in the place of the old one, which a former owner may still be writing to.

    Raises:
        OSError: It cannot be written.
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
    """Read the newer of the good slots; `None` if neither is, or there is no anchor.

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
        What is wrong; `None` if the records go at least as far as the anchor says, and are those that it knows.
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
            mark.seq, f"record {mark.seq} is not the one that the anchor knows: the records were made anew"
        )
    return None
