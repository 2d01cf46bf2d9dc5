"""Files below one folder, and no others.

Paths are never compared as text, and never resolved by one call and used by the next: each part is opened from the
descriptor of the folder before it, without following links, so there is no moment at which a link could be put in.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dagrun import ToolError

MAX_PATH: Final = 4096
MAX_NAME: Final = 255  # bytes, as file systems have it
_CHUNK: Final = 1 << 20

# Dots and slashes in disguise: another program may decode what was harmless here.
_ENCODED: Final = re.compile(r"%(?:2e|2f|5c|00)", re.IGNORECASE)
_FOLDER: Final = getattr(os, "O_DIRECTORY", 0) | os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)
_NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0)
# Not blocking: who opens a FIFO waits for its other end, for ever.
_READ: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_CLOEXEC", 0)
_DRAFT: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)


class OutsideRoot(ToolError):
    """The path leads out of the folder that tools may use, or to something that is not a file of its own."""

    def __init__(self, message: str) -> None:
        super().__init__(message, permission=True)


def parts_of(path: str) -> list[str]:
    """Split a path into its names.

    Raises:
        OutsideRoot: It is absolute, or has names that lead upwards.
        ToolError: It is no path of a file.
    """
    if not path or len(path) > MAX_PATH:
        raise ToolError(f"a path has 1 to {MAX_PATH} characters, not {len(path)}")
    if any(not c.isprintable() for c in path):
        raise ToolError("the path holds a control character")
    if path.startswith(("/", "~")) or "\\" in path or re.match(r"[A-Za-z]:", path) or _ENCODED.search(path):
        raise OutsideRoot("the path must be relative, with plain names and '/' between them")
    parts = path.removeprefix("./").split("/")
    if ".." in parts:
        raise OutsideRoot("the path must not lead upwards")
    if any(part in ("", ".") for part in parts):
        raise ToolError("the path holds an empty name")
    if any(len(os.fsencode(part)) > MAX_NAME for part in parts):
        raise ToolError(f"a name in the path has more than {MAX_NAME} bytes")
    return parts


def read(root: Path, path: str, max_bytes: int) -> bytes:
    """Read the file *path* below *root*.

    Raises:
        ToolError: There is none, it must not be read, or it has more than *max_bytes*.
    """
    *folders, name = parts_of(path)
    with _explained(path), _folder(root, folders) as folder:
        _existing(folder, name, path)  # opening a device, or one end of a FIFO, is not without effect
        file = os.open(name, _READ | _NO_LINK, dir_fd=folder)
        with os.fdopen(file, "rb", buffering=0) as opened:
            _check(os.fstat(file), path)  # again: this is the one that is read
            # By count, not by the size that it claims: it may grow meanwhile.
            chunks, left = [], max_bytes + 1
            while left and (chunk := opened.read(min(left, _CHUNK))):
                chunks.append(chunk)
                left -= len(chunk)
    if not left:
        raise ToolError(f"{path} has more than the ceiling of {max_bytes} bytes")
    return b"".join(chunks)


def write(root: Path, path: str, data: bytes, *, overwrite: bool) -> bool:
    """Write the file *path* below *root*, whole or not at all; folders are made as needed.

    Returns:
        Whether anything was written: a file with that very content is left as it is.

    Raises:
        ToolError: It must not be written, or is there already with another content.
    """
    *folders, name = parts_of(path)
    with _explained(path), _folder(root, folders, make=True) as folder:
        found = _existing(folder, name, path)
        if found is not None and found.st_size == len(data) and read(root, path, len(data)) == data:
            return False
        if found is not None and not overwrite:
            raise _exists(path)
        _replace(folder, name, data, path, overwrite=overwrite)
    return True


def _replace(folder: int, name: str, data: bytes, path: str, *, overwrite: bool) -> None:
    draft = f".draft-{secrets.token_hex(8)}"
    try:
        _write_draft(folder, draft, data)
        _publish(folder, draft, name, path, overwrite=overwrite)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=folder)
    os.fsync(folder)


def _write_draft(folder: int, draft: str, data: bytes) -> None:
    with os.fdopen(os.open(draft, _DRAFT | _NO_LINK, 0o666, dir_fd=folder), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _publish(folder: int, draft: str, name: str, path: str, *, overwrite: bool) -> None:
    if overwrite:
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
        return
    try:
        # A rename would replace what somebody else has put there since we looked; a link fails.
        os.link(draft, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        raise _exists(path) from None


def _exists(path: str) -> ToolError:
    return ToolError(f"{path} exists already, with another content; pass overwrite to replace it")


def _existing(folder: int, name: str, path: str) -> os.stat_result | None:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    _check(found, path)
    return found


def _check(found: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OutsideRoot(f"{path} is not a regular file")
    if found.st_nlink > 1:
        raise OutsideRoot(f"{path} has {found.st_nlink} names, and the others may be anywhere")


@contextmanager
def _folder(root: Path, parts: Iterable[str], *, make: bool = False) -> Iterator[int]:
    """Open the folder that *parts* lead to, step by step."""
    if not hasattr(os, "O_NOFOLLOW") or os.open not in os.supports_dir_fd:
        raise ToolError("files cannot be confined to a folder on this system")
    try:
        folder = os.open(root, _FOLDER)  # the host program has named it, so it may be a link
    except (FileNotFoundError, NotADirectoryError):
        raise ToolError("the folder for the files of tools does not exist; the host program must make it") from None
    try:
        for part in parts:
            below = _enter(folder, part, make=make)
            os.close(folder)
            folder = below
        yield folder
    finally:
        os.close(folder)


def _enter(folder: int, part: str, *, make: bool) -> int:
    if make:
        with suppress(FileExistsError):
            os.mkdir(part, dir_fd=folder)
    return os.open(part, _FOLDER | _NO_LINK, dir_fd=folder)


@dataclass(frozen=True, slots=True)
class _Sentence:
    text: str
    forbidden: bool = False


_SENTENCES: Final = {
    errno.ENOENT: _Sentence("does not exist"),
    errno.ENOTDIR: _Sentence("leads through something that is no folder, or a link", forbidden=True),
    errno.ELOOP: _Sentence("is a link", forbidden=True),
    errno.EMLINK: _Sentence("is a link", forbidden=True),
    errno.ENXIO: _Sentence("is not a regular file", forbidden=True),
    errno.EISDIR: _Sentence("is a folder"),
    errno.EACCES: _Sentence("may not be opened by this program", forbidden=True),
    errno.EPERM: _Sentence("may not be opened by this program", forbidden=True),
}


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """Turn what the system says into a sentence."""
    try:
        yield
    except OSError as error:
        sentence = _SENTENCES.get(error.errno or 0)
        if sentence is None:
            raise  # a full disk, say: nobody has foreseen it, and its effect is in doubt
        kind = OutsideRoot if sentence.forbidden else ToolError
        raise kind(f"{path} {sentence.text}") from error
