"""The inbox of a run: messages as files in its folder; a pipe wakes its owner, which never polls."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import stat
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import anyio

from dagrun.journal.base import MAX_MESSAGE, check_first, check_message
from dagrun.journal.run_folder import FILE_MODE, RunPaths, as_failure, check_folder, write_new
from dagrun.kernel.model.journal import InboxMessage

_NAME: Final = re.compile(r"\d{20}-[0-9a-f]{16}\.json")  # time of posting, so that the oldest comes first


def post(paths: RunPaths, text: bytes) -> None:
    """Leave a message for a run, and wake its owner.

    Raises:
        JournalFailed: The message is too long, or cannot be written.
        AnswerRefused: Another answer to the same question lies there.
    """
    check_message(text)
    check_folder(paths.folder)
    check_folder(paths.inbox)
    with as_failure(f"cannot leave a message in {paths.inbox}"), _alone(paths.inbox):
        there = (_read(paths.inbox / name) for name in os.listdir(paths.inbox) if _NAME.fullmatch(name))
        check_first(text, filter(None, there))
        name = f"{time.time_ns():020d}-{secrets.token_hex(8)}.json"
        new = paths.inbox / f".new-{name}"
        write_new(new, text, is_synced=True)
        # Renamed when it is complete: the owner never reads half a message.
        os.rename(new, paths.inbox / name)
        _wake(paths.wake)  # nobody may wait: the owner finds the message when it next reads the folder


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the lock for posting: of two answers at the same moment, the second one must see the first."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def discard(paths: RunPaths, message: str) -> None:
    """Delete a message; one that does not exist is no error.

    Raises:
        JournalFailed: The message cannot be deleted.
    """
    if _NAME.fullmatch(message):
        with as_failure(f"cannot delete {message} in {paths.inbox}"):
            (paths.inbox / message).unlink(missing_ok=True)


class Inbox:
    """The inbox of a run for its owner: an iterator that waits for more, until it is closed.

    Args:
        paths: The files of the run.
    """

    def __init__(self, paths: RunPaths) -> None:
        self._paths = paths
        self._pipe: int | None = None
        self._is_closed = False
        self._seen: set[str] = set()
        self._ready: deque[InboxMessage] = deque()

    def __aiter__(self) -> Inbox:
        return self

    async def __anext__(self) -> InboxMessage:
        """Return the oldest message that was not returned yet.

        Raises:
            JournalFailed: The inbox cannot be read.
        """
        while not self._ready:
            await self._fetch()
            if self._is_closed:
                raise StopAsyncIteration
            if not self._ready and self._pipe is not None:
                with suppress(anyio.ClosedResourceError):
                    await anyio.wait_readable(self._pipe)
        return self._ready.popleft()

    async def backlog(self) -> list[InboxMessage]:
        """Return the messages that are in the inbox now, and were not returned yet.

        Raises:
            JournalFailed: The inbox cannot be read.
        """
        await self._fetch()
        messages = list(self._ready)
        self._ready.clear()
        return messages

    async def _fetch(self) -> None:
        # In a thread, as a disk may be slow.
        for message in await anyio.to_thread.run_sync(self._new_messages):
            if message.id not in self._seen:
                self._seen.add(message.id)
                self._ready.append(message)

    def close(self) -> None:
        """End the iteration; called on the loop."""
        self._is_closed = True
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            anyio.notify_closing(pipe)
            os.close(pipe)

    def _new_messages(self) -> list[InboxMessage]:
        inbox = self._paths.inbox
        with as_failure(f"cannot read {inbox}"):
            if self._pipe is None and not self._is_closed:
                self._pipe = _open_pipe(self._paths.wake)
            # The pipe is emptied before the folder is read: a message that comes later makes it readable again.
            if self._pipe is not None:
                _empty(self._pipe)
            names = sorted(name for name in os.listdir(inbox) if _NAME.fullmatch(name) and name not in self._seen)
        texts = ((name, _read(inbox / name)) for name in names)
        return [InboxMessage(name, text) for name, text in texts if text is not None]


def _read(path: Path) -> bytes | None:
    """Return the text of a message; `None` for a link, a pipe, a file of another user, or one that is too long."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_size > MAX_MESSAGE:
            return None
        return os.read(descriptor, MAX_MESSAGE)
    finally:
        os.close(descriptor)


def _open_pipe(path: Path) -> int:
    """Open the pipe at *path* to wait for a wake-up; replace anything else of that name.

    Raises:
        OSError: It cannot be made.
    """
    try:
        is_pipe = stat.S_ISFIFO(os.lstat(path).st_mode)
    except FileNotFoundError:
        is_pipe = False
    if not is_pipe:
        path.unlink(missing_ok=True)
        os.mkfifo(path, FILE_MODE)
    # Opened for writing, too: a pipe whose last writer has closed it would be readable forever.
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)


def _empty(pipe: int) -> None:
    """Forget the wake-ups so far."""
    with suppress(BlockingIOError):
        while os.read(pipe, 4096):
            pass


def _wake(path: Path) -> None:
    """Wake the process that waits at a pipe, if there is one."""
    try:
        if not stat.S_ISFIFO(os.lstat(path).st_mode):
            return
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        with suppress(BlockingIOError):  # it is full of wake-ups
            os.write(pipe, b".")
    finally:
        os.close(pipe)
