"""Files below one folder, and no others.

Paths are never compared as text, and never resolved by one call to be used by the next. Each part of a path is opened
from the descriptor of the folder before it, without following links. So there is no moment at which somebody could put
a link in the way.
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
MAX_NAME: Final = 255  # bytes, the limit of file systems
_CHUNK: Final = 1 << 20

# Encoded dots, slashes and zero bytes: harmless here, but another program may decode them.
_ENCODED: Final = re.compile(r"%(?:2e|2f|5c|00)", re.IGNORECASE)
_FOLDER: Final = getattr(os, "O_DIRECTORY", 0) | os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)
_NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0)
# Non-blocking: opening a FIFO would wait for its other end, for ever.
_READ: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_CLOEXEC", 0)
_DRAFT: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)


class OutsideRoot(ToolError):
    """The path leads out of the folder that tools may use, or to something that is not an ordinary file."""

    def __init__(self, message: str) -> None:
        super().__init__(message, permission=True)


def parts_of(path: str) -> list[str]:
    """Split a path into its names.

    Raises:
        OutsideRoot: The path is absolute, or leads upwards.
        ToolError: The text is not a path of a file.
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
        ToolError: The file does not exist, must not be read, or has more than *max_bytes*.
    """
    *folders, name = parts_of(path)
    with _explained(path), _folder(root, folders) as folder:
        _existing(folder, name, path)  # before it is opened: to open a device or a FIFO may have effects
        file = os.open(name, _READ | _NO_LINK, dir_fd=folder)
        with os.fdopen(file, "rb", buffering=0) as opened:
            _check(os.fstat(file), path)  # again: this is the file that is read, whatever the name means by now
            # Bytes are counted as they come; the size of the file may grow meanwhile.
            chunks, left = [], max_bytes + 1
            while left and (chunk := opened.read(min(left, _CHUNK))):
                chunks.append(chunk)
                left -= len(chunk)
    if not left:
        raise ToolError(f"{path} has more than the ceiling of {max_bytes} bytes")
    return b"".join(chunks)


def write(root: Path, path: str, data: bytes, *, overwrite: bool) -> bool:
    """Write the file *path* below *root*, whole or not at all; missing folders are made.

    Returns:
        Whether the file was written; a file that has this content already is left alone.

    Raises:
        ToolError: The file must not be written, or exists with another content.
    """
    *folders, name = parts_of(path)
    with _explained(path), _folder(root, folders, make=True) as folder:
        existing = _existing(folder, name, path)
        if existing is not None and existing.st_size == len(data) and read(root, path, len(data)) == data:
            return False
        if existing is not None and not overwrite:
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
        # A rename would replace a file that appeared since the check; a link fails instead.
        os.link(draft, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        raise _exists(path) from None


def _exists(path: str) -> ToolError:
    return ToolError(f"{path} exists already, with another content; pass overwrite to replace it")


def _existing(folder: int, name: str, path: str) -> os.stat_result | None:
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    _check(status, path)
    return status


def _check(status: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OutsideRoot(f"{path} is not a regular file")
    if status.st_nlink > 1:
        raise OutsideRoot(f"{path} has {status.st_nlink} names, and the others may be anywhere")


@contextmanager
def _folder(root: Path, parts: Iterable[str], *, make: bool = False) -> Iterator[int]:
    """Open the folder at the end of *parts*, one part after another."""
    if not hasattr(os, "O_NOFOLLOW") or os.open not in os.supports_dir_fd:
        raise ToolError("files cannot be confined to a folder on this system")
    try:
        folder = os.open(root, _FOLDER)  # it may be a link: the host program has named it
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
    """Turn the error codes of the system into sentences."""
    try:
        yield
    except OSError as error:
        sentence = _SENTENCES.get(error.errno or 0)
        if sentence is None:
            raise  # such as a full disk: it was not foreseen, and its effect is in doubt
        kind = OutsideRoot if sentence.forbidden else ToolError
        raise kind(f"{path} {sentence.text}") from error
