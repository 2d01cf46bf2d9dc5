"""Letters as files: another process writes one and knocks; the owner of the run waits for that, and never polls."""

from __future__ import annotations

import os
import re
import secrets
import stat
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio

from dagrun.journal.base import MAX_LETTER, check_letter
from dagrun.journal.run_folder import FILE_MODE, Place, as_failure, check_folder
from dagrun.model.journal import Letter

_NAME: Final = re.compile(r"\d{20}-[0-9a-f]{16}\.json")  # time of posting, so that the oldest comes first


def post(place: Place, text: bytes) -> None:
    """Leave a letter for whoever owns the run, and knock.

    Raises:
        JournalFailed: It is too long, or cannot be written.
    """
    check_letter(text)
    check_folder(place.folder)
    check_folder(place.inbox)
    name = f"{time.time_ns():020d}-{secrets.token_hex(8)}.json"
    new = place.inbox / f".new-{name}"
    with as_failure(f"cannot leave a letter in {place.inbox}"):
        _write(new, text)
        # The name appears when all is there.
        os.rename(new, place.inbox / name)
        _knock(place.wake)


def discard(place: Place, letter: str) -> None:
    """Throw a letter away; one that is not there is no error.

    Raises:
        JournalFailed: It cannot be deleted.
    """
    if _NAME.fullmatch(letter):
        with as_failure(f"cannot delete {letter} in {place.inbox}"):
            (place.inbox / letter).unlink(missing_ok=True)


class Inbox:
    """The letters of a run, as its owner gets them: an iterator that waits for more, until it is closed.

    Args:
        place: The folder of the run.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._door: int | None = None
        self._is_closed = False
        self._seen: set[str] = set()
        self._ready: deque[Letter] = deque()

    def __aiter__(self) -> Inbox:
        return self

    async def __anext__(self) -> Letter:
        """The oldest letter that was not given yet.

        Raises:
            JournalFailed: The inbox cannot be read.
        """
        while not self._ready:
            await self._fetch()
            if self._is_closed:
                raise StopAsyncIteration
            if not self._ready and self._door is not None:
                with suppress(anyio.ClosedResourceError):
                    await anyio.wait_readable(self._door)
        return self._ready.popleft()

    async def backlog(self) -> list[Letter]:
        """The letters that lie there now, and were not given yet.

        Raises:
            JournalFailed: The inbox cannot be read.
        """
        await self._fetch()
        letters = list(self._ready)
        self._ready.clear()
        return letters

    async def _fetch(self) -> None:
        # In a thread, since a disk may take its time. Knocks are taken away before the look: one that comes after it
        # is heard.
        for letter in await anyio.to_thread.run_sync(self._look):
            if letter.id not in self._seen:
                self._seen.add(letter.id)
                self._ready.append(letter)

    def close(self) -> None:
        """End the waiting; on the loop."""
        self._is_closed = True
        door, self._door = self._door, None
        if door is not None:
            anyio.notify_closing(door)
            os.close(door)

    def _look(self) -> list[Letter]:
        inbox = self._place.inbox
        with as_failure(f"cannot read {inbox}"):
            if self._door is None and not self._is_closed:
                self._door = _open_door(self._place.wake)
            if self._door is not None:
                _take_knocks(self._door)
            names = sorted(name for name in os.listdir(inbox) if _NAME.fullmatch(name) and name not in self._seen)
        read = ((name, _read(inbox / name)) for name in names)
        return [Letter(name, text) for name, text in read if text is not None]


def _open_door(path: Path) -> int:
    """Open the pipe on which others knock."""
    try:
        is_pipe = stat.S_ISFIFO(os.lstat(path).st_mode)
    except FileNotFoundError:
        is_pipe = False
    if not is_pipe:
        path.unlink(missing_ok=True)
        os.mkfifo(path, FILE_MODE)
    # For writing, too: a pipe that the last writer has left would be readable for ever.
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)


def _take_knocks(door: int) -> None:
    with suppress(BlockingIOError):
        while os.read(door, 4096):
            pass


def _knock(path: Path) -> None:
    # No pipe, nobody who listens, or a pipe that is full of knocks: the letter is found all the same.
    with suppress(OSError):
        if not stat.S_ISFIFO(os.lstat(path).st_mode):
            return
        door = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.write(door, b".")
        finally:
            os.close(door)


def _write(path: Path, text: bytes) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    try:
        with open(descriptor, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _read(path: Path) -> bytes | None:
    """Read a letter; `None` for what is none: a link, a pipe, a file of somebody else, or one that is too long."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_size > MAX_LETTER:
            return None
        return os.read(descriptor, MAX_LETTER)
    finally:
        os.close(descriptor)
