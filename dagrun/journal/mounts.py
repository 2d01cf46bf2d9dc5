"""File systems on which records are not safe: the files of SQLite's journal are shared memory, and need one machine."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

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
